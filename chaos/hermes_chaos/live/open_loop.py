"""Publishes at a steady rate whatever the answers, and keeps each message's result; no retries.

A message is sent when it is due, even while earlier ones wait, and its latency counts from then. So
a slow server does not reduce its own load (no coordinated omission).
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import trio

from hermes_actors.cli.connection.poster import (
    CannotConnect,
    NoAnswer,
    Poster,
    header_lines,
    open_poster,
    route_to,
)
from hermes_actors.cli.publishing.publisher import percentile

_ANSWER_TIMEOUT_S = 15.0
# Below the idle time after which a frontend may close the connection.
_IDLE_MAX_S = 1.0
_CONNECTIONS_MAX = 20_000
_JSON = ("Content-Type", "application/json")
NO_ANSWER = 0
"""The status of a message whose connection ended before the answer: the result is unknown."""
NO_CONNECTION = -1
"""The status of a message for which no frontend was available: nothing was sent."""


@dataclass(slots=True)
class Sent:
    """One message: when it was due, when it ended, and how."""

    number: int
    topic: str
    key: str
    due_s: float
    frontend: str = ""
    status: int = NO_ANSWER
    message_id: str = ""
    error: str = ""
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def is_accepted(self) -> bool:
        """True if it was answered 201 or 202."""
        return self.status in (201, 202)

    @property
    def latency_ms(self) -> float:
        """Milliseconds from when it was due to its answer."""
        return (self.ended_s - self.due_s) * 1_000


@dataclass
class Phase:
    """A part of a run, by time. A message belongs to the phase in which it was due."""

    name: str
    begin_s: float
    end_s: float = 0.0
    sent: list[Sent] = field(default_factory=list)

    @property
    def statuses(self) -> Counter[int]:
        """How often each status was answered."""
        return Counter(each.status for each in self.sent)

    @property
    def refused(self) -> list[Sent]:
        """The messages that were not stored or spooled, or not known to be."""
        return [each for each in self.sent if not each.is_accepted]

    @property
    def worst_gap_ms(self) -> float:
        """The longest time between two successive answers 201 or 202, starting at the phase's
        beginning.
        """
        ends_s = sorted(each.ended_s for each in self.sent if each.is_accepted)
        moments_s = [self.begin_s, *ends_s] if ends_s else [self.begin_s, self.end_s]
        return max(later - earlier for earlier, later in pairwise(moments_s)) * 1_000

    def latency_ms(self, percent: float) -> float:
        """That percentile of accepted messages' latencies, in ms; 0 without any."""
        found = sorted(each.latency_ms for each in self.sent if each.is_accepted)
        return percentile(found, percent) if found else 0.0


class OpenLoop:
    """Load on several frontends and topics in turn, each message with a key.

    `keys` is their number per topic. As with a load balancer, a frontend that cannot be connected
    to, or is left out, is skipped: the message goes to the next one, and nothing was sent before.
    For a guest of the host loop.
    """

    def __init__(
        self, frontends: Sequence[str], topics: Sequence[str], *, rate_per_s: float, keys: int
    ) -> None:
        self._names = list(frontends)
        self._topics = list(topics)
        self._interval_s = 1 / rate_per_s
        self._keys = keys
        self._left_out: set[str] = set()
        self.sent: list[Sent] = []
        self.phases: list[Phase] = []

    def begin(self, name: str) -> Phase:
        """Begin a phase; messages belong to it from now on."""
        now_s = trio.current_time()
        if self.phases:
            self.phases[-1].end_s = now_s
        self.phases.append(Phase(name, now_s))
        return self.phases[-1]

    def leave_out(self, frontend: str) -> None:
        """Stop sending to this frontend."""
        self._left_out.add(frontend)

    def take_in(self, frontend: str) -> None:
        """Resume sending to this frontend."""
        self._left_out.discard(frontend)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Publish for the duration of the block; then wait for outstanding answers."""
        sending = trio.CancelScope()

        async def send(poster: Poster) -> None:
            with sending:
                await self._send(poster, requests)

        async with (
            open_poster(_CONNECTIONS_MAX, idle_s=_IDLE_MAX_S) as poster,
            trio.open_nursery() as requests,
        ):
            requests.start_soon(send, poster)
            try:
                yield
            finally:
                sending.cancel()
                if self.phases:
                    self.phases[-1].end_s = trio.current_time()

    async def _send(self, poster: Poster, requests: trio.Nursery) -> None:
        due_s = trio.current_time()
        while True:
            due_s += self._interval_s
            await trio.sleep_until(due_s)
            number = len(self.sent) + 1
            topic = self._topics[number % len(self._topics)]
            key = f"key-{number // len(self._topics) % self._keys}"
            sent = Sent(number, topic, key, due_s)
            self.sent.append(sent)
            if self.phases:
                self.phases[-1].sent.append(sent)
            requests.start_soon(self._publish, poster, sent)

    async def _publish(self, poster: Poster, sent: Sent) -> None:
        sent.began_s = trio.current_time()
        body = json.dumps({"number": sent.number, "padding": "x" * 100}).encode()
        lines = header_lines([_JSON, ("Partition-Key", sent.key)])
        count = len(self._names)
        # A key always goes to the same frontend while that is available, because order is per node.
        first = (sent.number // len(self._topics) % self._keys) % count
        sent.status = NO_CONNECTION
        for shift in range(count):
            at = (first + shift) % count
            if self._names[at] in self._left_out:
                continue
            sent.frontend = self._names[at]
            try:
                route = route_to(sent.frontend, f"/topics/{sent.topic}")
                answer = await poster.post(route, lines, body, _ANSWER_TIMEOUT_S)
            except CannotConnect:
                continue
            except NoAnswer as error:
                sent.status = NO_ANSWER
                sent.error = repr(error)
            else:
                sent.status = answer.status
                sent.message_id = answer.headers.get(b"hermes-message-id", b"").decode()
                if not sent.is_accepted:
                    sent.error = answer.body.decode(errors="replace")
            break
        sent.ended_s = trio.current_time()
