"""Some messages of a batch that are handed over together, and their answers: a line of JSON
each.
"""

from collections.abc import Callable, Sequence

import msgspec

from hermes_actors.errors import ErrorCode, HermesError, Unavailable
from hermes_actors.log.base import Stored, is_all_stored
from hermes_actors.publisher.answers import Buffered, Settled, error_of
from hermes_actors.publisher.pending import Pending

_STORED = b'{"status":201,"id":"%b"}\n'
_KEPT = b'{"status":202,"id":"%b"}\n'
_BEGINNING, _END = _STORED.split(b"%b")
LINE_BYTES = len(_BEGINNING) + 36 + len(_END)
"""The size of the line for a stored message."""
_NOTHING = Unavailable("Message was not handed over", ErrorCode.INTERNAL_ERROR, 500)


class Slice:
    """Some consecutive messages of a stream, handed over together and answered together.

    `parts` are the messages that are not refused, grouped by partition, with their positions; if
    all share a partition, there is one part without positions. `left` counts the open parts; `done`
    is called when it reaches 0.
    """

    __slots__ = ("done", "ids", "left", "parts", "refused")

    def __init__(
        self, ids: list[bytes], refused: dict[int, HermesError], done: Callable[[], None]
    ) -> None:
        self.ids = ids
        self.refused = refused
        self.done = done
        self.parts: list[tuple[Pending, Sequence[int] | None]] = []
        self.left = 0

    def ended(self, _part: Pending) -> None:
        """Count a part that has ended; it is the `notify` of each."""
        self.left -= 1
        if not self.left:
            self.done()

    @property
    def is_stored(self) -> bool:
        """True if all of its messages are stored, which the log reports in one piece."""
        return not self.refused and all(_is_stored(pending) for pending, _ in self.parts)

    def outcomes(self) -> list[Settled]:
        """The outcomes, in order; no part may be left."""
        outcomes: list[Settled] = [self.refused.get(at, _NOTHING) for at in range(len(self.ids))]
        for pending, places in self.parts:
            places = places or range(len(self.ids))
            assert pending.outcome is not None, "it is settled"
            each = pending.outcomes or [pending.outcome] * len(places)
            for at, outcome in zip(places, each, strict=True):
                outcomes[at] = outcome
        return outcomes

    def lines(self, topic: str) -> bytes:
        """The answers, in order; no part may be left."""
        if self.is_stored:
            return _BEGINNING + (_END + _BEGINNING).join(self.ids) + _END
        return b"".join(map(_line, self.ids, self.outcomes(), [topic] * len(self.ids)))


def end_line(error: HermesError) -> bytes:
    """The last line of a stream that ends before its body does. It has no id, because it belongs to
    no message.
    """
    return _encode({"status": error.status, "message": error.message, "code": error.code.name})


def _is_stored(pending: Pending) -> bool:
    """True if all of its messages are stored, which the log reports in one piece."""
    outcomes = pending.outcomes
    return isinstance(pending.outcome, Stored) if outcomes is None else is_all_stored(outcomes)


def _line(message_id: bytes, outcome: Settled, topic: str) -> bytes:
    if isinstance(outcome, Stored):
        return _STORED % message_id
    if isinstance(outcome, Buffered):
        return _KEPT % message_id
    error = error_of(outcome, topic)
    fields = {"message": error.message, "code": error.code.name}
    return _encode({"status": error.status, "id": message_id.decode()} | fields)


def _encode(fields: dict[str, object]) -> bytes:
    return msgspec.json.encode(fields) + b"\n"
