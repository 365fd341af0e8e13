"""Runs a consumer for each grant that this node has in the coordination log, and says why its other
subscriptions do not run.

Grants and metadata determine what should run. Consumers are started, changed or stopped
accordingly, and grants that are no longer used are released. A consumer never gives up: it backs
off up to five minutes without affecting others. When the node loses its lease, all consumers end at
once.
"""

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial

import trio
from msgspec.structs import replace

from hermes_actors.actors.mailbox import MailboxClosed, MailboxFull, Ref
from hermes_actors.actors.restart import TENANT
from hermes_actors.actors.supervisor import ActorCancelled, Crash, Supervisor, open_supervisor
from hermes_actors.balancer.consumer_plan import ConsumerPlan
from hermes_actors.balancer.membership import NodeLoads
from hermes_actors.balancer.outbox import Outbox
from hermes_actors.balancer.presence import Presence
from hermes_actors.balancer.releases import Releases
from hermes_actors.balancer.usage import NodeCpu, Usage
from hermes_actors.consumer.offsets.resting import Resting
from hermes_actors.consumer.push_consumer import ConsumerFactory, PushConsumer
from hermes_actors.coordination.commands import RateState
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.owned import Owned, RateShare
from hermes_actors.coordination.view import Coordination, CoordinationWatch
from hermes_actors.metadata.bodies import Suspension
from hermes_actors.metadata.catalog import (
    LiveSubscription,
    SubscriptionChanged,
    TopicChanged,
)
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.subscription import SubscriptionState
from hermes_actors.runtime.clock import Clock
from hermes_actors.status.lag import Reached
from hermes_actors.status.reasons import Code, Reason, because, suspended
from hermes_actors.status.record import SubscriptionFigures

_logger = logging.getLogger(__name__)

_RELEASE_TIMEOUT_S = 1.0
_IN_A_TURN = 25
"""How many consumers are started or stopped before other tasks run: a few milliseconds."""


class _Running:
    """A started consumer: its plan and its mailbox."""

    def __init__(self, plan: ConsumerPlan, ref: Ref[LiveSubscription]) -> None:
        self.plan = plan
        self.ref = ref


class _Work:
    """One run of the agent: the supervisor of its consumers, and the nursery of the tasks that stop
    them.
    """

    def __init__(self, supervisor: Supervisor, nursery: trio.Nursery) -> None:
        self.supervisor = supervisor
        self.nursery = nursery


class Agent:
    """Runs a consumer for each grant of this node.

    When stopped, it stops all consumers together, lets them commit, and releases their grants.
    """

    def __init__(
        self,
        metadata: Metadata,
        factory: ConsumerFactory,
        coordination: Coordination,
        presence: Presence,
        releases: Releases,
        *,
        clock: Clock,
        rng: random.Random,
        cpu: NodeCpu,
        stop_grace_s: float = 15.0,
        on_gone: Callable[[LiveSubscription], None] = lambda _live: None,
        resting: Resting,
    ) -> None:
        """`on_gone` is called when a subscription that ran here has been deleted. `resting` looks
        after subscriptions that this node owns but does not consume, such as suspended ones.
        """
        self._metadata = metadata
        self._factory = factory
        self._coordination = coordination
        self._presence = presence
        self._releases = releases
        self._clock = clock
        self._rng = rng
        self._cpu = cpu
        self._stop_grace_s = stop_grace_s
        self._on_gone = on_gone
        self._at_rest = resting
        self._usage = Usage(clock.monotonic_s(), cpu.used_s())
        self._supervisor: Supervisor | None = None
        # The lease under which grants are used now; None between two lives of the node.
        self._lease: Lease | None = None
        self._running: dict[str, _Running] = {}
        # What this node owns under the present lease; the object stays the same while the grant
        # lasts.
        self._owned: dict[str, Owned] = {}
        # What has run here and does not now: at most one entry for each existing subscription.
        self._stopped: dict[str, LiveSubscription] = {}
        self._consumers: dict[str, PushConsumer] = {}
        # Why owned subscriptions do not run.
        self._refusals: dict[str, Reason] = {}
        # The last figures of each owned subscription, and how far it was; both outlive consumers.
        self._figures: dict[str, SubscriptionFigures] = {}
        self._reached: dict[str, Reached] = {}
        self._crashes: dict[str, Reason] = {}
        self._moving: set[str] = set()
        self._moved = trio.Event()
        self._outbox = Outbox(metadata)

    async def run(self, stop: trio.Event) -> None:
        """Run consumers until asked to stop; then stop all of them together."""
        async with open_supervisor(self._rng, self._on_crash) as supervisor:
            with ExitStack() as life:
                # After a crash, queries find no consumers until the agent is created again.
                life.callback(self._forget_all)
                self._supervisor = supervisor
                watch = life.enter_context(self._coordination.watch(self._divide))
                async with trio.open_nursery() as nursery:
                    work = _Work(supervisor, nursery)
                    nursery.start_soon(self._follow_metadata, work)
                    nursery.start_soon(self._follow_grants, watch, work)
                    nursery.start_soon(self._live, work)
                    nursery.start_soon(self._outbox.run)
                    await stop.wait()
                    lease = self._lease
                    if lease is not None:
                        life.enter_context(self._presence.using(lease))
                    nursery.cancel_scope.cancel()
                await self._stop_all(supervisor, lease)

    # Queries. None of them waits.

    def subscriptions(self) -> list[str]:
        """The full names of the subscriptions that this node owns, running or not, sorted."""
        return sorted({*self._running, *self._refusals})

    def has_first(self, subscription: str) -> bool:
        """True if this node owns the partitions with the tasks that are done once per
        datacentre.
        """
        owned = self._owned.get(subscription)
        return owned is not None and owned.is_first

    def figures(self, subscription: str) -> SubscriptionFigures | None:
        """Return the figures for the status record; None if this node does not own the
        subscription.
        """
        refusal = self._refusals.get(subscription)
        if subscription not in self._running and refusal is None:
            self._forget_figures(subscription)
            return None
        stop = refusal or self._crashes.get(subscription)
        consumer = self._consumers.get(subscription)
        if consumer is not None:
            figures = consumer.figures()
        else:
            stop = stop or because(Code.STARTING)
            figures = replace(
                self._figures.get(subscription, SubscriptionFigures()),
                inflight=0,
                waiting_retries=0,
                level="",
                rate_now=0.0,
            )
        if stop is not None:
            figures = replace(figures, reasons=(stop,))
        self._figures[subscription] = figures
        return figures

    def reached(self, subscription: str) -> Reached:
        """Return how far the subscription is here; while its consumer starts, how far it was."""
        if subscription not in self._running:
            return self._at_rest.reached(subscription)
        consumer = self._consumers.get(subscription)
        if consumer is not None and (found := consumer.reached()).settled:
            self._reached[subscription] = found
        return self._reached.get(subscription, Reached())

    def unplanned(self, subscription: str) -> int | None:
        """Return from which partition on no plan gives them to anybody; None where another node
        tells of these.
        """
        targets = self._coordination.state.targets_of(subscription)
        if not self.has_first(subscription):
            return None
        return max((each for target in targets for each in target.partitions), default=-1) + 1

    def consumer(self, subscription: str) -> PushConsumer | None:
        """Return the consumer that runs here; None if there is none."""
        return self._consumers.get(subscription)

    def suspend(self, live: LiveSubscription, reason: str) -> None:
        """Suspend a subscription that runs here, because its endpoint is gone. Does not wait."""
        self._outbox.suspend(live, Suspension(self._clock.now_ms(), reason=reason))

    def crash(self, subscription: str) -> None:
        """Make a running consumer fail (fault injection); it is restarted."""
        if self._supervisor is not None:
            self._supervisor.crash(subscription)

    def loads(self) -> NodeLoads:
        """Return the load of the node and of each of its tasks since the last call."""
        spent = {name: consumer.spent() for name, consumer in self._consumers.items()}
        cpu, now_s = self._cpu, self._clock.monotonic_s()
        return self._usage.loads(spent, now_s, cpu.used_s(), cpu.available(now_s))

    # Following metadata and grants.

    async def _follow_metadata(self, work: _Work) -> None:
        with self._metadata.watch() as watch:
            while await watch.wait():
                names: dict[str, None] = {}
                for change in watch.take_nowait():
                    if isinstance(change, SubscriptionChanged):
                        names[change.name] = None
                    elif isinstance(change, TopicChanged):
                        subscriptions = self._metadata.catalog.subscriptions_of(change.name)
                        names.update((str(live.name), None) for live in subscriptions)
                await self._reconcile_all(names, work)

    async def _follow_grants(self, watch: CoordinationWatch, work: _Work) -> None:
        while await watch.wait():
            await self._reconcile_all(watch.take_nowait().subscriptions, work)

    def _divide(self, names: Sequence[str]) -> None:
        """Apply the new rate shares of owned subscriptions at once: when the lease reopens, others
        may already be using what this node has to give up.
        """
        for name in names:
            owned, lease = self._owned.get(name), self._lease
            if owned is not None and lease is not None:
                owned.share.change(self._coordination.state.share_of(name, lease.boot))

    async def _live(self, work: _Work) -> None:
        """Use the grants of one life of the node after another."""
        while True:
            lease = await self._presence.wait_life()
            with self._presence.using(lease):
                self._lease = lease
                grants = list(self._coordination.state.grants_of(lease.boot))
                await self._reconcile_all(grants, work)
                await lease.wait_lost()
                self._lease = None
                await self._abandon_all(work)

    async def _abandon_all(self, work: _Work) -> None:
        """End all consumers at once, without commits and releases: other nodes own everything by
        now.
        """
        for name in list({**self._running, **self._owned}):
            self._reconcile(name, work)
        async with trio.open_nursery() as nursery:
            for name in list(self._running):
                nursery.start_soon(partial(work.supervisor.stop, name, grace_s=0.0))
        while self._running or self._moving:
            await self._moved.wait()

    async def _reconcile_all(self, names: Iterable[str], work: _Work) -> None:
        """Reconcile these subscriptions, with pauses in which other tasks run."""
        for count, name in enumerate(names, 1):
            self._reconcile(name, work)
            if count % _IN_A_TURN == 0:
                await trio.lowlevel.checkpoint()

    def _reconcile(self, name: str, work: _Work) -> None:
        """Make one subscription run as it should."""
        if name in self._moving:
            # It is being stopped, and is reconciled again after that.
            return
        wanted, running = self._wanted(name), self._running.get(name)
        if running is None:
            self._report_gone(name)
            self._rest(name, wanted)
            if wanted is not None:
                self._start(name, wanted, work.supervisor)
            else:
                self._release(name, None)
        elif wanted is None or not running.plan.is_same_consumer(wanted):
            self._moving.add(name)
            work.nursery.start_soon(self._stop, name, work)
        elif wanted != running.plan:
            self._update(name, wanted, running, work)

    def _own(self, name: str) -> Owned | None:
        """Return this node's grant with its rate share; None if it has no usable grant."""
        lease, state = self._lease, self._coordination.state
        grant = None if lease is None else state.grants_of(lease.boot).get(name)
        if (
            lease is None
            or grant is None
            or lease.is_lost
            or self._releases.is_said(lease, name, grant.epoch)
        ):
            self._owned.pop(name, None)
            return None
        owned, share = self._owned.get(name), state.share_of(name, lease.boot)
        if owned is None or (owned.epoch, owned.lease) != (grant.epoch, lease):
            owned = Owned(
                grant.partitions,
                grant.epoch,
                lease,
                RateShare(share),
                state.rate_of(name),
            )
            self._owned[name] = owned
        owned.share.change(share)
        return owned

    def _must_release(self, name: str) -> bool:
        lease = self._lease
        return lease is not None and self._coordination.state.must_release(lease.boot, name)

    def _wanted(self, name: str) -> ConsumerPlan | None:
        """Return the plan for the consumer that should run here; None if none should, and
        `_refusals` may say why.
        """
        self._refusals.pop(name, None)
        catalog = self._metadata.catalog
        live = catalog.subscriptions.get(name)
        topic = None if live is None else catalog.topics.get(str(live.name.topic))
        owned = self._own(name)
        if owned is None or self._must_release(name):
            return None
        if live is None or topic is None:
            return None
        if live.subscription.state is SubscriptionState.SUSPENDED:
            self._refusals[name] = suspended(live.suspension)
        elif refusal := self._factory.refusal(live, topic):
            self._refusals[name] = because(Code.NOT_CONSUMABLE, detail=refusal)
            _logger.warning("%s is not delivered: %s", name, refusal)
        else:
            return ConsumerPlan(live, topic, owned)
        return None

    def _rest(self, name: str, wanted: ConsumerPlan | None) -> None:
        """Let `Resting` look after an owned subscription that is not consumed, once its consumer
        has ended.
        """
        live = self._metadata.catalog.subscriptions.get(name)
        topic = None if live is None else self._metadata.catalog.topics.get(str(live.name.topic))
        owned = self._owned.get(name)
        if (
            live is None
            or topic is None
            or owned is None
            or wanted is not None
            or self._must_release(name)
        ):
            self._at_rest.release(name)
        else:
            self._at_rest.keep(live, topic.log_topic, owned)

    # Starting, changing and stopping one consumer.

    def _start(self, name: str, plan: ConsumerPlan, supervisor: Supervisor) -> None:
        def make() -> PushConsumer:
            # The latest plan, so that a restart never uses an old version.
            latest = self._running[name].plan
            consumer = self._factory.make(
                latest.live, latest.topic, latest.owned, lambda: self._on_started(name, latest.live)
            )
            self._consumers[name] = consumer
            return consumer

        ref: Ref[LiveSubscription] = supervisor.start(
            name, make, restart=TENANT, mailbox_capacity=100
        )
        self._running[name] = _Running(plan, ref)
        self._stopped.pop(name, None)

    def _on_started(self, name: str, live: LiveSubscription) -> None:
        self._crashes.pop(name, None)
        self._outbox.activate(live)

    def _update(self, name: str, wanted: ConsumerPlan, running: _Running, work: _Work) -> None:
        before, now = running.plan.live, wanted.live
        # Compare stamps too: two changes seen as one may have suspended and resumed it.
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
            # It backs off and has missed many versions; a new start uses the latest.
            self._moving.add(name)
            work.nursery.start_soon(self._stop, name, work)

    async def _stop(self, name: str, work: _Work) -> None:
        running, consumer = self._running[name], self._consumers.get(name)
        lease = running.plan.owned.lease
        is_lost = self._lease is not lease
        if consumer is not None and self._must_release(name):
            consumer.hand_over()
        try:
            await work.supervisor.stop(name, grace_s=0.0 if is_lost else self._stop_grace_s)
        finally:
            self._moving.discard(name)
        self._forget(name)
        self._stopped[name] = running.plan.live
        if consumer is not None:
            self._release(name, consumer.known())
        self._reconcile(name, work)
        self._notify_moved()

    def _release(self, name: str, known: RateState | None) -> None:
        """Release the grant if another node is to have its partitions; nothing runs under it any
        more.
        """
        lease, owned = self._lease, self._owned.get(name)
        if lease is not None and owned is not None and self._must_release(name):
            self._at_rest.release(name)
            self._releases.say(lease, name, owned.epoch, known)
            del self._owned[name]

    def _report_gone(self, name: str) -> None:
        """Report a subscription that ran here and has been deleted."""
        if name in self._metadata.catalog.subscriptions:
            return
        self._forget_figures(name)
        live = self._stopped.pop(name, None)
        if live is not None:
            self._on_gone(live)

    # Stopping all.

    async def _stop_all(self, supervisor: Supervisor, lease: Lease | None) -> None:
        if lease is not None and self._running:
            await self._releases.stop(lease)
        async with trio.open_nursery() as nursery:
            for name in sorted(self._running):
                nursery.start_soon(self._stop_one, name, supervisor, lease)
        with trio.move_on_after(_RELEASE_TIMEOUT_S):
            await self._releases.flush()

    async def _stop_one(self, name: str, supervisor: Supervisor, lease: Lease | None) -> None:
        running, consumer = self._running[name], self._consumers.get(name)
        await supervisor.stop(name, grace_s=self._stop_grace_s)
        self._forget(name)
        if lease is not None and consumer is not None and not lease.is_lost:
            # The release passes this owner's rate on to the next ones. Without it, the node's
            # leaving would free the grant as well.
            self._releases.say(lease, name, running.plan.owned.epoch, consumer.known())

    def _forget_all(self) -> None:
        for name in list(self._running):
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._running.pop(name, None)
        self._consumers.pop(name, None)
        self._crashes.pop(name, None)

    def _forget_figures(self, name: str) -> None:
        self._figures.pop(name, None)
        self._reached.pop(name, None)

    def _notify_moved(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    def _on_crash(self, crash: Crash) -> None:
        if crash.delay_s is None and isinstance(crash.error, ActorCancelled):
            # A stop without a grace period, for example after a lost lease, is no failure.
            _logger.info("the consumer of %s was stopped with pushes in flight", crash.name)
            return
        _logger.error("the consumer of %s failed: %r", crash.name, crash.error)
        if crash.name in self._running:
            delay = "" if crash.delay_s is None else f"; starts again in {crash.delay_s:.1f} s"
            self._crashes[crash.name] = because(Code.CRASHED, detail=f"{crash.error!r}{delay}")
            self._consumers.pop(crash.name, None)
