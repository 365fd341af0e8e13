"""The mode of this management node, read-write or read-only, which operators set, as in Hermes."""

import logging
from enum import StrEnum

import msgspec

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.management.access.roles import Caller, require_admin
from hermes_actors.metadata.commands import put
from hermes_actors.metadata.registry import Metadata

_logger = logging.getLogger(__name__)

_RECORD_TIMEOUT_S = 2.0
_READS = ("GET", "HEAD", "OPTIONS")


class Mode(StrEnum):
    """The values are those of the REST API. Setting `readOnly` results in `readOnlyAdmin`."""

    READ_WRITE = "readWrite"
    READ_ONLY = "readOnly"
    READ_ONLY_ADMIN = "readOnlyAdmin"


def changes_nothing(method: str, path: str) -> bool:
    """True for a request that only reads, also by a query in a body."""
    if method in _READS:
        return True
    is_query = path.startswith("/topics/") and path.rstrip("/").endswith("/query")
    # Only for POST: a PUT or DELETE may be for a topic or subscription named "query".
    is_question = is_query or path.startswith("/filters/")
    return (is_question and method == "POST") or path.startswith("/query")


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

    async def set(self, caller: Caller, mode: str) -> None:
        """Set the mode, for administrators. Raises Refused."""
        require_admin(caller, "switch the mode")
        if mode not in tuple(each.value for each in Mode):
            raise Refused(
                f"mode '{mode}' does not exist; it is one of {', '.join(Mode)}",
                ErrorCode.VALIDATION_ERROR,
            )
        self._mode = Mode.READ_WRITE if mode == Mode.READ_WRITE else Mode.READ_ONLY_ADMIN
        try:
            change = put(self._key, msgspec.json.encode({"mode": self._mode}))
            await self._metadata.change(change, timeout_s=_RECORD_TIMEOUT_S)
        except Unavailable as error:
            # The mode must change even if the log is unavailable.
            _logger.warning("mode %s is not recorded: %s", self._mode, error.message)

    def restricts(self, method: str, path: str) -> bool:
        """True if only administrators may make this request now."""
        if self._mode is Mode.READ_WRITE or changes_nothing(method, path):
            return False
        return not path.startswith("/mode")

    def refusal(self) -> Unavailable:
        """The error for a restricted request of somebody else."""
        return Unavailable("Action forbidden due to read-only mode")
