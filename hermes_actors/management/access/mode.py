"""The mode of this management node, read-write or read-only, which operators set, as in Hermes."""

import logging
from enum import StrEnum

import msgspec

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.metadata.commands import put
from hermes_actors.metadata.registry import Metadata

_logger = logging.getLogger(__name__)

_RECORD_TIMEOUT_S = 2.0


class Mode(StrEnum):
    """The values are those of the REST API. Setting `readOnly` results in `readOnlyAdmin`."""

    READ_WRITE = "readWrite"
    READ_ONLY = "readOnly"
    READ_ONLY_ADMIN = "readOnlyAdmin"


class AccessMode:
    """The mode of one management node. It is readWrite after each start of the node.

    Changes of the mode are recorded in the metadata under `key`, for the audit.
    """

    def __init__(self, metadata: Metadata, key: str) -> None:
        self._metadata = metadata
        self._key = key
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
        try:
            change = put(self._key, msgspec.json.encode({"mode": self._mode}))
            await self._metadata.change(change, timeout_s=_RECORD_TIMEOUT_S)
        except Unavailable as error:
            # The mode must change even if the log is unavailable.
            _logger.warning("mode %s is not recorded: %s", self._mode, error.message)

    @property
    def is_changeable(self) -> bool:
        """False if only administrators may change something now."""
        return self._mode is Mode.READ_WRITE

    def require_changeable(self) -> None:
        """Raises Unavailable if only administrators may change something now."""
        if not self.is_changeable:
            raise Unavailable("Action forbidden due to read-only mode")
