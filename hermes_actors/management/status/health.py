"""The health of this node as a management node, with warnings for operators."""

from collections.abc import Callable, Sequence
from typing import Any

from hermes_actors.errors import Unavailable
from hermes_actors.metadata.registry import Metadata
from hermes_actors.status.dependencies import ProbeAnswer


class NodeHealth:
    """The health of one node.

    `notices` returns further warnings about this node. `probe` answers Kubernetes' probes of the
    whole node.
    """

    def __init__(
        self,
        metadata: Metadata,
        notices: Callable[[], Sequence[str]],
        probe: Callable[[str], ProbeAnswer],
    ) -> None:
        self._metadata = metadata
        self._notices = notices
        self.probe = probe

    def require_readable(self) -> None:
        """Raises Unavailable until the catalog is complete: before, a missing object may exist."""
        if not self._metadata.is_readable:
            raise Unavailable(f"The metadata is not available yet: {self._metadata.health.reason}")

    async def shown(self) -> dict[str, Any]:
        """The health of this node: UP, with `notices` (warnings for operators) if there are any.

        Raises Unavailable while the metadata is not current.
        """
        health = self._metadata.health
        if not health.is_current:
            raise Unavailable(f"The metadata is not current: {health.reason}")
        notices = [*self._metadata.notices(), *self._notices()]
        return {"status": "UP", "notices": notices} if notices else {"status": "UP"}
