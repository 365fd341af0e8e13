"""Which of a publish's request headers travel with the message to its subscribers. Pure."""

from collections.abc import Iterable

from hermes_actors.config import PropagationConfig
from hermes_actors.model.message import Headers, is_reserved_header

SECRET = frozenset({"authorization", "cookie", "proxy-authorization"})
"""What travels only when it is named: it is meant for this server, and not for subscribers."""


class Propagation:
    """Picks headers by their names, whatever their letter case.

    Without names every header travels but the secret ones; one by which the broker speaks to
    subscribers never does. One without a value does not; of a repeated one the first does, as in
    Hermes. Names keep the case that the server tells.
    """

    def __init__(self, config: PropagationConfig) -> None:
        self._allowed = frozenset(config.allowed)

    def pick(self, pairs: Iterable[tuple[str, str]]) -> Headers:
        """The headers to store with the message; values are as their bytes in ISO 8859-1."""
        allowed = self._allowed
        picked: dict[str, tuple[str, str]] = {}
        for name, value in pairs:
            lower = name.lower()
            is_wanted = lower in allowed if allowed else lower not in SECRET
            if is_wanted and value and lower not in picked and not is_reserved_header(lower):
                picked[lower] = (name, _text(value))
        return tuple(picked.values())


def _text(value: str) -> str:
    """The value as its sender meant it: UTF-8 where it is that."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except (UnicodeDecodeError, UnicodeEncodeError):
        return value
