"""Keeps one consumer running for each subscription that is this node's, and says why not else.

Data flows from left to right: metadata's changes → what should run → consumers started, told of
their new version, or stopped. The state comes as changes first, so start and update are one path.
A consumer never gives up: it backs off up to five minutes, and nobody else notices.
"""

import logging
import random
from collections.abc import Callable, Sequence

import trio
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.actors.mailbox import Inbox, MailboxClosed, MailboxFull, Ref
from hermes_actors.actors.restart import TENANT
from hermes_actors.actors.supervisor import Crash, Supervisor, open_supervisor
from hermes_actors.balancer.assignment import owner_of
from hermes_actors.balancer.parts import Consumer, ConsumerFactory, NoRest, Resting
from hermes_actors.balancer.suspension import Suspensions
from hermes_actors.coordination.owned import Owned
from hermes_actors.errors import HermesError
from hermes_actors.metadata.bodies import activation_body
from hermes_actors.metadata.catalog import (
    LiveSubscription,
    LiveTopic,
    SubscriptionChanged,
    TopicChanged,
)
from hermes_actors.metadata.commands import Alive, put
from hermes_actors.metadata.keys import activation_key, subscription_key
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.subscription import DeliveryType, SerialPolicy, SubscriptionState
from hermes_actors.status.collector import SubscriptionFigures

_logger = logging.getLogger(__name__)

_ACTIVATION_PAUSE_S = 1.0


class _Plan(Struct, frozen=True):
    """What should run for one subscription, or does."""

    live: LiveSubscription
    topic: LiveTopic

    def is_same_consumer(self, other: "_Plan") -> bool:
        """True when a running consumer can take the other plan over without a restart."""
        return (
            self.live.incarnation == other.live.incarnation
            and self.live.topic_incarnation == other.live.topic_incarnation
            and self.topic.log_topic == other.topic.log_topic
            and _shape(self.live) == _shape(other.live)
        )


def _shape(live: LiveSubscription) -> tuple[DeliveryType, bool]:
    """What a consumer is built for, and cannot change while it runs."""
    subscription = live.subscription
    policy = subscription.subscription_policy
    return subscription.delivery_type, isinstance(policy, SerialPolicy) and policy.ordered


class _Running:
    """One started consumer: the plan it follows, and its latest life."""

    def __init__(self, plan: _Plan, ref: Ref[LiveSubscription]) -> None:
        self.plan = plan
        self.ref = ref


class Agent:
    """The actor of a node's consuming side. It reads no messages; its inbox only says when to stop.

    `nodes` are the names of all consuming nodes of this datacentre, this one among them.
    """

    def __init__(
        self,
        metadata: Metadata,
        factory: ConsumerFactory,
        *,
        node: str,
        nodes: Sequence[str],
        rng: random.Random,
        stop_grace_s: float = 15.0,
        on_gone: Callable[[LiveSubscription], None] = lambda _live: None,
        resting: Resting | None = None,
    ) -> None:
        """`on_gone` is called when a subscription that ran here exists no more. `resting` is told
        of those that are this node's and are not consumed, suspended ones say.
        """
        assert node in nodes, "this node is one of the consuming nodes"
        self._metadata = metadata
        self._factory = factory
        self._node = node
        self._owned = Owned()
        self._nodes = tuple(sorted(nodes))
        self._rng = rng
        self._stop_grace_s = stop_grace_s
        self._on_gone = on_gone
        self._at_rest: Resting = resting or NoRest()
        self._supervisor: Supervisor | None = None
        self._running: dict[str, _Running] = {}
        # What ran here and now rests (suspended, say): bounded by the subscriptions that exist.
        self._resting: dict[str, LiveSubscription] = {}
        self._consumers: dict[str, Consumer] = {}
        self._refusals: dict[str, str] = {}
        # Those of other nodes: no figures of them are ours.
        self._elsewhere: set[str] = set()
        # The last figures of each subscription of ours: they outlive its consumers.
        self._figures: dict[str, SubscriptionFigures] = {}
        self._crashes: dict[str, str] = {}
        self._moving: set[str] = set()
        # Waiting activations, newest plan of each subscription: bounded by their number.
        self._to_activate: dict[str, LiveSubscription] = {}
        self._activation_wanted = trio.Event()
        self._suspensions = Suspensions(metadata)

    async def run(self, inbox: Inbox[object]) -> None:
        """Run consumers until asked to stop; then stop them all, together."""
        async with open_supervisor(self._rng, self._on_crash) as supervisor:
            self._supervisor = supervisor
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follow, supervisor, nursery)
                nursery.start_soon(self._activate_regularly)
                nursery.start_soon(self._suspensions.run)
                async for _ in inbox:
                    pass
                nursery.cancel_scope.cancel()
            await self._stop_all(supervisor)

    def why(self, subscription: str) -> str:
        """Why this subscription is not being delivered by this node; "" when it is."""
        refusal = self._refusals.get(subscription)
        if refusal is not None:
            return refusal
        if subscription not in self._running:
            return "no such subscription"
        crash = self._crashes.get(subscription)
        consumer = self._consumers.get(subscription)
        if crash is not None:
            return crash
        return "starting" if consumer is None else consumer.why

    def status(self) -> dict[str, str]:
        """For each known subscription, sorted, why it is not delivered here; "" when it is."""
        return {name: self.why(name) for name in sorted({*self._running, *self._refusals})}

    def subscriptions(self) -> list[str]:
        """The full names of the subscriptions that are this node's, delivered or not, sorted."""
        return sorted({*self._running, *self._refusals} - self._elsewhere)

    def figures(self, subscription: str) -> SubscriptionFigures | None:
        """What the node's status record says of one that is its own; None for any other."""
        if subscription in self._elsewhere or (
            subscription not in self._running and subscription not in self._refusals
        ):
            self._figures.pop(subscription, None)
            return None
        consumer = self._consumers.get(subscription)
        why = self.why(subscription)
        if consumer is not None:
            figures = replace(consumer.figures(), why=why)
        else:
            last = self._figures.get(subscription, SubscriptionFigures(why))
            figures = replace(
                last,
                why=why,
                inflight=0,
                waiting_retries=0,
                level="",
                rate_now=0.0,
                held_back="",
                oldest_age_ms=0,
            )
            log_topic, reached = self._at_rest.reached(subscription)
            if reached:
                figures = replace(figures, log_topic=log_topic, reached=reached)
        self._figures[subscription] = figures
        return figures

    def consumer(self, subscription: str) -> Consumer | None:
        """The consumer that runs here, to ask it for more."""
        return self._consumers.get(subscription)

    def suspend(self, live: LiveSubscription, reason: str) -> None:
        """Suspend a subscription that runs here, for its endpoint is gone. Does not wait."""
        self._suspensions.ask(live, reason)

    def crash(self, subscription: str) -> None:
        """Make a running consumer fail (fault injection); it is restarted."""
        if self._supervisor is not None:
            self._supervisor.crash(subscription)

    async def _follow(self, supervisor: Supervisor, nursery: trio.Nursery) -> None:
        with self._metadata.watch() as watch:
            while await watch.wait():
                names: dict[str, None] = {}
                for change in watch.take_nowait():
                    if isinstance(change, SubscriptionChanged):
                        names[change.name] = None
                    elif isinstance(change, TopicChanged):
                        subscriptions = self._metadata.catalog.subscriptions_of(change.name)
                        names.update((str(live.name), None) for live in subscriptions)
                for name in names:
                    self._reconcile(name, supervisor, nursery)

    def _reconcile(self, name: str, supervisor: Supervisor, nursery: trio.Nursery) -> None:
        """Make what runs for one subscription what should run."""
        wanted, running = self._wanted(name), self._running.get(name)
        if name in self._moving:
            # Its stop is under way; what is wanted is looked at again after that.
            return
        if running is None:
            self._report_gone(name)
            self._rest(name, wanted)
            if wanted is not None:
                self._start(name, wanted, supervisor)
        elif wanted is None or not running.plan.is_same_consumer(wanted):
            self._moving.add(name)
            nursery.start_soon(self._stop, name, supervisor, nursery)
        elif wanted != running.plan:
            self._update(name, wanted, running, supervisor, nursery)

    def _rest(self, name: str, wanted: _Plan | None) -> None:
        """Only once its consumer has ended: until then that one commits."""
        live = self._metadata.catalog.subscriptions.get(name)
        topic = None if live is None else self._metadata.catalog.topics.get(str(live.name.topic))
        if live is None or topic is None or wanted is not None or name in self._elsewhere:
            self._at_rest.release(name)
        else:
            self._at_rest.keep(live, topic.log_topic, self._owned)

    def _wanted(self, name: str) -> _Plan | None:
        """What should run here; if nothing, the reason is in `_refusals`."""
        self._refusals.pop(name, None)
        self._elsewhere.discard(name)
        catalog = self._metadata.catalog
        live = catalog.subscriptions.get(name)
        topic = None if live is None else catalog.topics.get(str(live.name.topic))
        if live is None or topic is None:
            return None
        owner = owner_of(name, self._nodes)
        if owner != self._node:
            self._refusals[name] = f"runs on node {owner}"
            self._elsewhere.add(name)
        elif live.subscription.state is SubscriptionState.SUSPENDED:
            reason = live.suspension
            self._refusals[name] = f"suspended: {reason}" if reason else "suspended"
        elif refusal := self._factory.refusal(live, topic):
            self._refusals[name] = refusal
            _logger.warning("%s is not delivered: %s", name, refusal)
        else:
            return _Plan(live, topic)
        return None

    def _start(self, name: str, plan: _Plan, supervisor: Supervisor) -> None:
        def make() -> Consumer:
            # The latest plan, so that a restart never falls back to an old version.
            latest = self._running[name].plan
            consumer = self._factory.make(
                latest.live, latest.topic, self._owned, lambda: self._on_started(name, latest.live)
            )
            self._consumers[name] = consumer
            return consumer

        ref: Ref[LiveSubscription] = supervisor.start(
            name, make, restart=TENANT, mailbox_capacity=100
        )
        self._running[name] = _Running(plan, ref)
        self._resting.pop(name, None)

    def _update(
        self,
        name: str,
        wanted: _Plan,
        running: _Running,
        supervisor: Supervisor,
        nursery: trio.Nursery,
    ) -> None:
        before, now = running.plan.live, wanted.live
        # The stamp too: two changes that were seen as one may have suspended it and resumed it.
        is_changed = (now.stamp, now.subscription, now.seek) != (
            before.stamp,
            before.subscription,
            before.seek,
        )
        running.plan = wanted
        if not is_changed:
            return
        try:
            running.ref.tell(wanted.live)
        except (MailboxFull, MailboxClosed):
            # It backs off and has missed many versions; a new start takes the latest.
            self._moving.add(name)
            nursery.start_soon(self._stop, name, supervisor, nursery)

    async def _stop(self, name: str, supervisor: Supervisor, nursery: trio.Nursery) -> None:
        running = self._running[name]
        try:
            await supervisor.stop(name, grace_s=self._stop_grace_s)
        finally:
            self._moving.discard(name)
        self._forget(name)
        self._resting[name] = running.plan.live
        self._reconcile(name, supervisor, nursery)

    def _report_gone(self, name: str) -> None:
        """Tell of what ran here and exists no more."""
        if name in self._metadata.catalog.subscriptions:
            return
        self._figures.pop(name, None)
        live = self._resting.pop(name, None)
        if live is not None:
            self._on_gone(live)

    async def _stop_all(self, supervisor: Supervisor) -> None:
        async with trio.open_nursery() as nursery:
            for name in sorted(self._running):
                nursery.start_soon(self._stop_one, name, supervisor)

    async def _stop_one(self, name: str, supervisor: Supervisor) -> None:
        await supervisor.stop(name, grace_s=self._stop_grace_s)
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._running.pop(name, None)
        self._consumers.pop(name, None)
        self._crashes.pop(name, None)
        self._to_activate.pop(name, None)

    def _on_crash(self, crash: Crash) -> None:
        _logger.error("the consumer of %s failed: %r", crash.name, crash.error)
        if crash.name in self._running:
            delay = "" if crash.delay_s is None else f"; starts again in {crash.delay_s:.1f} s"
            self._crashes[crash.name] = f"its consumer failed: {crash.error!r}{delay}"
            self._consumers.pop(crash.name, None)

    # Activation: what turns PENDING into ACTIVE.

    def _on_started(self, name: str, live: LiveSubscription) -> None:
        self._crashes.pop(name, None)
        if self._metadata.dc not in live.active_in:
            self._to_activate[name] = live
            self._activation_wanted.set()

    async def _activate_regularly(self) -> None:
        """Write down that a consumer has started, for each subscription until it is written."""
        while True:
            await self._activation_wanted.wait()
            self._activation_wanted = trio.Event()
            for name, live in list(self._to_activate.items()):
                if not await self._activate(live):
                    self._activation_wanted.set()
                    await trio.sleep(_ACTIVATION_PAUSE_S)
                elif self._to_activate.get(name) is live:
                    del self._to_activate[name]

    async def _activate(self, live: LiveSubscription) -> bool:
        """True when it is written, or never need be."""
        dc = self._metadata.dc
        latest = self._metadata.catalog.subscriptions.get(str(live.name))
        if latest is None or latest.incarnation != live.incarnation or dc in latest.active_in:
            return True
        change = put(
            activation_key(live.name, dc),
            activation_body(live.incarnation),
            # The precondition keeps a late activation from outliving its subscription.
            Alive(subscription_key(live.name), live.incarnation),
        )
        try:
            await self._metadata.change(change)
        except HermesError as error:
            _logger.warning("%s: not shown as ACTIVE yet: %s", live.name, error.message)
            return False
        # Accepted, or the subscription is gone: in both cases there is nothing left to say.
        return True
