"""The mode of this management node, read-write or read-only, which operators set, as in Hermes."""

import logging
from enum import StrEnum

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.metadata.audit import BROKER, present_author

_logger = logging.getLogger(__name__)


class Mode(StrEnum):
    """The values are those of the REST API. Setting `readOnly` results in `readOnlyAdmin`."""

    READ_WRITE = "readWrite"
    READ_ONLY = "readOnly"
    READ_ONLY_ADMIN = "readOnlyAdmin"


class AccessMode:
    """The mode of one management node. It is readWrite after each start of the node."""

    def __init__(self) -> None:
        self._mode = Mode.READ_WRITE

    async def get(self) -> str:
        """The mode: readWrite, readOnly or readOnlyAdmin."""
        return self._mode.value

    async def set(self, mode: str) -> None:
        """Set the mode. Raises Refused."""
        if mode not in tuple(each.value for each in Mode):
            raise Refused(
                f"mode '{mode}' does not exist; use one of {', '.join(Mode)}",
                ErrorCode.VALIDATION_ERROR,
            )
        self._mode = Mode.READ_WRITE if mode == Mode.READ_WRITE else Mode.READ_ONLY_ADMIN
        author = present_author()
        _logger.warning("the mode is %s by %s", self._mode, author.by if author else BROKER)

    @property
    def is_changeable(self) -> bool:
        """False if only administrators may change something now."""
        return self._mode is Mode.READ_WRITE

    def require_changeable(self) -> None:
        """Raises Unavailable if only administrators may change something now."""
        if not self.is_changeable:
            raise Unavailable("Action forbidden due to read-only mode")
