"""Publishers and what they publish: seeded traffic over HTTP to whichever node is up."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec
import trio

from hermes_actors.config import ConsumersConfig
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.subscription import BatchPolicy, SerialPolicy
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.checkers.checker import Audience
from hermes_chaos.sim.environment.http_in import Response
from hermes_chaos.sim.history.events import History, Published
from hermes_chaos.sim.history.trace import Trace

GROUP = "sim"
_UNKNOWN_TOPIC = f"{GROUP}.nobody-made-it"
_SIZES = (20, 20, 20, 200, 200, 2_000, 20_000)
_KEYLESS_RATE = 0.7
_NON_ASCII = "żółć ✓ "
_TRACE_RATE = 0.2
_AT_ONCE_RATE = 0.25
_LATER_RATE = 0.25
_OTHER_RATE = 0.25
_BURST_PAUSE_S = 0.04
_STEADY_PAUSE_S = 0.2


@dataclass(frozen=True)
class TopicPlan:
    """One topic of the workload; `name` is the full name.

    `falls_back`: it may be published to another datacentre when its own does not take it.
    """

    name: str
    ack: Ack
    falls_back: bool = False

    def wire(self) -> dict[str, Any]:
        """What is posted to create it."""
        return {
            "name": self.name,
            "description": "simulated",
            "owner": {"source": "Plaintext", "id": "simulation"},
            "contentType": "JSON",
            "retentionTime": {"duration": 1, "retentionUnit": "DAYS"},
            "ack": self.ack.value,
            "fallbackToRemoteDatacenterEnabled": self.falls_back,
        }


@dataclass(frozen=True)
class SubscriptionPlan:
    """One subscription of the workload. `is_late`: it is created while messages are published.

    `more` is what else is posted to create it; it has an endpoint on each of its hosts, at which
    that share of the requests goes wrong by itself.
    """

    topic: str
    name: str
    policy: dict[str, Any] = field(default_factory=dict)
    is_late: bool = False
    more: dict[str, Any] = field(default_factory=dict)
    hosts_count: int = 1
    fault_rate: float = 0.04

    @property
    def full_name(self) -> str:
        """`group.topic$subscription`."""
        return f"{self.topic}${self.name}"

    @property
    def group(self) -> str:
        """Its consumer group in the log."""
        return SubscriptionName.parse(self.full_name).consumer_group()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Where its endpoints listen."""
        domain = f"{self.name}.{self.topic.partition('.')[2]}.test"
        if self.hosts_count == 1:
            return (domain,)
        return tuple(f"{number}.{domain}" for number in range(self.hosts_count))

    @property
    def _policy(self) -> SerialPolicy | BatchPolicy:
        if self.more.get("deliveryType") == "BATCH":
            return msgspec.convert(self.policy, BatchPolicy)
        return msgspec.convert(self.policy, SerialPolicy)

    @property
    def request_timeout_s(self) -> float:
        """How long a push waits for an answer."""
        return self._policy.request_timeout / 1_000

    def audience(self, config: ConsumersConfig) -> Audience:
        """What the checkers know of it."""
        policy = self._policy
        return replace(
            self._of_kind(policy, config),
            retries_client_errors=policy.retry_client_errors,
            backoff_ms=policy.message_backoff,
            is_late=self.is_late,
            keeps_letters=self.more.get("deadLettersEnabled", True),
            wants_even="filters" in self.more,
            recipients=self.hosts_count,
            attempts_max=policy.attempts_max,
            retry_on=tuple(policy.retry_on),
            discard_on=tuple(policy.discard_on),
            ttl_s=policy.message_ttl,
        )

    def _of_kind(self, policy: SerialPolicy | BatchPolicy, config: ConsumersConfig) -> Audience:
        names = self.full_name, self.topic, self.group
        if isinstance(policy, BatchPolicy):
            assert policy.message_rate is not None, "checkers want a limit"
            return Audience(
                *names,
                rate=policy.message_rate,
                inflight_max=1,
                batch=(policy.batch_size, policy.batch_volume),
            )
        inflight_max = policy.inflight_size or config.inflight_max
        return Audience(
            *names, rate=policy.rate, inflight_max=inflight_max, is_ordered=policy.ordered
        )

    def wire(self) -> dict[str, Any]:
        """What is posted to create it."""
        return {
            "topicName": self.topic,
            "name": self.name,
            "endpoint": ";".join(f"http://{host}/push" for host in self.hosts),
            "description": "simulated",
            "owner": {"source": "Plaintext", "id": "simulation"},
            "subscriptionPolicy": self.policy,
            **self.more,
        }


TOPICS = (
    TopicPlan(f"{GROUP}.orders", Ack.ALL),
    TopicPlan(f"{GROUP}.clicks", Ack.LEADER),
    TopicPlan(f"{GROUP}.audit", Ack.NONE),
)
FALLBACK_TOPICS = (
    TopicPlan(f"{GROUP}.payments", Ack.ALL, falls_back=True),
    TopicPlan(f"{GROUP}.alerts", Ack.LEADER, falls_back=True),
)
KEYED_TOPICS = TOPICS + FALLBACK_TOPICS
"""Messages with keys and without, from many publishers at a time."""
# The one with the slow subscription twice: it is to lag behind.
_MIX = (*KEYED_TOPICS, TOPICS[2], TOPICS[2])
LEDGER = TopicPlan(f"{GROUP}.ledger", Ack.ALL)
"""The one that gets more partitions meanwhile: without keys, nobody is promised an order."""
KEYLESS_TOPICS = (
    LEDGER,
    TopicPlan(f"{GROUP}.ticks", Ack.LEADER),
)
"""Only messages without keys, from one publisher at a time in each DC (see `run_in_turn`)."""
ALL_TOPICS = KEYED_TOPICS + KEYLESS_TOPICS
SLOWPOKE = SubscriptionPlan(
    f"{GROUP}.audit",
    "slowpoke",
    {"rate": 6, "requestTimeout": 300},
    more={"deadLettersEnabled": False},
)
"""The one that lags behind: it is pushed as much as its rate allows all the time."""
STRICT = SubscriptionPlan(
    f"{GROUP}.payments",
    "strict",
    {"attemptsMax": 3, "discardOn": [500], "retryOn": [400], "messageBackoff": 50},
    fault_rate=0.25,
)
"""The one that gives up soon; its dead letters are re-driven."""
SUBSCRIPTIONS = (
    SubscriptionPlan(f"{GROUP}.orders", "billing", {"messageBackoff": 50, "requestTimeout": 400}),
    SubscriptionPlan(
        f"{GROUP}.orders",
        "stubborn",
        {"retryClientErrors": True, "messageBackoff": 100, "backoffMultiplier": 1.5},
    ),
    SubscriptionPlan(f"{GROUP}.clicks", "narrow", {"inflightSize": 2, "rate": 200}),
    SubscriptionPlan(f"{GROUP}.clicks", "plain"),
    SLOWPOKE,
    SubscriptionPlan(f"{GROUP}.payments", "books"),
    SubscriptionPlan(f"{GROUP}.alerts", "pager"),
    SubscriptionPlan(f"{GROUP}.orders", "sequence", {"ordered": True, "inflightSize": 20}),
    SubscriptionPlan(
        f"{GROUP}.clicks",
        "picky",
        more={"filters": [{"type": "jsonpath", "path": "$.serial", "matcher": "\\d*[02468]"}]},
    ),
    SubscriptionPlan(
        f"{GROUP}.audit",
        "bundles",
        {
            "batchSize": 5,
            "batchTime": 300,
            "batchVolume": 10_000,
            "messageBackoff": 100,
            "requestTimeout": 400,
            "messageRate": 40,
        },
        more={"deliveryType": "BATCH"},
    ),
    SubscriptionPlan(
        f"{GROUP}.ledger",
        "everyone",
        {"messageBackoff": 50},
        more={"mode": "BROADCAST"},
        hosts_count=2,
    ),
    STRICT,
)
LATE_SUBSCRIPTIONS = (
    SubscriptionPlan(f"{GROUP}.orders", "latecomer", is_late=True),
    SubscriptionPlan(f"{GROUP}.clicks", "straggler", {"inflightSize": 5}, is_late=True),
)
ALL_SUBSCRIPTIONS = SUBSCRIPTIONS + LATE_SUBSCRIPTIONS
SOUGHT_SUBSCRIPTIONS = tuple(plan for plan in SUBSCRIPTIONS if plan is not STRICT)
"""Those that are retransmitted. Of one whose letters are re-driven at the same time nobody could
tell which attempt is which."""


class Frontends(Protocol):
    """The broker as publishers see it: nodes of their DC behind a load balancer."""

    def choose(self, dc: str) -> str:
        """The name of a node of the DC that is up; "" when none is."""

    async def publish(
        self, dc: str, topic: str, headers: Sequence[tuple[str, str]], body: bytes, prefers: str
    ) -> tuple[str, str, Response | None]:
        """Post to a node that is up, to `prefers` if that is one: its name, its life, its answer.

        The answer is None when the node died, and the name is the DC's when no node is up.
        """


class Publisher:
    """One publisher of one DC; posts its share spread over time, or each after the last answer."""

    def __init__(
        self,
        dc: str,
        name: str,
        serials: Callable[[], int],
        rng: random.Random,
        frontends: Frontends,
        on_begin: Callable[[Published], None],
        history: History,
        trace: Trace,
    ) -> None:
        self._dc = dc
        self._name = name
        self._serials = serials
        self._rng = rng
        self._frontends = frontends
        self._on_begin = on_begin
        self._history = history
        self._trace = trace

    async def run(self, messages: int, *, begin_s: float, end_s: float) -> None:
        """Publish that many messages, spread over the time between the two."""
        rng = self._rng
        moments = sorted(rng.uniform(begin_s, end_s) for _ in range(messages))
        async with trio.open_nursery() as nursery:
            for moment in moments:
                await trio.sleep_until(moment)
                topic = rng.choice(_MIX).name if rng.random() >= 0.03 else _UNKNOWN_TOPIC
                nursery.start_soon(self._publish, self._draw(topic, rng.random() < 0.5))

    async def run_in_turn(
        self, phases: int, messages: int, *, begin_s: float, end_s: float
    ) -> None:
        """Publish in phases, each of that many messages to one topic over one connection.

        The next message follows right after the last one's answer, so nothing that comes later
        wakes a broker that has forgotten one.
        """
        rng = self._rng
        for moment in sorted(rng.uniform(begin_s, end_s) for _ in range(phases)):
            await trio.sleep_until(moment)
            is_keyless = rng.random() < _KEYLESS_RATE
            topic = rng.choice(KEYLESS_TOPICS if is_keyless else KEYED_TOPICS).name
            node = ""
            for _ in range(messages):
                is_keyed = not is_keyless and rng.random() < 0.5
                node = await self._publish(self._draw(topic, is_keyed), prefers=node)

    async def run_in_bursts(self, bursts: Sequence[tuple[float, int]]) -> None:
        """At each moment publish a burst of so many messages to a topic that falls back: enough at
        a time for a broker to notice at once that a log or a subscriber does not answer, and to
        show what it does then.
        """
        rng = self._rng
        async with trio.open_nursery() as nursery:
            for moment, messages in bursts:
                await trio.sleep_until(moment)
                topic = rng.choice(FALLBACK_TOPICS).name
                node = self._frontends.choose(self._dc)
                for _ in range(messages):
                    nursery.start_soon(self._publish, self._draw(topic, rng.random() < 0.3), node)
                    await trio.sleep(rng.uniform(0, _BURST_PAUSE_S))

    async def run_steadily(self, until_s: float) -> None:
        """Publish a message now and then to all topics that fall back, on all nodes."""
        async with trio.open_nursery() as nursery:
            while trio.current_time() < until_s:
                for topic in FALLBACK_TOPICS:
                    message = self._draw(topic.name, self._rng.random() < 0.5)
                    message.is_cut = False
                    nursery.start_soon(self._publish, message, self._frontends.choose(self._dc))
                await trio.sleep(_STEADY_PAUSE_S)

    async def run_repeating(self, rounds: int, *, begin_s: float, end_s: float) -> None:
        """Publish that many messages with an idempotency key, each of them more than once.

        After the answer, at the same time, a while later, or with another message under the key.
        """
        rng = self._rng
        moments = sorted(rng.uniform(begin_s, end_s) for _ in range(rounds))
        async with trio.open_nursery() as nursery:
            for number, moment in enumerate(moments):
                await trio.sleep_until(moment)
                first = self._draw(rng.choice(KEYED_TOPICS).name, rng.random() < 0.5)
                first.idempotency_key = f"{self._dc}-{self._name}-{number}"
                first.is_cut = False
                nursery.start_soon(self._repeat, first, rng.random(), rng.uniform(0.5, 3.0))

    async def _repeat(self, first: Published, how: float, later_s: float) -> None:
        node = self._frontends.choose(self._dc)
        if how < _AT_ONCE_RATE:
            first.is_repeat = True
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._publish, first, node)
                nursery.start_soon(self._publish, replace(first), node)
            return
        again = replace(first, is_repeat=True)
        if how > 1 - _OTHER_RATE:
            again = self._draw(first.topic, bool(first.key))
            again.idempotency_key = first.idempotency_key
            again.is_cut = False
        node = await self._publish(first, node)
        if how > 1 - _OTHER_RATE - _LATER_RATE and again.is_repeat:
            await trio.sleep(later_s)
        await self._publish(again, node)

    def _draw(self, topic: str, is_keyed: bool) -> Published:
        rng = self._rng
        serial = self._serials()
        filling = rng.choice(_NON_ASCII) if rng.random() < 0.2 else "x"
        size = rng.choice(_SIZES)
        body = json.dumps({"serial": serial, "filling": filling * size}, ensure_ascii=False)
        published = Published(serial, topic, body.encode(), "", dc=self._dc)
        if is_keyed:
            published.key = f"key-{rng.randrange(8)}"
        if rng.random() < _TRACE_RATE:
            published.trace = f"00-{rng.getrandbits(128):032x}-{rng.getrandbits(64):016x}-01"
        # A broken client: it must be refused, and its message be nowhere.
        published.is_cut = rng.random() < 0.02
        return published

    async def _publish(self, published: Published, prefers: str = "") -> str:
        """Publish it; the name of the node that took it."""
        self._on_begin(published)
        published.began_s = trio.current_time()
        node, life, response = await self._frontends.publish(
            self._dc, published.topic, _headers(published), published.body, prefers
        )
        published.ended_s = trio.current_time()
        published.node, published.life = node, life
        if response is not None:
            published.status = response.status
            published.message_id = response.message_id
            published.code = response.code
        self._trace.note(
            node,
            f"publish {published.serial} {published.topic} {published.status} "
            f"{published.message_id}",
        )
        self._history.tell(published)
        return node


def _headers(published: Published) -> list[tuple[str, str]]:
    headers = [
        ("Host", "hermes.test"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(published.body) + published.is_cut)),
    ]
    for name, value in (
        ("Partition-Key", published.key),
        ("traceparent", published.trace),
        ("Idempotency-Key", published.idempotency_key),
    ):
        if value:
            headers.append((name, value))
    return headers
