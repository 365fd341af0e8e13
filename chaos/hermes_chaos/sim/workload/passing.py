"""A topic that is removed under load and created again under the same name, with its subscription.

No checker gets its messages, because nothing is promised for a removed topic. But if its lives
leave something behind in the broker, the other promises break.
"""

import random
from collections.abc import Awaitable, Callable, Sequence

import trio

from hermes_actors.errors import ErrorCode, HermesError
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.management.administration import Administration
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.environment.subscribers import Endpoint
from hermes_chaos.sim.history.events import History
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.workload.plans import GROUP, SubscriptionPlan, TopicPlan
from hermes_chaos.sim.workload.publisher import Frontends

TOPIC = TopicPlan(f"{GROUP}.passing", Ack.ALL)
SUBSCRIPTION = SubscriptionPlan(
    TOPIC.name, "visitor", more={"autoDeleteWithTopicEnabled": True, "deadLettersEnabled": False}
)
(HOST,) = SUBSCRIPTION.hosts
_CALLER = Anonymous()
_FAULTS = "topic made again"
_PAUSE_S = 0.3
_PUBLISH_PAUSE_S = 0.1
_LIFE_S = (0.2, 2.0)
_GAP_MAX_S = 0.4
_DONE = frozenset(
    (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.TOPIC_NOT_EXISTS,
        ErrorCode.SUBSCRIPTION_ALREADY_EXISTS,
    )
)
"""An earlier attempt with an unknown outcome has succeeded."""


def passing_endpoint(rng: random.Random, trace: Trace) -> Endpoint:
    """The topic's subscriber, which no checker watches."""
    return Endpoint(SUBSCRIPTION.full_name, HOST, 1.0, 0.0, rng, History(), trace)


class Passing:
    """Creates and removes the topic through the first of the `administrations`; None while its node
    is down.
    """

    def __init__(
        self,
        administrations: Callable[[], Sequence[Administration | None]],
        frontends: Frontends,
        dcs: Sequence[str],
        rng: random.Random,
        history: History,
        trace: Trace,
    ) -> None:
        self._administrations = administrations
        self._frontends = frontends
        self._dcs = dcs
        self._rng = rng
        self._history = history
        self._trace = trace

    async def run(self, begin_s: float, end_s: float) -> None:
        """Create the topic, publish to it in each datacentre, remove it, and repeat, between these
        times.
        """
        await trio.sleep_until(begin_s)
        async with trio.open_nursery() as nursery:
            for dc in self._dcs:
                nursery.start_soon(self._publish, dc)
            with trio.move_on_at(end_s):
                while True:
                    await self._make()
                    await trio.sleep(self._rng.uniform(*_LIFE_S))
                    await self._until_done("remove", _remove)
                    await trio.sleep(self._rng.uniform(0, _GAP_MAX_S))
                    self._history.faults[_FAULTS] += 1
            nursery.cancel_scope.cancel()

    async def _make(self) -> None:
        await self._until_done("make", _make)
        await self._until_done("subscribe to", _subscribe)

    async def _until_done(
        self, what: str, act: Callable[[Administration], Awaitable[None]]
    ) -> None:
        while True:
            administration = self._administrations()[0]
            if administration is not None:
                try:
                    await act(administration)
                except HermesError as error:
                    self._trace.note("operator", f"{what} {TOPIC.name}: {error.code.name}")
                    if error.code in _DONE:
                        return
                else:
                    self._trace.note("operator", f"{what} {TOPIC.name}")
                    return
            await trio.sleep(_PAUSE_S)

    async def _publish(self, dc: str) -> None:
        """Publish a message now and then, whether the topic exists or not."""
        body = b'{"serial": 0}'
        headers = [
            ("Host", "hermes.test"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
        ]
        while True:
            keyed = [*headers, ("Partition-Key", f"key-{self._rng.randrange(8)}")]
            await self._frontends.publish(dc, TOPIC.name, keyed, body, "")
            await trio.sleep(self._rng.uniform(0, 2 * _PUBLISH_PAUSE_S))


async def _make(administration: Administration) -> None:
    await administration.topics.create(_CALLER, TOPIC.wire())


async def _subscribe(administration: Administration) -> None:
    await administration.subscriptions.create(_CALLER, TOPIC.name, SUBSCRIPTION.wire())


async def _remove(administration: Administration) -> None:
    await administration.topics.delete(_CALLER, TOPIC.name)
