"""Connections for producing to one broker: a slow partition delays no other.

A broker answers the requests of one connection one after the other, and a request with several
partitions only when the slowest is done. So a connection carries one request at a time, and the
batches that arrive meanwhile go out together in the next request, which costs a busy broker least.
But no batch waits longer than a few milliseconds for the answers of others: then it uses another
connection.
A partition whose last answer was slow is a suspect. Suspects share requests only with suspects, and
use at most half of the connections. A connection with an overdue answer does not count against the
usual number, so a few stuck partitions of one broker leave room for the others.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from functools import partial

import trio
from aiokafka import errors
from aiokafka.conn import CloseReason

from hermes_actors.log.kafka import produce
from hermes_actors.log.kafka.connection import KafkaCluster
from hermes_actors.log.kafka.session import Session
from hermes_actors.log.kafka.translate import CLIENT_ERRORS
from hermes_actors.runtime.clock import Clock

OVERDUE_S = 0.1
"""An answer that takes longer than this is slow."""
SPREAD_S = 0.003
"""How long a batch waits for others' answers before it uses another connection."""
_REQUEST_BYTES_MAX = 2 * 1024 * 1024
"""Building a larger request would block the loop for tens of milliseconds."""
_OVERDUE_LANES = 4
_ANSWER_MARGIN_MS = 500


class NotSent(Exception):
    """The batch was not sent."""


class Lost(Exception):
    """The batch was sent, but its answer was lost."""


class SentBatch:
    """One partition's batch, queued or in flight. It can be given up while it is queued, and is not
    sent after `deadline_s`.
    """

    __slots__ = (
        "_result",
        "_settled",
        "data",
        "deadline_s",
        "is_given_up",
        "is_suspect",
        "partition",
        "topic",
        "was_slow",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        data: bytes | bytearray,
        deadline_s: float,
        is_suspect: bool,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.data = data
        self.deadline_s = deadline_s
        self.is_suspect = is_suspect
        self.was_slow = False
        self.is_given_up = False
        self._result: tuple[int, int] | NotSent | Lost | None = None
        self._settled = trio.Event()

    @property
    def is_over(self) -> bool:
        """True if it was answered or given up."""
        return self.is_given_up or self._result is not None

    def settle(self, result: tuple[int, int] | NotSent | Lost) -> None:
        """Set the result, once. May be called from either loop."""
        assert self._result is None, "settled once"
        self._result = result
        self._settled.set()

    async def answer(self) -> tuple[int, int]:
        """Wait for the error code and base offset. For trio; cancelling gives the batch up. Raises
        NotSent or Lost.
        """
        try:
            await self._settled.wait()
        except trio.Cancelled:
            self.is_given_up = True
            raise
        assert self._result is not None, "it is settled"
        if isinstance(self._result, tuple):
            return self._result
        raise self._result


class _Channel:
    """One connection, and the batches of its open request."""

    __slots__ = ("connection", "has_suspects", "is_overdue", "sendings", "started_s")

    def __init__(self, connection: Session) -> None:
        self.connection = connection
        self.sendings: list[SentBatch] = []
        self.started_s = 0.0
        self.is_overdue = False
        self.has_suspects = False


class BrokerConnections:
    """The producing connections to one broker for one ack level: at most `producers_per_ack`, and
    four times as many while answers are overdue. For the host loop; call `sweep` periodically.
    """

    def __init__(
        self,
        connection: KafkaCluster,
        clock: Clock,
        address: tuple[str, int],
        *,
        acks: int,
        timeout_s: float,
        delay_s: Callable[[int], float],
        on_failure: Callable[[str], None],
    ) -> None:
        self.address = address
        self.is_retired = False
        self.lost = 0
        self._connection = connection
        self._clock = clock
        self._acks = acks
        self._timeout_s = timeout_s
        # The broker times out first, so that its answer says what happened and the connection can
        # be kept.
        self._broker_timeout_ms = max(int(timeout_s * 1_000) - _ANSWER_MARGIN_MS, 100)
        self._delay_s = delay_s
        self._on_failure = on_failure
        self._size = connection.settings.producers_per_ack
        self._free: list[_Channel] = []
        self._busy: dict[_Channel, None] = {}
        self._fresh: deque[SentBatch] = deque()
        self._suspects: deque[SentBatch] = deque()
        self._opening: asyncio.Task[None] | None = None
        self._failures = 0
        self._retry_at_s = 0.0
        self._reason = ""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._free) + len(self._busy)

    @property
    def failures(self) -> int:
        """The number of failed attempts to connect since the last successful one."""
        return self._failures

    def forgive(self) -> None:
        """Allow the next attempt to connect at once, because the cluster is back."""
        self._retry_at_s = 0.0

    @property
    def is_idle(self) -> bool:
        """True if no batch is queued or in flight and no connection is being opened."""
        return not (self._busy or self._fresh or self._suspects or self._opening)

    def send(self, sending: SentBatch) -> None:
        """Send the batch now, or on the next free connection."""
        (self._suspects if sending.is_suspect else self._fresh).append(sending)
        self._pump()

    def warm(self) -> None:
        """Open a connection if there is none, so that the next batch need not wait for one."""
        for channel in [channel for channel in self._free if not channel.connection.connected()]:
            channel.connection.close()
            self._free.remove(channel)
        if not self.connections:
            self._open()

    def sweep(self, now_s: float) -> None:
        """Mark overdue answers, and fail requests that timed out and queued batches past their
        deadline.
        """
        for channel in list(self._busy):
            age_s = now_s - channel.started_s
            if age_s >= self._timeout_s:
                # `_answered` gets the error.
                channel.connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
            elif age_s >= OVERDUE_S and not channel.is_overdue:
                channel.is_overdue = True
                for sending in channel.sendings:
                    sending.was_slow = True
        for waiting in (self._fresh, self._suspects):
            late = [sending for sending in waiting if sending.deadline_s <= now_s]
            for sending in late:
                waiting.remove(sending)
                if sending.is_given_up:
                    continue
                sending.settle(NotSent(self._reason or "no connection was free in time"))
        self._pump()

    def retire(self, reason: str) -> None:
        """Send nothing more. Batches in flight may still be answered."""
        self.is_retired = True
        self._fail_waiting(reason)
        for channel in self._free:
            channel.connection.close()
        self._free.clear()

    async def close(self) -> None:
        """Close all connections: batches in flight are Lost, queued ones are NotSent."""
        self.retire("the log is closed")
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        for channel in list(self._busy):
            channel.connection.close()

    # Sending.

    def _pump(self) -> None:
        while self._fresh or self._suspects:
            if self.is_retired:
                self._fail_waiting("the broker has moved")
                return
            if self._busy and not self._may_spread():
                return
            takes_suspects = not self._fresh
            if takes_suspects and not self._has_room_for_suspects():
                return
            channel = self._take_free()
            if channel is None:
                self._open_if_room()
                return
            if takes_suspects:
                self._write(channel, self._take(self._suspects, self._suspects_at_once()))
            else:
                self._write(channel, self._take(self._fresh, len(self._fresh)))

    def _may_spread(self) -> bool:
        """False while an answer may come soon; then a timer tries again."""
        youngest_s = max(channel.started_s for channel in self._busy)
        wait_s = youngest_s + SPREAD_S - self._clock.monotonic_s()
        if wait_s <= 0:
            return True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look_again)
        return False

    def _look_again(self) -> None:
        self._timer = None
        self._pump()

    def _has_room_for_suspects(self) -> bool:
        return self._room_for_suspects() > 0

    def _room_for_suspects(self) -> int:
        busy = sum(channel.has_suspects for channel in self._busy)
        in_time = sum(channel.has_suspects and not channel.is_overdue for channel in self._busy)
        half = max(self._size // 2, 1)
        return min(half - in_time, half * _OVERDUE_LANES - busy)

    def _suspects_at_once(self) -> int:
        """How many suspects share a request: one if few are queued. If everything is slow, they are
        divided among the connections that suspects may use.
        """
        return -(-len(self._suspects) // self._room_for_suspects())

    def _take(self, waiting: deque[SentBatch], count: int) -> list[SentBatch]:
        taken: list[SentBatch] = []
        seen: set[tuple[str, int]] = set()
        room = _REQUEST_BYTES_MAX
        while waiting and len(taken) < count:
            sending = waiting[0]
            place = (sending.topic, sending.partition)
            if sending.is_given_up:
                waiting.popleft()
                continue
            if taken and (len(sending.data) > room or place in seen):
                break
            waiting.popleft()
            taken.append(sending)
            seen.add(place)
            room -= len(sending.data)
        return taken

    def _take_free(self) -> _Channel | None:
        while self._free:
            channel = self._free.pop()
            if channel.connection.connected():
                return channel
            channel.connection.close()
        return None

    def _write(self, channel: _Channel, sendings: list[SentBatch]) -> None:
        if not sendings:
            self._free.append(channel)
            return
        by_topic: dict[str, list[tuple[int, bytes | bytearray]]] = {}
        for sending in sendings:
            by_topic.setdefault(sending.topic, []).append((sending.partition, sending.data))
        channel.sendings = sendings
        channel.started_s = self._clock.monotonic_s()
        channel.is_overdue = False
        channel.has_suspects = sendings[0].is_suspect
        self._busy[channel] = None
        try:
            version = channel.connection.version(
                produce.API_KEY, produce.VERSION_MIN, produce.VERSION_MAX
            )
            body = produce.encode(self._acks, self._broker_timeout_ms, by_topic.items())
            channel.connection.ask(
                produce.API_KEY, version, body, partial(self._answered, channel, version)
            )
        except (errors.KafkaError, OSError) as error:
            del self._busy[channel]
            channel.connection.close(reason=CloseReason.CONNECTION_BROKEN)
            # A part may have been written, but a broker ignores an incomplete request.
            for sending in sendings:
                sending.settle(NotSent(str(error)))

    def _answered(self, channel: _Channel, version: int, answer: bytes | Exception) -> None:
        self._busy.pop(channel, None)
        sendings, channel.sendings = channel.sendings, []
        found = _decoded(answer, version)
        if isinstance(found, Exception):
            self.lost += 1
            channel.connection.close(reason=CloseReason.CONNECTION_BROKEN)
            reason = f"the connection to {self.address[0]}:{self.address[1]} ended"
            if self._clock.monotonic_s() - channel.started_s >= self._timeout_s:
                reason = f"no answer within {self._timeout_s:g} s"
            for sending in sendings:
                sending.settle(Lost(reason))
            self._on_failure(reason)
        else:
            for sending in sendings:
                result = found.get((sending.topic, sending.partition))
                sending.settle(result or Lost("the broker's answer leaves it out"))
            if self.is_retired:
                channel.connection.close()
            else:
                self._free.append(channel)
        self._pump()

    # Connections.

    def _open_if_room(self) -> None:
        overdue = sum(channel.is_overdue for channel in self._busy)
        in_time = len(self._busy) - overdue
        if in_time < self._size and len(self._busy) < self._size * _OVERDUE_LANES:
            self._open()

    def _open(self) -> None:
        if self._opening is not None or self.is_retired:
            return
        if self._clock.monotonic_s() < self._retry_at_s:
            if not self._busy:
                self._fail_waiting(self._reason)
            return
        self._opening = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        host, port = self.address
        try:
            connection = await self._connection.connect(host, port, "produce")
        except (*CLIENT_ERRORS, AssertionError, ValueError) as error:
            # aiokafka's log-in raises AssertionError for unexpected answers.
            self._opening = None
            self._not_connected(self._connection.explain(error, f"{host}:{port}"))
            return
        finally:
            # In any case, because nothing else connects while it is set.
            self._opening = None
        self._failures = 0
        self._reason = ""
        self._retry_at_s = 0.0
        if self.is_retired:
            connection.close()
        else:
            self._free.append(_Channel(connection))
        self._pump()

    def _not_connected(self, reason: str) -> None:
        self._failures += 1
        self._reason = reason
        self._retry_at_s = self._clock.monotonic_s() + self._delay_s(self._failures)
        if not self.connections:
            self._fail_waiting(reason)
        self._on_failure(reason)

    def _fail_waiting(self, reason: str) -> None:
        for waiting in (self._fresh, self._suspects):
            while waiting:
                sending = waiting.popleft()
                if not sending.is_given_up:
                    sending.settle(NotSent(reason))


def _decoded(
    answer: bytes | Exception, version: int
) -> dict[tuple[str, int], tuple[int, int]] | Exception:
    """Decode the answer. Returns the error if it failed or cannot be decoded."""
    if isinstance(answer, Exception):
        return answer
    try:
        return produce.decode(answer, version)
    except (struct.error, ValueError) as error:
        return error
