"""Several messages that go to one partition together, through the same producer as a single one.

While the log takes them, nothing is made for each message. When it does not, and a buffer may keep
them, the bundle comes apart into publications, and each of these is kept or answered by itself.
"""

from collections.abc import Callable, Sequence
from functools import partial

from hermes_actors.errors import HermesError
from hermes_actors.log.base import Outcome, stored_count
from hermes_actors.model.message import Envelope, Message, Via, to_record
from hermes_actors.model.record import Record
from hermes_actors.model.run import RecordRun
from hermes_actors.publisher.publication import (
    Abandoned,
    Buffer,
    Buffered,
    Extras,
    Publication,
    Replayed,
    Route,
    not_kept,
    overdue,
)

Settled = Outcome | HermesError | Abandoned | Buffered | Replayed
"""What may have become of a message."""

Keys = Sequence[bytes | None] | bytes | None
"""One key (or none) for all messages of a bundle, or one for each; all of one partition."""


class Bundle(Publication):
    """Messages in columns: `bodies` and `ids` (UUIDs in ASCII) are as long as each other.

    `extras` are those of all messages, `extras_of` those of each, which then stand alone.
    `outcomes` has one outcome for each message when `notify` is called, which happens once.
    """

    __slots__ = ("_keys", "_left", "_members", "bodies", "count", "extras_of", "ids", "outcomes")

    def __init__(
        self,
        ids: Sequence[bytes],
        bodies: Sequence[bytes],
        route: Route,
        started_s: float,
        keys: Keys,
        notify: "Callable[[Bundle], None]",
        extras: Extras | None = None,
        extras_of: Sequence[Extras | None] | None = None,
    ) -> None:
        key = keys if keys is None or isinstance(keys, bytes) else keys[0]
        size = sum(map(len, bodies))
        super().__init__(ids[0].decode(), route, started_s, key, size, self._unreachable)
        self.notify = notify  # type: ignore[assignment]
        self.lanes = route.batch_lanes
        self.ids = ids
        self.bodies = bodies
        self.count = len(bodies)
        self.body = bodies[0]
        self.body_bytes = size
        self.has_body = True
        self.extras = extras if extras_of is None else extras_of[0]
        self.extras_of = extras_of
        self.outcomes: Sequence[Settled] = ()
        self._keys = keys
        self._members: list[Publication] | None = None
        self._left = 0

    @property
    def keys(self) -> Sequence[bytes | None] | None:
        """One for each message; None when all have the same."""
        return None if self._keys is None or isinstance(self._keys, bytes) else self._keys

    def settle(self, outcome: Settled) -> bool:
        """Set the outcome of all messages that have none; False when each had one already."""
        if self.is_answered:
            return False
        if self._members is not None:
            for member in self._members:
                member.settle(outcome)
            return True
        self._finish([outcome] * self.count)
        return True

    def keep(self) -> bool:
        """Give its messages to the buffer; False when it takes none of them. If it takes only
        some, the others are answered that it does not.
        """
        if self.is_done or self.route.buffer is None:
            return False
        members = self._come_apart()
        kept = [member.keep() for member in members]
        if not any(kept):
            self._come_together()
            return False
        for member in members:
            if not member.is_done:
                member.settle(not_kept(self.route, may_be_stored=self.is_sent))
        return True

    def is_behind(self, buffer: Buffer) -> bool:
        """Whether older messages of any of its keys wait in the buffer."""
        keys = self._keys
        if keys is None or isinstance(keys, bytes):
            return super().is_behind(buffer)
        route = self.route
        return any(key is not None and buffer.holds(route, key) for key in dict.fromkeys(keys))

    def conclude(self, outcomes: Sequence[Outcome]) -> int:
        """The append of its messages has ended: settle each, or have it kept. How many were
        answered by this as stored.
        """
        if self._members is None:
            if self.is_answered:
                return 0
            stored = stored_count(outcomes)
            if stored == self.count or self.route.buffer is None:
                self._finish(outcomes)
                return stored
            self._come_apart()
        assert self._members is not None, "it has come apart"
        pairs = zip(self._members, outcomes, strict=True)
        return sum([member.conclude((outcome,)) for member, outcome in pairs])

    def expire(self, limit_ms: int) -> None:
        """Its time is over: its messages are kept, or answered 503."""
        lanes = self.lanes
        if self.is_kept:
            if limit_ms < lanes.kept.limit_ms:
                lanes.kept.add(self)
                return
        elif limit_ms < lanes.late.limit_ms:
            # Some time is left for what cannot be kept.
            lane = lanes.kept if self.keep() else lanes.late
            lane.add(self)
            return
        if self.is_sent:
            self.route.hurry()
        self.settle(overdue(limit_ms, may_be_stored=self.is_sent or self.is_kept))

    def records(
        self, zero_ms: float, dc: str, envelope: Envelope, via: str = Via.LOCAL.value
    ) -> Sequence[Record]:
        """Its records. `zero_ms` is the wall-clock time of the monotonic clock's zero."""
        at_ms = int(zero_ms + self.started_s * 1_000)
        if envelope is not Envelope.NATIVE or self.extras_of is not None:
            return [
                to_record(_message(each, at_ms, dc, via), envelope) for each in self.publications()
            ]
        # The model says what the headers are; all but the first, the id, are the same for all.
        model = to_record(_message(self, at_ms, dc, via))
        return RecordRun(self.bodies, self.ids, model.headers[1:], at_ms, self._keys)

    def publications(self) -> list[Publication]:
        """Its messages one by one, each of which is settled by itself once it has come apart."""
        return [self._publication(at) for at in range(self.count)]

    def _publication(self, at: int) -> Publication:
        keys = self._keys
        publication = Publication(
            self.ids[at].decode(),
            self.route,
            self.started_s,
            keys if keys is None or isinstance(keys, bytes) else keys[at],
            len(self.bodies[at]),
            partial(self._ended, at),
        )
        publication.body = self.bodies[at]
        publication.body_bytes = publication.expected_bytes
        publication.has_body = True
        publication.is_sent = self.is_sent
        if self.extras_of is not None:
            publication.extras = self.extras_of[at]
        else:
            publication.extras = self.extras
        return publication

    def _come_apart(self) -> list[Publication]:
        """From now on each message is settled by itself."""
        self._members = members = self.publications()
        self.is_done = self.is_kept = True
        self._left = self.count
        self.outcomes = [Abandoned()] * self.count
        self.route.tally.in_flight += self.count
        return members

    def _come_together(self) -> None:
        """Nobody took any message, nor settled one: all is as before."""
        self._members = None
        self.is_done = self.is_kept = False
        self.route.tally.in_flight -= self.count

    def _ended(self, at: int, member: Publication) -> None:
        assert isinstance(self.outcomes, list), "it has come apart"
        assert member.outcome is not None, "it is settled"
        self.outcomes[at] = member.outcome
        self._left -= 1
        if not self._left:
            self._finish(self.outcomes)

    def _finish(self, outcomes: Sequence[Settled]) -> None:
        self.is_answered = self.is_done = True
        self.outcomes = outcomes
        self.outcome = outcomes[0]
        self.bodies = ()
        self.body = b""
        self.route.tally.in_flight -= 1
        self.notify(self)

    @staticmethod
    def _unreachable(_: Publication) -> None:
        raise AssertionError("a bundle tells of its end by itself")


def _message(each: Publication, at_ms: int, dc: str, via: str) -> Message:
    extras = each.extras or Extras()
    return Message(
        id=each.id,
        body=each.body,
        published_at_ms=at_ms,
        key=each.key,
        propagated=extras.propagated,
        dc=dc,
        via=via,
        traceparent=extras.traceparent,
        attributes=extras.attributes,
    )


def joined(parts: Sequence[Sequence[Record]]) -> Sequence[Record]:
    """The records of all parts, in order; a run, where all are runs of the same headers. Its time
    is that of the first, which is older than the others by less than their time limit.
    """
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    runs = [part for part in parts if isinstance(part, RecordRun)]
    if (
        not isinstance(first, RecordRun)
        or len(runs) != len(parts)
        or any(run.headers != first.headers for run in runs)
    ):
        return [record for part in parts for record in part]
    keys = first.keys
    if isinstance(keys, list | tuple) or any(run.keys != keys for run in runs):
        keys = [key for run in runs for key in run.keys_of_each()]
    return RecordRun(
        [value for run in runs for value in run.values],
        [each for run in runs for each in run.ids],
        first.headers,
        first.timestamp_ms,
        keys,
    )
