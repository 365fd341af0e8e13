"""Runs one seed's history of a whole cluster in one trio run, watched by its checkers.

A run has five parts: start, set up (topics and subscriptions, through the product's own
administration), load under faults, heal, and settle within a bound of virtual time.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count

import trio
from trio.testing import MockClock

from hermes_actors.consumer.offsets.progress import ASSERT_PAUSES_S
from hermes_actors.management.access.roles import Anonymous
from hermes_chaos.sim.checkers.checks import Checks
from hermes_chaos.sim.cluster import Cluster
from hermes_chaos.sim.determinism import rng_of
from hermes_chaos.sim.environment import product_log
from hermes_chaos.sim.faults.nemesis import Nemesis
from hermes_chaos.sim.faults.strikes import Fault, draw_plan
from hermes_chaos.sim.history.events import (
    Allowed,
    Attempted,
    Delivery,
    Event,
    Healed,
    History,
    Published,
    Rested,
)
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.settings import draw_config, spooled_topics
from hermes_chaos.sim.settling import are_members, find_unsettled, open_letters
from hermes_chaos.sim.spin import SpinGuard
from hermes_chaos.sim.workload.operator import Operator
from hermes_chaos.sim.workload.passing import Passing
from hermes_chaos.sim.workload.plans import (
    ALL_SUBSCRIPTIONS,
    ALL_TOPICS,
    GROUP,
    PULLED_SUBSCRIPTIONS,
    SUBSCRIPTIONS,
)
from hermes_chaos.sim.workload.publisher import Publisher
from hermes_chaos.sim.workload.puller import PullClient
from hermes_chaos.sim.workload.subject import Subject

_SET_UP_MAX_S = 60.0
_POLL_S = 0.1
_SHIELDS_S = 60.0
_LAST_LOOK_S = 1.5 * sum(ASSERT_PAUSES_S) + 2.0
_RATED = tuple(plan.full_name for plan in SUBSCRIPTIONS)


@dataclass(frozen=True)
class Shape:
    """The size of a run, in virtual time. `bursts`: after which faults, how long, how many.
    `faults`: the kinds to draw from. `pull_clients`: for each pull subscription in each
    datacentre; without them there are no such subscriptions. `rest_rounds`: rounds of the
    balancer at the end, twice.
    """

    dcs: tuple[str, ...] = ("dc1", "dc2")
    nodes_per_dc: int = 2
    publishers_per_dc: int = 2
    messages_per_publisher: int = 60
    phases_in_turn: int = 5
    messages_per_phase: int = 8
    repeated_per_dc: int = 10
    bursts: tuple[tuple[Fault, float, int], ...] = (
        (Fault.DC_LOST, 0.9, 40),
        (Fault.SUBSCRIBER_DEAD, 0.1, 80),
    )
    burst_pause_max_s: float = 0.04
    afterwards_s: float = 3.5
    load_s: float = 6.0
    fault_max_s: float = 2.0
    strikes: int = 14
    faults: frozenset[Fault] = frozenset(Fault)
    acts: int = 5
    settle_max_s: float = 90.0
    pull_clients: int = 0
    rest_rounds: int = 3


class World:
    """The cluster of one seed, its history and its checkers. `run` it once.

    With `is_hunt` it ends soon after a checker has found something.
    """

    def __init__(self, seed: int, shape: Shape, trace: Trace, *, is_hunt: bool = False) -> None:
        self._seed = seed
        self._is_hunt = is_hunt
        self._shape = shape
        self._trace = trace
        self._pulled = PULLED_SUBSCRIPTIONS if shape.pull_clients else ()
        self._pull_clients: list[PullClient] = []
        self._config = draw_config(rng_of(seed, "configuration"))
        self.history = History()
        self.counts: Counter[str] = Counter()
        self.ended_s = 0.0
        self._parts: dict[tuple[str, str], dict[str, float]] = {}
        self.cluster = Cluster(
            seed, shape.dcs, shape.nodes_per_dc, self._config, self.history, trace
        )
        self.checks = Checks(
            Subject(
                {topic.name: topic.ack for topic in ALL_TOPICS},
                [
                    plan.audience(self._config.consumers)
                    for plan in (*ALL_SUBSCRIPTIONS, *self._pulled)
                ],
                falls_back=frozenset(topic.name for topic in ALL_TOPICS if topic.falls_back),
                spooled=spooled_topics(self._config),
                dcs=shape.dcs,
            ),
            self._config,
            lambda node, message_id: self.cluster.disk(node).holds(message_id),
            self.cluster.end_of,
        )
        self.history.watchers += [self._count, self.checks.watch, self._watch_pushed_parts]

    async def run(self) -> None:
        """Run the seed's history to its end. Raises any unexpected exception of the production
        code.
        """
        with product_log.heard(
            lambda text: self._trace.remark("log", text), self.checks.failures.failed
        ):
            await self._run()

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:

            def on_spin(task: str) -> None:
                self.checks.settling.failed(f"time stands still while {task} and others spin")
                nursery.cancel_scope.cancel()
                # Shielded clean-up waits for time to pass, which a busy loop prevents.
                clock = trio.lowlevel.current_clock()
                assert isinstance(clock, MockClock), "a simulation has virtual time"
                clock.jump(_SHIELDS_S)

            trio.lowlevel.add_instrument(SpinGuard(on_spin))
            self.cluster.start(nursery, self.checks.failures)
            nursery.start_soon(self.cluster.go_on_at_the_end)
            with trio.move_on_after(_SET_UP_MAX_S) as limit:
                await self._set_up()
            if limit.cancelled_caught:
                self.checks.settling.failed(f"not set up within {_SET_UP_MAX_S:g} s")
            else:
                nursery.start_soon(self._watch_parts, nursery.cancel_scope)
                self._start_clients(nursery)
                await self._live_through_faults()
                await self._settle()
            for life in self.cluster.nodes.values():
                life.tell_counts(is_whole=True)
            self.ended_s = trio.current_time()
            nursery.cancel_scope.cancel()

    async def _set_up(self) -> None:
        """Create what the workload needs, and wait until every node and log has it."""
        for node in self.cluster.nodes.values():
            await node.wait_up()
        administration = next(iter(self.cluster.nodes.values())).administration
        caller = Anonymous()
        await administration.groups.create(caller, {"groupName": GROUP})
        for topic in ALL_TOPICS:
            await administration.topics.create(caller, topic.wire())
        for plan in (*SUBSCRIPTIONS, *self._pulled):
            await administration.subscriptions.create(caller, plan.topic, plan.wire())
        while not await self._is_set_up():  # noqa: ASYNC110 -- looks at logs, which tell no event
            await trio.sleep(_POLL_S)
        self._trace.note("world", "set up")

    async def _is_set_up(self) -> bool:
        log_topics = self.cluster.log_topics
        for node in self.cluster.nodes.values():
            catalog = node.catalog
            if len(catalog.topics) < len(ALL_TOPICS):
                return False
            if len(catalog.subscriptions) < len(SUBSCRIPTIONS) + len(self._pulled):
                return False
            log_topics.update((live.log_topic, name) for name, live in catalog.topics.items())
        for log in self.cluster.logs_by_dc.values():
            topics = await log.topics.names()
            if not set(log_topics) <= set(topics):
                return False
            for plan in (*SUBSCRIPTIONS, *self._pulled):
                # A consumer that has committed knows its start.
                if not await log.committed(plan.group, plan.topic):
                    return False
        return True

    async def _live_through_faults(self) -> None:
        shape, seed = self._shape, self._seed
        serials = count(1)
        begin_s = trio.current_time() + 0.1
        end_s = begin_s + shape.load_s
        nemesis = Nemesis(self.cluster, self.history, self._trace)
        plan = draw_plan(
            rng_of(seed, "nemesis"),
            strikes=shape.strikes,
            faults=shape.faults,
            lasts_max_s=shape.fault_max_s,
            begin_s=begin_s,
            end_s=end_s,
        )
        self._operator = operator = Operator(
            self.cluster.administrations,
            self.checks,
            rng_of(seed, "operator"),
            self.history,
            self._trace,
        )
        dice = rng_of(seed, "passing")
        cluster = self.cluster
        passing = Passing(
            cluster.administrations, cluster, shape.dcs, dice, self.history, self._trace
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nemesis.run, plan)
            nursery.start_soon(partial(operator.run, shape.acts, begin_s=begin_s, end_s=end_s))
            versions = rng_of(seed, "versions")
            nursery.start_soon(partial(operator.evolve, versions, begin_s=begin_s, end_s=end_s))
            nursery.start_soon(passing.run, begin_s, end_s)
            for dc in shape.dcs:
                for number in range(shape.publishers_per_dc):
                    nursery.start_soon(
                        partial(
                            self._publisher(dc, str(number), serials).run,
                            shape.messages_per_publisher,
                            begin_s=begin_s,
                            end_s=end_s,
                        )
                    )
                nursery.start_soon(
                    partial(
                        self._publisher(dc, "in turn", serials).run_in_turn,
                        shape.phases_in_turn,
                        shape.messages_per_phase,
                        begin_s=begin_s,
                        end_s=end_s,
                    )
                )
                nursery.start_soon(
                    partial(
                        self._publisher(dc, "in bursts", serials).run_in_bursts,
                        [
                            (strike.at_s + after_s, messages)
                            for strike in plan
                            for fault, after_s, messages in shape.bursts
                            if strike.fault is fault
                        ],
                        shape.burst_pause_max_s,
                    )
                )
                nursery.start_soon(
                    partial(
                        self._publisher(dc, "repeating", serials).run_repeating,
                        shape.repeated_per_dc,
                        begin_s=begin_s,
                        end_s=end_s,
                    )
                )
        nemesis.heal()
        for client in self._pull_clients:
            client.heal()
        healed_s = trio.current_time()
        self.history.tell(Healed(healed_s))
        async with trio.open_nursery() as nursery:
            for dc in shape.dcs:
                afterwards = self._publisher(dc, "afterwards", serials)
                nursery.start_soon(afterwards.run_steadily, healed_s + shape.afterwards_s)
            with trio.move_on_after(shape.settle_max_s):
                await operator.tidy()

    def _start_clients(self, nursery: trio.Nursery) -> None:
        for plan in self._pulled:
            for dc in self._shape.dcs:
                for number in range(self._shape.pull_clients):
                    client = PullClient(
                        plan,
                        dc,
                        plan.policy["ackDeadlineSeconds"],
                        rng_of(self._seed, f"client {plan.name} {dc} {number}"),
                        self.cluster,
                        self.history,
                        self._trace,
                    )
                    self._pull_clients.append(client)
                    nursery.start_soon(client.run)

    def _publisher(self, dc: str, name: str, serials: Iterator[int]) -> Publisher:
        return Publisher(
            dc,
            name,
            lambda: next(serials),
            rng_of(self._seed, f"publisher {dc} {name}"),
            self.cluster,
            self.checks.payloads.begin,
            self.history,
            self._trace,
        )

    async def _settle(self) -> None:
        """Wait until nothing is owed, nothing lags, and all nodes agree."""
        unsettled = ""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._operator.keep_active)
            with trio.move_on_after(self._shape.settle_max_s) as limit:
                while unsettled := await find_unsettled(  # noqa: ASYNC110 -- as above
                    list(self.cluster.nodes.values()),
                    self.cluster.logs_by_dc,
                    self.checks.delivered,
                    (*ALL_SUBSCRIPTIONS, *self._pulled),
                ):
                    await trio.sleep(_POLL_S)
            nursery.cancel_scope.cancel()
        if not limit.cancelled_caught:
            await self._rest()
        self.checks.delivered.keeps(await open_letters(self.cluster.logs_by_dc.values()))
        if limit.cancelled_caught:
            self.checks.settling.failed(
                f"{self._shape.settle_max_s:g} s after the faults were healed: {unsettled}"
            )
        else:
            self.checks.settling.settled(len(ALL_SUBSCRIPTIONS) + len(self._pulled))
            self._trace.note("world", "settled")

    async def _watch_parts(self, run: trio.CancelScope) -> None:
        """Report at intervals the rate shares that owners use, and the nodes' folds. End a hunt
        here: another task would change the history.
        """
        while True:
            await trio.sleep(_POLL_S)
            if self._is_hunt and any(checker.violations for checker in self.checks.all):
                run.cancel()
            for dc in self._shape.dcs:
                for name in _RATED:
                    self._tell_parts(dc, name)
            for node in self.cluster.nodes.values():
                for fold in node.folds():
                    self.history.tell(fold)

    def _watch_pushed_parts(self, event: Event) -> None:
        # Checked at each push, because one owner may exceed its share only for a moment.
        if isinstance(event, Attempted) and event.subscription in _RATED:
            self._tell_parts(event.node.partition("-")[0], event.subscription)

    def _tell_parts(self, dc: str, subscription: str) -> None:
        nodes = [node for node in self.cluster.nodes.values() if node.dc == dc]
        found = [(node.life_name, node.allowed(subscription)) for node in nodes]
        parts = {life: part for life, part in found if part is not None}
        # Checked at each push but reported only if changed, because each event goes to all
        # checkers.
        if len(parts) > 1 and self._parts.get((dc, subscription)) != parts:
            self._parts[dc, subscription] = parts
            self.history.tell(Allowed(dc, subscription, parts, trio.current_time()))

    async def _rest(self) -> None:
        """Once all nodes take part, leave them alone for some rounds of the balancer, twice."""
        with trio.move_on_after(self._shape.settle_max_s):
            nodes, ledgers = self.cluster.nodes, self.checks.ledgers
            while not are_members(nodes, ledgers):  # noqa: ASYNC110 -- as above
                await trio.sleep(_POLL_S)
        rounds_s = self._shape.rest_rounds * self._config.consumers.balancer.interval_ms / 1_000
        await trio.sleep(rounds_s)
        firsts = {node.dc: node for node in reversed(self.cluster.nodes.values())}
        weights = {dc: node.weights() for dc, node in firsts.items()}
        self.history.tell(Rested(trio.current_time(), weights))
        await trio.sleep(rounds_s)
        # An owner checks its commits for the last time long after it has become idle.
        with trio.move_on_after(_LAST_LOOK_S):
            while self.checks.late_commits.unmended():  # noqa: ASYNC110 -- as above
                await trio.sleep(_POLL_S)

    def _count(self, event: Event) -> None:
        match event:
            case Published():
                self.counts["published"] += 1
                self.counts["acknowledged"] += event.is_acknowledged
            case Delivery():
                self.counts["deliveries"] += event.is_processed
            case _:
                pass
