"""Load on real nodes over HTTP, and its account: every 201 is owed to every subscriber."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import trio

from hermes_actors.cli.connection.poster import (
    CannotConnect,
    NoAnswer,
    Poster,
    header_lines,
    open_poster,
    route_to,
)
from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.edges.endpoint import EndpointServer, Reply
from hermes_actors.publisher.edges.request import Request

_ANSWER_TIMEOUT_S = 15.0
_REFUSED_PAUSE_S = 0.1
_BODY = b'{"number":%d,"padding":"%s"}'
_PADDING = b"x" * 200
_LINES = header_lines([("Content-Type", "application/json")])
_TAKEN = Answer(200)
NO_ANSWER = "no answer"
NO_CONNECTION = "no connection"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A message that was answered 201 or 202. `at_s`: when, in trio's time."""

    number: int
    topic: str
    frontend: str
    at_s: float


@dataclass(slots=True)
class Phase:
    """A part of the run: publishers' answers and subscribers' messages in it.

    `retried`: the duplicates that were pushed again because a push seemed to fail. The other
    duplicates were read again.
    """

    name: str
    acknowledged: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    deliveries: int = 0
    duplicates: int = 0
    retried: int = 0
    latencies_ms: list[float] = field(default_factory=list)


class Account:
    """Accounts for every published and delivered message.

    `subscribers` are the subscribers of each topic; each is owed every message of it.
    """

    def __init__(self, subscribers: Mapping[str, Sequence[str]]) -> None:
        self.subscribers = subscribers
        self.acknowledged: dict[str, Acknowledged] = {}
        self.taken: dict[str, Counter[str]] = {
            name: Counter() for names in subscribers.values() for name in names
        }
        self.owed: dict[tuple[str, str], Acknowledged] = {}
        """By (subscriber, id): acknowledged and not delivered yet."""
        self.bodies: dict[str, bytes] = {}
        self.altered: list[str] = []
        self.phases: list[Phase] = []
        self.latest_s: dict[tuple[str, str], float] = {}
        self.numbers = 0

    def begin(self, phase: str) -> None:
        """Begin a phase; everything counts into it from now on."""
        self.phases.append(Phase(phase))

    def next_body(self) -> tuple[int, bytes]:
        """A body that no other message has."""
        self.numbers += 1
        return self.numbers, _BODY % (self.numbers, _PADDING)

    def acknowledge(self, message_id: str, entry: Acknowledged, latency_s: float) -> None:
        """A publisher was answered 201: from now on the message is owed."""
        assert message_id not in self.acknowledged, f"two messages were given the id {message_id}"
        self.acknowledged[message_id] = entry
        for subscriber in self.subscribers[entry.topic]:
            # It may have been delivered before its publisher was answered.
            if message_id not in self.taken[subscriber]:
                self.owed[subscriber, message_id] = entry
        self.latest_s[entry.frontend, entry.topic] = entry.at_s
        self.phases[-1].acknowledged += 1
        self.phases[-1].latencies_ms.append(latency_s * 1_000)

    def refuse(self, why: str) -> None:
        """A publisher got another answer, or none."""
        self.phases[-1].refused[why] += 1

    def deliver(
        self, subscriber: str, message_id: str, body: bytes, *, is_retry: bool = False
    ) -> None:
        """A subscriber took a message."""
        phase, taken = self.phases[-1], self.taken[subscriber]
        phase.deliveries += 1
        if message_id in taken:
            phase.duplicates += 1
            phase.retried += is_retry
        taken[message_id] += 1
        self.owed.pop((subscriber, message_id), None)
        if self.bodies.setdefault(message_id, body) != body:
            self.altered.append(message_id)

    def wrong(self) -> list[str]:
        """The ids of messages that were delivered with a different body."""
        sent = {
            message_id: _BODY % (entry.number, _PADDING)
            for message_id, entry in self.acknowledged.items()
        }
        return self.altered + [
            message_id
            for message_id, body in self.bodies.items()
            if sent.get(message_id, body) != body
        ]

    @property
    def unconfirmed(self) -> int:
        """The number of delivered messages that were never acknowledged to their publishers."""
        return len(self.bodies.keys() - self.acknowledged.keys())

    @property
    def deliveries(self) -> int:
        """All deliveries, including duplicates."""
        return sum(phase.deliveries for phase in self.phases)

    @property
    def duplicates(self) -> int:
        """The number of deliveries of a message to a subscriber that already had it, by its id."""
        return sum(phase.duplicates for phase in self.phases)

    @property
    def refused(self) -> Counter[str]:
        """How often publishers got something other than 201, by what they got."""
        return sum((phase.refused for phase in self.phases), Counter[str]())


class Subscribers:
    """Takes every push and enters it into the account. The path names the subscriber.

    For a guest of the host loop.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self.url = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Listen on a free loopback port. `url` + a subscriber's name is its endpoint."""
        server = EndpointServer(self._take)
        self.url = server.url
        async with server.serving():
            yield

    def _take(self, request: Request, body: bytes, reply: Reply) -> None:
        headers = request.fields
        self._account.deliver(
            request.path.removeprefix("/"),
            headers[b"hermes-message-id"].decode(),
            body,
            is_retry=headers.get(b"hermes-retry-count", b"0") != b"0",
        )
        reply(_TAKEN, 0.0)


@asynccontextmanager
async def publishing(
    account: Account,
    frontends: Sequence[str],
    *,
    rate_per_s: float,
    connections_each: int = 2,
    accepted: Collection[int] = (201,),
) -> AsyncIterator[None]:
    """Publish for the duration of the block; requests under way at its end are still answered. For
    a guest of the host loop.

    Each connection sends its next message after the previous answer, to one topic at one frontend,
    and never repeats a message: a message is owed if its answer is one of `accepted`.
    """
    is_over = trio.Event()
    targets = [(url, topic) for url in frontends for topic in account.subscribers]
    interval_s = len(targets) * connections_each / rate_per_s
    async with (
        open_poster(len(targets) * connections_each, timeout_s=_ANSWER_TIMEOUT_S) as poster,
        trio.open_nursery() as nursery,
    ):
        for count in range(connections_each):
            for number, (url, topic) in enumerate(targets):
                shift = (count * len(targets) + number) / (len(targets) * connections_each)
                publish = partial(_publish, account, poster, url, topic, accepted)
                nursery.start_soon(_repeat, account, publish, interval_s, shift, is_over)
        try:
            yield
        finally:
            is_over.set()


async def _repeat(
    account: Account,
    publish: Callable[[], Awaitable[str]],
    interval_s: float,
    shift: float,
    is_over: trio.Event,
) -> None:
    at_s = trio.current_time() + shift * interval_s
    while not is_over.is_set():
        # Time lost by waiting is not made up in a burst.
        at_s = max(at_s + interval_s, trio.current_time())
        await trio.sleep_until(at_s)
        why = await publish()
        if why:
            account.refuse(why)
            await trio.sleep(_REFUSED_PAUSE_S)


async def _publish(
    account: Account, poster: Poster, url: str, topic: str, accepted: Collection[int]
) -> str:
    """Publish one message. Return an empty string if it was acknowledged, else what
    came instead.
    """
    number, body = account.next_body()
    began_s = trio.current_time()
    try:
        route = route_to(url, f"/topics/{topic}")
        answered = await poster.post(route, _LINES, body, _ANSWER_TIMEOUT_S)
    except CannotConnect:
        return NO_CONNECTION
    except NoAnswer:
        return NO_ANSWER
    if answered.status not in accepted:
        return str(answered.status)
    at_s = trio.current_time()
    message_id = answered.headers[b"hermes-message-id"].decode()
    account.acknowledge(message_id, Acknowledged(number, topic, url, at_s), at_s - began_s)
    return ""
