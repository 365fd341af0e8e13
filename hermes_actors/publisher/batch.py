"""Many messages in one request: taken as they come, each answered with a line, in order.

Synchronous, like the gateway: an edge feeds what it reads, hands over as far as there is room, and
takes the lines that are due. Nothing here waits; `wake_reader` and `wake_writer` tell an edge that
it may go on.

What is under way is bounded in three ways: each stream owes its publisher a bounded number of
answers, each topic has a few batches under way, and all streams together a number of bytes. Where
one of these is reached the stream stops to read, and the publisher's own connection holds it back.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.log.base import Stored, is_all_stored
from hermes_actors.model.message import Message
from hermes_actors.model.messages import Keys, MessageRun
from hermes_actors.model.partitioner import partition_of
from hermes_actors.publisher.answers import Settled, too_long_for_topic
from hermes_actors.publisher.batch_lines import LINE_BYTES, end_line, lines_of, stored_lines
from hermes_actors.publisher.deadlines import Deadlines
from hermes_actors.publisher.forms import Form, Parcel
from hermes_actors.publisher.pending import Pending, Route
from hermes_actors.publisher.permits import Permits
from hermes_actors.runtime.clock import Clock


class Limits:
    """What bounds the streams; shared by all of a node. `messages_max` and `bytes_max` are those
    of a slice; `node` counts bytes under way; `enforces_size`: a topic's own limit holds too.
    """

    def __init__(
        self,
        *,
        messages_max: int,
        bytes_max: int,
        answer_bytes_max: int,
        node: Permits,
        enforces_size: bool,
    ) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.answer_bytes_max = answer_bytes_max
        self.node = node
        self.enforces_size = enforces_size


class Slice:
    """Some consecutive messages of a stream: handed over together, answered together.

    `parts` are those of its messages that are not refused, by the way they go, with their places;
    where all go one way there is one part and no places.
    """

    __slots__ = ("_left", "count", "ids", "parts", "refused", "size_bytes")

    def __init__(self, ids: list[bytes], refused: dict[int, HermesError], size_bytes: int) -> None:
        self.ids = ids
        self.count = len(ids)
        self.refused = refused
        self.size_bytes = size_bytes
        self.parts: list[tuple[Pending, Sequence[int] | None]] = []
        self._left = 0

    @property
    def is_done(self) -> bool:
        """Every message has its outcome."""
        return not self._left

    def expect(self, parts: int) -> None:
        """So many parts will end."""
        self._left = parts

    def ended(self) -> bool:
        """One of its parts has ended; True when it was the last."""
        self._left -= 1
        return not self._left

    def lines(self, topic: str) -> bytes:
        """The answers, in order."""
        if not self.refused and all(_is_stored(pending) for pending, _ in self.parts):
            return stored_lines(self.ids)
        outcomes: list[Settled] = [self.refused.get(at, _NOTHING) for at in range(self.count)]
        for pending, places in self.parts:
            places = places or range(self.count)
            assert pending.outcome is not None, "it is settled"
            each = pending.outcomes or [pending.outcome] * len(places)
            for at, outcome in zip(places, each, strict=True):
                outcomes[at] = outcome
        return lines_of(self.ids, outcomes, topic)


def _is_stored(pending: Pending) -> bool:
    """All of it, said by the log in one piece."""
    outcomes = pending.outcomes
    return isinstance(pending.outcome, Stored) if outcomes is None else is_all_stored(outcomes)


_NOTHING = Unavailable("Message was not handed over", ErrorCode.INTERNAL_ERROR, 500)


_Way = tuple[Pending, Sequence[int] | None, Sequence[Message]]


class BatchStream:
    """One request. Made by `Batches.open`; `close` must be called when the request has ended.

    `key` is the Partition-Key header's, for all messages that have none of their own, `common` has
    what the request's headers say for all.
    """

    def __init__(
        self,
        route: Route,
        form: Form,
        limits: Limits,
        topic_permits: Permits,
        key: bytes | None,
        common: Message,
        hand_over: Callable[[Pending, Sequence[Message]], None],
        deadlines: Deadlines,
        make_ids: Callable[[int], list[bytes]],
        clock: Clock,
        on_close: Callable[["BatchStream"], None],
    ) -> None:
        self.route = route
        self.size_at_once = form.size_at_once
        """How many bytes of what has come may be fed before others have their turn."""
        self._form = form
        self._limits = limits
        self._topic_permits = topic_permits
        self._key = key
        self._common = common
        self._hand_over = hand_over
        self._deadlines = deadlines
        self._make_ids = make_ids
        self._clock = clock
        self._on_close = on_close
        self._parcels: deque[Parcel] = deque()
        self._answers: deque[Slice] = deque()
        self._owed_bytes = 0
        self._unsent_bytes = 0
        # The next slice, while it waits for room, and how many of the two permits it has.
        self._next: tuple[Parcel, int] | None = None
        self._permits = 0
        self._has_ended = False
        self._is_closed = self._is_left = False
        self._last_line = b""
        self.wake_reader: Callable[[], None] = _nobody
        self.wake_writer: Callable[[], None] = _nobody

    # Reading.

    @property
    def is_over(self) -> bool:
        """No more is read: the body has ended, or the stream is to end before it."""
        return self._has_ended

    def feed(self, data: bytes) -> None:
        """A piece of the body has come."""
        self._add(self._form.feed(data))

    def finish(self) -> None:
        """The body has ended."""
        self._add(self._form.finish())
        self._has_ended = True

    def stop(self, error: HermesError) -> None:
        """Read no further; what was read is answered, and the last line says why."""
        if not self._has_ended:
            self._has_ended = True
            self._last_line = end_line(error)
            self.wake_reader()
            self.wake_writer()

    def leave(self) -> None:
        """The publisher has gone: what was read is stored, and nobody is answered."""
        self._has_ended = self._is_left = True
        self._last_line = b""
        self._answers.clear()

    def go_on(self) -> bool:
        """Hand over what has been read, as far as there is room. True when all of it is, and more
        may be read; else `wake_reader` is called when it is time to try again.
        """
        while self._next is not None or self._cut():
            if not self._may_owe() or not self._has_permits():
                return False
            self._send()
        return self._may_owe()

    def close(self) -> None:
        """The request has ended, one way or another."""
        if not self._is_closed:
            self._is_closed = self._has_ended = True
            self.wake_reader = self.wake_writer = _nobody
            self._parcels.clear()
            if self._next is not None:
                # Who waits for a permit gives it back when it comes.
                messages, size_bytes = self._weight(*self._next)
                if self._permits == _BOTH:
                    self._give_back(messages, size_bytes)
                elif self._permits == _TOPIC:
                    self._topic_permits.give_back(messages)
            self._on_close(self)

    # Writing.

    def take_lines(self) -> bytes:
        """The lines that are due, b"" when none is. `sent` must be told when they are out."""
        answers = self._answers
        lines: list[bytes] = []
        while answers and answers[0].is_done and self._unsent_bytes < self._limits.bytes_max:
            due = answers.popleft()
            part = due.lines(self.route.name)
            self._owed_bytes -= due.count * LINE_BYTES
            self._unsent_bytes += len(part)
            lines.append(part)
        if self.is_answered and self._last_line:
            lines.append(self._last_line)
            self._last_line = b""
        return b"".join(lines)

    def sent(self) -> None:
        """What `take_lines` gave is out of here."""
        was_full = not self._may_owe()
        self._unsent_bytes = 0
        if was_full:
            self.wake_reader()

    @property
    def is_answered(self) -> bool:
        """Nothing is left to be answered, now or later, but perhaps the last line."""
        return self._has_ended and not (self._answers or self._parcels or self._next)

    # Inside.

    def _add(self, parcel: Parcel) -> None:
        if parcel.bodies:
            self._parcels.append(parcel)
        if self._form.failure:
            self.stop(Refused(_sentence(self._form.failure)))

    def _may_owe(self) -> bool:
        return (
            self._is_left or self._owed_bytes + self._unsent_bytes < self._limits.answer_bytes_max
        )

    def _cut(self) -> bool:
        """Make ready the next slice; False when nothing waits."""
        if not self._parcels or self._is_closed:
            return False
        parcel = self._parcels[0]
        count = min(len(parcel.bodies), self._limits.messages_max)
        while count > 1 and parcel.size_of_first(count) > self._limits.bytes_max:
            count //= 2
        if count == len(parcel.bodies):
            self._parcels.popleft()
        else:
            self._parcels[0] = parcel.after(count)
            parcel = parcel.first(count)
        self._next = (parcel, parcel.size_of_first(count))
        return True

    def _has_permits(self) -> bool:
        """Take the next slice's permits, the topic's and then the node's."""
        assert self._next is not None, "a slice waits"
        if self._permits in (_WAITS_FOR_TOPIC, _WAITS_FOR_NODE):
            return False
        messages, size_bytes = self._weight(*self._next)
        if self._permits == _NEITHER:
            self._permits = _WAITS_FOR_TOPIC
            if not self._topic_permits.take(messages, self._got_topic):
                return False
            self._permits = _TOPIC
        if self._permits == _TOPIC:
            self._permits = _WAITS_FOR_NODE
            if not self._limits.node.take(size_bytes, self._got_node):
                return False
            self._permits = _BOTH
        return True

    def _got_topic(self) -> None:
        assert self._next is not None, "a slice waits"
        messages, _ = self._weight(*self._next)
        if self._is_closed:
            self._topic_permits.give_back(messages)
        else:
            self._permits = _TOPIC
            self.wake_reader()

    def _got_node(self) -> None:
        assert self._next is not None, "a slice waits"
        if self._is_closed:
            self._give_back(*self._weight(*self._next))
        else:
            self._permits = _BOTH
            self.wake_reader()

    @staticmethod
    def _weight(parcel: Parcel, size_bytes: int) -> tuple[int, int]:
        return len(parcel.bodies), size_bytes

    def _give_back(self, messages: int, size_bytes: int) -> None:
        self._limits.node.give_back(size_bytes)
        self._topic_permits.give_back(messages)

    def _send(self) -> None:
        """Hand the next slice over; its permits are given back when it has been answered."""
        assert self._next is not None, "a slice waits"
        parcel, size_bytes = self._next
        self._next = None
        self._permits = _NEITHER
        count = len(parcel.bodies)
        self.route.measures.requested(count)
        ids = self._make_ids(count)
        if parcel.ids is not None:
            ids = [own or made for own, made in zip(parcel.ids, ids, strict=True)]
        self._refuse_large(parcel)
        for error in parcel.refused.values():
            self.route.measures.answered(error.status, 1)
        part = Slice(ids, parcel.refused, size_bytes)
        if not self._is_left:
            self._answers.append(part)
            self._owed_bytes += count * LINE_BYTES
        ways = list(self._ways(parcel, part))
        part.parts = [(pending, places) for pending, places, _ in ways]
        part.expect(len(ways))
        self.route.tally.in_flight += len(ways)
        for pending, _, _ in ways:
            self._deadlines.add(pending)
        for listener in self.route.tally.listeners:
            listener.admitted([pending for pending, _, _ in ways])
        for pending, _, messages in ways:
            self._hand_over(pending, messages)
        if not ways:
            self._give_back(count, size_bytes)
            self.wake_writer()

    def _refuse_large(self, parcel: Parcel) -> None:
        """Refuse the messages that the topic does not take, where that is checked at all."""
        limit = self.route.topic.max_message_size
        if not self._limits.enforces_size or max(map(len, parcel.bodies)) <= limit:
            return
        for at, body in enumerate(parcel.bodies):
            if len(body) > limit:
                parcel.refused[at] = too_long_for_topic(len(body), self.route.topic)

    def _ways(self, parcel: Parcel, part: Slice) -> Iterable[_Way]:
        """The slice's messages by where they go; one way, where all go the same."""
        started_s, at_ms = self._clock.monotonic_s(), self._clock.now_ms()

        def ended(_: Pending) -> None:
            if part.ended():
                self._give_back(part.count, part.size_bytes)
                self.wake_writer()

        if parcel.keys is None and not parcel.refused:
            ways: Iterable[Sequence[int] | None] = (None,)
        else:
            ways = self._places(parcel, part.count)
        for places in ways:
            messages, key = self._messages(parcel, part.ids, places, at_ms)
            pending = Pending(
                messages[0].id,
                self.route,
                started_s,
                key,
                sum([len(parcel.bodies[at]) for at in places])
                if places is not None
                else sum(map(len, parcel.bodies)),
                self.route.batch_limits,
                ended,
                count=len(messages),
            )
            yield pending, places, messages

    def _messages(
        self, parcel: Parcel, ids: list[bytes], places: Sequence[int] | None, at_ms: int
    ) -> tuple[Sequence[Message], bytes | None]:
        """The messages at these places (None: all), and a key that says where they go."""
        bodies, models = parcel.bodies, parcel.models
        keys: Keys = self._key
        if places is not None:
            ids = [ids[at] for at in places]
            bodies = [bodies[at] for at in places]
            models = models and [models[at] for at in places]
            keys = self._keys_of(parcel, places)
        key = keys if keys is None or isinstance(keys, bytes) else keys[0]
        if models is None:
            model = replace(self._common, published_at_ms=at_ms)
            return MessageRun(ids, bodies, keys, model), key
        of_each = [keys] * len(ids) if keys is None or isinstance(keys, bytes) else keys
        return [
            replace(model, id=own.decode(), body=body, key=each, published_at_ms=at_ms)
            for model, own, body, each in zip(models, ids, bodies, of_each, strict=True)
        ], key

    def _keys_of(self, parcel: Parcel, places: Sequence[int]) -> Keys:
        if parcel.keys is None:
            return self._key
        own = [parcel.keys[at] for at in places]
        return [self._key if key is None else key for key in own]

    def _places(self, parcel: Parcel, count: int) -> list[list[int]]:
        """The places of the messages that are not refused, by where they go."""
        refused, keys = parcel.refused, parcel.keys
        partitions = self.route.partitions
        places: dict[int | bytes | None, list[int]] = {}
        where: dict[bytes | None, int | bytes | None] = {None: None}
        for at in range(count):
            if at in refused:
                continue
            key = keys[at] if keys else None
            if key is None:
                key = self._key
            if key not in where:
                # As long as nobody knows how many there are, each key goes alone.
                assert key is not None, "None is there"
                where[key] = partition_of(key, partitions) if partitions else key
            places.setdefault(where[key], []).append(at)
        return list(places.values())


_NEITHER, _WAITS_FOR_TOPIC, _TOPIC, _WAITS_FOR_NODE, _BOTH = range(5)


def _nobody() -> None:
    """Nobody waits."""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
