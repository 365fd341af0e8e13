"""Whether anything may be changed on this management node: an operator's switch, as in Hermes."""

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
    """The values are the wire's. `readOnly` set by an administrator shows as `readOnlyAdmin`."""

    READ_WRITE = "readWrite"
    READ_ONLY = "readOnly"
    READ_ONLY_ADMIN = "readOnlyAdmin"


def changes_nothing(method: str, path: str) -> bool:
    """True for a request that only reads or asks."""
    if method in _READS:
        return True
    is_query = path.startswith("/topics/") and path.rstrip("/").endswith("/query")
    # Only a POST asks; a topic or a subscription may be called "query" too.
    is_question = is_query or path.startswith("/filters/")
    return (is_question and method == "POST") or path.startswith("/query")


class AccessMode:
    """The mode of one management node, for as long as it runs; it starts as readWrite.

    Each switch is recorded in the metadata under `key`.
    """

    def __init__(self, metadata: Metadata, key: str) -> None:
        self._metadata = metadata
        self._key = key
        self._mode = Mode.READ_WRITE

    async def get(self) -> str:
        """The mode: readWrite, readOnly or readOnlyAdmin."""
        return self._mode.value

    async def set(self, caller: Caller, mode: str) -> None:
        """Switch the mode, for administrators. Raises Refused."""
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
            # The switch must work while the log does not.
            _logger.warning("mode %s is not recorded: %s", self._mode, error.message)

    def restricts(self, method: str, path: str) -> bool:
        """True for a request that only administrators may make now."""
        if self._mode is Mode.READ_WRITE or changes_nothing(method, path):
            return False
        return not path.startswith("/mode")

    def refusal(self) -> Unavailable:
        """The error for such a request of anybody else."""
        return Unavailable(
            f"Management is in mode {self._mode}: only administrators may change something"
        )
