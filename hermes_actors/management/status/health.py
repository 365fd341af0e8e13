"""The health of this node as a management node, with warnings for operators."""

from collections.abc import Callable, Sequence
from typing import Any

from hermes_actors.errors import Unavailable
from hermes_actors.management.status.statuses import Statuses
from hermes_actors.metadata.registry import Metadata
from hermes_actors.status.dependencies import ProbeAnswer


class NodeHealth:
    """The health of one node.

    `replicator`: the node that copies metadata changes of other datacentres to this one, if it is
    another node; else an empty string. `notices` returns further warnings about this node. `probe`
    answers Kubernetes' probes of the whole node.
    """

    def __init__(
        self,
        metadata: Metadata,
        statuses: Statuses,
        replicator: str,
        notices: Callable[[], Sequence[str]],
        probe: Callable[[str], ProbeAnswer],
    ) -> None:
        self._metadata = metadata
        self._statuses = statuses
        self._replicator = replicator
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
        if self._replicator and not self._statuses.may_be_there(self._replicator):
            notices.append(
                f"metadata.replicator: node '{self._replicator}' of {self._metadata.dc} is not "
                f"running, so changes made in other datacentres do not arrive here; start it, or "
                f"name another one in the configuration of every node of {self._metadata.dc}"
            )
        return {"status": "UP", "notices": notices} if notices else {"status": "UP"}
