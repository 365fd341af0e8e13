"""A whole cluster in one trio run: two DCs, their logs and nodes, publishers, subscribers, faults.

A run has five parts: start, set up (topics and subscriptions, through the product's own
administration), load under faults, heal, and settle within a bound of virtual time.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count

import trio
from trio.testing import MockClock

from hermes_actors.errors import HermesError
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.management.administration import Administration
from hermes_chaos.sim.checkers.checker import Subject
from hermes_chaos.sim.checkers.checks import Checks
from hermes_chaos.sim.determinism import rng_of
from hermes_chaos.sim.environment import product_log
from hermes_chaos.sim.environment.coordination_way import CoordinationWay
from hermes_chaos.sim.environment.disk import SimulatedDisk
from hermes_chaos.sim.environment.http_in import Response
from hermes_chaos.sim.environment.subscribers import Endpoint
from hermes_chaos.sim.environment.watched_log import WatchedLog, watched_log
from hermes_chaos.sim.faults.nemesis import Nemesis
from hermes_chaos.sim.faults.strikes import Fault, draw_plan
from hermes_chaos.sim.history.events import (
    Allowed,
    Delivery,
    Event,
    Healed,
    History,
    Published,
    Rested,
    Troubled,
    coordination_of,
    disk_of,
)
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.node_life import NodeLife
from hermes_chaos.sim.settings import draw_config, spooled_topics
from hermes_chaos.sim.settling import are_members, find_unsettled, open_letters
from hermes_chaos.sim.spin import SpinGuard
from hermes_chaos.sim.workload.operator import Operator
from hermes_chaos.sim.workload.passing import HOST, Passing, passing_endpoint
from hermes_chaos.sim.workload.publisher import (
    ALL_SUBSCRIPTIONS,
    ALL_TOPICS,
    FALLBACK_TOPICS,
    GROUP,
    SUBSCRIPTIONS,
    Publisher,
)

_SET_UP_MAX_S = 60.0
_POLL_S = 0.1
_SPOOL_WRITER = "spool writer"
_SHIELDS_S = 60.0
_ROUNDS = 3


@dataclass(frozen=True)
class Shape:
    """How large a run is. Times are virtual. `bursts`: after which faults, how long, how many."""

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
    afterwards_s: float = 3.5
    load_s: float = 6.0
    fault_max_s: float = 2.0
    strikes: int = 14
    acts: int = 5
    settle_max_s: float = 90.0


class World:
    """The cluster of one seed, its history and its checkers. `run` it once."""

    def __init__(self, seed: int, shape: Shape, trace: Trace) -> None:
        self._seed = seed
        self._shape = shape
        self._trace = trace
        self._config = draw_config(rng_of(seed, "configuration"))
        self.history = History()
        self.counts: Counter[str] = Counter()
        self.ended_s = 0.0
        self._log_topics: dict[str, str] = {}
        self._logs = {
            dc: watched_log(dc, seed, self._log_topics, self.history, trace) for dc in shape.dcs
        }
        self._endpoints = {
            host: Endpoint(
                plan.full_name,
                host,
                plan.request_timeout_s,
                plan.fault_rate,
                rng_of(seed, f"subscriber {host}"),
                self.history,
                trace,
            )
            for plan in ALL_SUBSCRIPTIONS
            for host in plan.hosts
        }
        self._passer_by = passing_endpoint(rng_of(seed, "passer-by"), trace)
        self._nodes: dict[str, NodeLife] = {}
        self._disks = {
            f"{dc}-n{number}": SimulatedDisk(rng_of(seed, f"spool {dc}-n{number}"))
            for dc in shape.dcs
            for number in range(1, shape.nodes_per_dc + 1)
        }
        self._balancing = rng_of(seed, "load balancer")
        self.checks = Checks(
            Subject(
                {topic.name: topic.ack for topic in ALL_TOPICS},
                [plan.audience(self._config.consumers) for plan in ALL_SUBSCRIPTIONS],
                falls_back=frozenset(topic.name for topic in ALL_TOPICS if topic.falls_back),
                spooled=spooled_topics(self._config),
                dcs=shape.dcs,
            ),
            self._config,
            lambda node, message_id: self._disks[node].holds(message_id),
        )
        self.history.watchers += [self._count, self.checks.watch]

    # What the nemesis sees.

    @property
    def logs(self) -> Sequence[WatchedLog]:
        """Each DC's log."""
        return list(self._logs.values())

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """All subscribers."""
        return list(self._endpoints.values())

    @property
    def busy_endpoints(self) -> Sequence[Endpoint]:
        """Subscribers of topics that get bursts of messages."""
        return [
            self._endpoints[host]
            for plan in SUBSCRIPTIONS
            if plan.topic in {topic.name for topic in FALLBACK_TOPICS}
            for host in plan.hosts
        ]

    @property
    def node_names(self) -> Sequence[str]:
        """All nodes, up or not."""
        return list(self._nodes)

    def kill(self, node: str, down_s: float) -> bool:
        """Kill a node; another of that name starts after `down_s`. False: it is down already."""
        return self._nodes[node].kill(down_s)

    def stop(self, node: str, down_s: float) -> bool:
        """Stop a node in good order; another starts `down_s` later. False: it is down already."""
        return self._nodes[node].stop(down_s)

    def pause(self, node: str) -> bool:
        """Stop the node's process as SIGSTOP does. False: it is down or stopped already."""
        return self._nodes[node].pause()

    def go_on(self, node: str) -> None:
        """As SIGCONT; nothing for one that is not stopped."""
        self._nodes[node].go_on()

    def way(self, node: str) -> CoordinationWay:
        """The node's way to the coordination log."""
        return self._nodes[node].way

    def crash_actor(self, node: str, where: float) -> str | None:
        """Crash one running actor of the node; its name, or None when there is none."""
        life = self._nodes[node]
        actor = life.crash_actor(where)
        if actor is not None:
            self.history.tell(
                Troubled(
                    coordination_of(life.dc),
                    Fault.ACTOR_CRASH.value,
                    trio.current_time(),
                    life.backoff_max_s(actor),
                )
            )
        kind, _, log_topic = (actor or "").partition(" ")
        if actor == _SPOOL_WRITER:
            self.history.tell(
                Troubled(
                    disk_of(node),
                    Fault.ACTOR_CRASH.value,
                    trio.current_time(),
                    life.backoff_max_s(actor),
                )
            )
        topic = self._log_topics.get(log_topic.partition(" ")[0])
        if kind == "producer" and topic is not None:
            self.history.tell(
                Troubled(
                    node,
                    Fault.ACTOR_CRASH.value,
                    trio.current_time(),
                    life.backoff_max_s(actor or ""),
                    topic,
                )
            )
        return actor

    def spooled(self, node: str) -> int:
        """How many messages wait in the spool of the node; 0 while it is down."""
        return self._nodes[node].spooled

    def disk(self, node: str) -> SimulatedDisk:
        """The disk of the node's spool; it outlives the node."""
        return self._disks[node]

    async def set_ready(self, dc: str, is_ready: bool) -> bool:
        """Tell all datacentres whether this one may be fallen back to. False: it failed."""
        for administration in self._administrations():
            if administration is not None:
                with suppress(HermesError):
                    await administration.readiness.set(Anonymous(), dc, {"isReady": is_ready})
                    return True
        return False

    def skew(self, node: str, skew_ms: int) -> None:
        """Set how far the node's wall clock is off."""
        self._nodes[node].clock.skew_ms = skew_ms

    # What publishers see.

    def choose(self, dc: str) -> str:
        """The name of a node of the DC that is up; "" when none is."""
        up = self._up(dc)
        return self._balancing.choice(up).name if up else ""

    async def publish(
        self, dc: str, topic: str, headers: Sequence[tuple[str, str]], body: bytes, prefers: str
    ) -> tuple[str, str, Response | None]:
        """Post to a node of the DC that is up: its name, its life, its answer if there was one.

        `prefers` is the node that a kept-alive connection leads to, "" for none.
        """
        up = self._up(dc)
        if not up:
            return dc, "", None
        node = next((node for node in up if node.name == prefers), None)
        if node is None:
            node = self._balancing.choice(up)
        life = node.life_name
        return node.name, life, await node.post(f"/topics/{topic}", headers, body)

    def _up(self, dc: str) -> list[NodeLife]:
        return [node for node in self._nodes.values() if node.dc == dc and node.is_serving]

    # The run.

    async def run(self) -> None:
        """Live the seed's history to its end. Raises what the production code should not."""
        with product_log.heard(
            lambda text: self._trace.remark("log", text), self.checks.failures.failed
        ):
            await self._run()

    async def _run(self) -> None:
        shape, seed = self._shape, self._seed
        async with trio.open_nursery() as nursery:

            def on_spin(task: str) -> None:
                self.checks.settling.failed(f"time stands still while {task} and others spin")
                nursery.cancel_scope.cancel()
                # What winds down in a shield waits for time to pass, which a spin never lets it.
                clock = trio.lowlevel.current_clock()
                assert isinstance(clock, MockClock), "a simulation has virtual time"
                clock.jump(_SHIELDS_S)

            trio.lowlevel.add_instrument(SpinGuard(on_spin))
            for dc in shape.dcs:
                names = [name for name in self._disks if name.startswith(f"{dc}-")]
                for name in names:
                    node = NodeLife(
                        name,
                        dc,
                        is_first=name == names[0],
                        cluster=self._config,
                        seed=seed,
                        disk=self._disks[name],
                        logs=self._logs,
                        log_topics=self._log_topics,
                        endpoints=self._endpoints | {HOST: self._passer_by},
                        nursery=nursery,
                        history=self.history,
                        trace=self._trace,
                        failures=self.checks.failures,
                    )
                    self._nodes[node.name] = node
                    nursery.start_soon(node.run)
            with trio.move_on_after(_SET_UP_MAX_S) as limit:
                await self._set_up()
            if limit.cancelled_caught:
                self.checks.settling.failed(f"not set up within {_SET_UP_MAX_S:g} s")
            else:
                nursery.start_soon(self._watch_parts)
                await self._live_through_faults()
                await self._settle()
            for life in self._nodes.values():
                life.tell_counts(is_whole=True)
            self.ended_s = trio.current_time()
            nursery.cancel_scope.cancel()

    async def _set_up(self) -> None:
        """Create what the workload needs, and wait until every node and log has it."""
        for node in self._nodes.values():
            await node.wait_up()
        administration = next(iter(self._nodes.values())).administration
        caller = Anonymous()
        await administration.groups.create(caller, {"groupName": GROUP})
        for topic in ALL_TOPICS:
            await administration.topics.create(caller, topic.wire())
        for plan in SUBSCRIPTIONS:
            await administration.subscriptions.create(caller, plan.topic, plan.wire())
        while not await self._is_set_up():  # noqa: ASYNC110 -- looks at logs, which tell no event
            await trio.sleep(_POLL_S)
        self._trace.note("world", "set up")

    async def _is_set_up(self) -> bool:
        for node in self._nodes.values():
            catalog = node.catalog
            if len(catalog.topics) < len(ALL_TOPICS) or len(catalog.subscriptions) < len(
                SUBSCRIPTIONS
            ):
                return False
            self._log_topics.update((live.log_topic, name) for name, live in catalog.topics.items())
        for log in self._logs.values():
            topics = await log.topics()
            if not set(self._log_topics) <= set(topics):
                return False
            for plan in SUBSCRIPTIONS:
                # A consumer that has committed knows where it started.
                if not await log.committed(plan.group, plan.topic):
                    return False
        return True

    async def _live_through_faults(self) -> None:
        shape, seed = self._shape, self._seed
        serials = count(1)
        begin_s = trio.current_time() + 0.1
        end_s = begin_s + shape.load_s
        nemesis = Nemesis(self, self.history, self._trace)
        plan = draw_plan(
            rng_of(seed, "nemesis"),
            strikes=shape.strikes,
            lasts_max_s=shape.fault_max_s,
            begin_s=begin_s,
            end_s=end_s,
        )
        self._operator = operator = Operator(
            self._administrations,
            lambda plan: self.checks.delivered.created(plan.full_name),
            lambda plan: self.checks.delivered.removing(plan.full_name),
            rng_of(seed, "operator"),
            self.history,
            self._trace,
        )
        dice = rng_of(seed, "passing")
        passing = Passing(self._administrations, self, shape.dcs, dice, self.history, self._trace)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nemesis.run, plan)
            nursery.start_soon(partial(operator.run, shape.acts, begin_s=begin_s, end_s=end_s))
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
        healed_s = trio.current_time()
        self.history.tell(Healed(healed_s))
        async with trio.open_nursery() as nursery:
            for dc in shape.dcs:
                afterwards = self._publisher(dc, "afterwards", serials)
                nursery.start_soon(afterwards.run_steadily, healed_s + shape.afterwards_s)
            with trio.move_on_after(shape.settle_max_s):
                await operator.tidy()

    def _publisher(self, dc: str, name: str, serials: Iterator[int]) -> Publisher:
        return Publisher(
            dc,
            name,
            lambda: next(serials),
            rng_of(self._seed, f"publisher {dc} {name}"),
            self,
            self.checks.payloads.begin,
            self.history,
            self._trace,
        )

    def _administrations(self) -> list[Administration | None]:
        nodes = [self._nodes[f"{dc}-n1"] for dc in self._shape.dcs]
        return [node.administration if node.is_serving else None for node in nodes]

    async def _settle(self) -> None:
        """Wait until nothing is owed, nothing lags, and all nodes agree."""
        unsettled = ""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._operator.keep_active)
            with trio.move_on_after(self._shape.settle_max_s) as limit:
                while unsettled := await find_unsettled(  # noqa: ASYNC110 -- as above
                    list(self._nodes.values()), self._logs, self.checks.delivered
                ):
                    await trio.sleep(_POLL_S)
            nursery.cancel_scope.cancel()
        if not limit.cancelled_caught:
            await self._rest()
        self.checks.delivered.keeps(await open_letters(self._logs.values()))
        if limit.cancelled_caught:
            self.checks.settling.failed(
                f"{self._shape.settle_max_s:g} s after the faults were healed: {unsettled}"
            )
        else:
            self.checks.settling.settled(len(ALL_SUBSCRIPTIONS))
            self._trace.note("world", "settled")

    async def _watch_parts(self) -> None:
        """Tell which parts of their rates the owners use, now and then."""
        while True:
            await trio.sleep(_POLL_S)
            for dc in self._shape.dcs:
                nodes = [node for node in self._nodes.values() if node.dc == dc]
                for plan in SUBSCRIPTIONS:
                    found = [(node.life_name, node.allowed(plan.full_name)) for node in nodes]
                    parts = {life: part for life, part in found if part is not None}
                    if len(parts) > 1:
                        self.history.tell(Allowed(dc, plan.full_name, parts, trio.current_time()))

    async def _rest(self) -> None:
        """Once all take part, leave them alone for some rounds of the balancer, and some more."""
        with trio.move_on_after(self._shape.settle_max_s):
            while not are_members(self._nodes, self.checks.ledgers):  # noqa: ASYNC110 -- as above
                await trio.sleep(_POLL_S)
        interval_s = self._config.consumers.balancer.interval_ms / 1_000
        await trio.sleep(_ROUNDS * interval_s)
        self.history.tell(Rested(trio.current_time()))
        await trio.sleep(_ROUNDS * interval_s)

    def _count(self, event: Event) -> None:
        match event:
            case Published():
                self.counts["published"] += 1
                self.counts["acknowledged"] += event.is_acknowledged
            case Delivery():
                self.counts["deliveries"] += event.is_processed
            case _:
                pass
