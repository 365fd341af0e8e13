"""Publishers: seeded traffic over HTTP to whichever node is running."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import trio

from hermes_chaos.sim.environment.http_in import Response
from hermes_chaos.sim.history.events import History, Published
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.workload.plans import (
    FALLBACK_TOPICS,
    GROUP,
    KEYED_TOPICS,
    KEYLESS_TOPICS,
    TOPICS,
    VISITS,
)

_UNKNOWN_TOPIC = f"{GROUP}.nobody-made-it"
# The topic of the slow subscription twice, so that it lags.
_MIX = (*KEYED_TOPICS, TOPICS[2], TOPICS[2])
_SIZES = (20, 20, 20, 200, 200, 2_000, 20_000)
_KEYLESS_RATE = 0.7
_NON_ASCII = "żółć ✓ "
_TRACE_RATE = 0.2
_AT_ONCE_RATE = 0.25
_LATER_RATE = 0.25
_OTHER_RATE = 0.25
_STEADY_PAUSE_S = 0.2


class Frontends(Protocol):
    """The broker as publishers see it: a datacentre's nodes behind a load balancer."""

    def choose(self, dc: str) -> str:
        """The name of a running node of the datacentre. Empty string if there is none."""

    async def publish(
        self, dc: str, topic: str, headers: Sequence[tuple[str, str]], body: bytes, prefers: str
    ) -> tuple[str, str, Response | None]:
        """Post to a running node, if possible to `prefers`. Return its name, its life, and the
        answer.

        The answer is None if the node died; the name is the datacentre's if no node is running.
        """


class Publisher:
    """One publisher in one datacentre. Posts its messages spread over time, or each after the
    previous answer.
    """

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
        """Publish that many messages, spread between the two times."""
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

        Each message follows right after the previous answer, so no later message wakes a broker
        that has forgotten one.
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

    async def run_in_bursts(self, bursts: Sequence[tuple[float, int]], pause_max_s: float) -> None:
        """At each moment, publish a burst of so many messages to a fallback topic: enough for a
        broker to notice at once that a log or a subscriber does not answer, and to show its
        reaction. There is a pause between two messages of a burst.
        """
        rng = self._rng
        async with trio.open_nursery() as nursery:
            for moment, messages in bursts:
                await trio.sleep_until(moment)
                topic = rng.choice(FALLBACK_TOPICS).name
                node = self._frontends.choose(self._dc)
                for _ in range(messages):
                    nursery.start_soon(self._publish, self._draw(topic, rng.random() < 0.3), node)
                    await trio.sleep(rng.uniform(0, pause_max_s))

    async def run_steadily(self, until_s: float) -> None:
        """Publish a message now and then to all fallback topics and the Avro topic, on
        all nodes.
        """
        async with trio.open_nursery() as nursery:
            while trio.current_time() < until_s:
                for topic in (*FALLBACK_TOPICS, VISITS):
                    message = self._draw(topic.name, self._rng.random() < 0.5)
                    message.is_cut = False
                    nursery.start_soon(self._publish, message, self._frontends.choose(self._dc))
                await trio.sleep(_STEADY_PAUSE_S)

    async def run_repeating(self, rounds: int, *, begin_s: float, end_s: float) -> None:
        """Publish that many messages with an idempotency key, each more than once.

        The repetition comes after the answer, at the same time, later, or with another message.
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
        # A broken client: the request must be refused, and its message stored nowhere.
        published.is_cut = rng.random() < 0.02
        return published

    async def _publish(self, published: Published, prefers: str = "") -> str:
        """Publish it; return the name of the node that took it."""
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
