"""One node and its lives: the production node is killed, restarted, and given requests."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import trio
from msgspec.structs import replace

from hermes_actors.actors.restart import TENANT
from hermes_actors.actors.supervisor import RestartIntensityExceeded
from hermes_actors.config import Config, Role
from hermes_actors.consumer.pulling.dispatch import PullDispatch
from hermes_actors.consumer.senders.http1.pool import Http1Sender, PoolLimits
from hermes_actors.consumer.senders.sender import Sender
from hermes_actors.coordination.weights import weight_of
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.administration import Administration
from hermes_actors.metadata.catalog import Catalog, LiveSubscription, SubscriptionChanged
from hermes_actors.metadata.view import Metadata
from hermes_actors.model.subscription import SubscriptionState
from hermes_actors.node import Node, NodeEnvironment, SenderOf, open_node
from hermes_actors.publisher.edges.publishing import PublishEdge
from hermes_actors.runtime.clock import seeded_ids
from hermes_actors.runtime.cpu import StillCpu
from hermes_actors.runtime.threads import NoThreads
from hermes_actors.runtime.workers import InlinePool
from hermes_chaos.sim import determinism
from hermes_chaos.sim.calls import Calls
from hermes_chaos.sim.checkers.checks import NothingFailsUnasked
from hermes_chaos.sim.determinism import rng_of
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.coordination_way import CoordinationWay
from hermes_chaos.sim.environment.disk import Mount, SimulatedDisk, open_store_on
from hermes_chaos.sim.environment.http_in import Exchange, Response, TrioHost
from hermes_chaos.sim.environment.mortal import MortalLog
from hermes_chaos.sim.environment.network import SimulatedNet
from hermes_chaos.sim.environment.subscribers import Endpoint
from hermes_chaos.sim.environment.watched_sender import WatchedSender
from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.history.events import Adopted, Counted, Halted, History, Sought, Troubled
from hermes_chaos.sim.history.standing import Folded, content_of
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.workload.passing import SUBSCRIPTION

T = TypeVar("T")

_CONNECTIONS_MAX = 20
_RESTART_S = 1.0
_CLIENT_TIMEOUT_S = 5.0
_SPOOLED = "hermes_frontend_spool_entries"


_Mortal = MortalLog | SimulatedNet | Mount | WatchedSender


class NodeLife:
    """A node that is restarted each time it ends, as an orchestrator does."""

    def __init__(
        self,
        name: str,
        dc: str,
        *,
        is_first: bool,
        cluster: Config,
        seed: int,
        disk: SimulatedDisk,
        logs: Mapping[str, MemoryLog],
        log_topics: Mapping[str, str],
        endpoints: Mapping[str, Endpoint],
        nursery: trio.Nursery,
        history: History,
        trace: Trace,
        failures: NothingFailsUnasked,
    ) -> None:
        """The first node of a datacentre also has management.

        `cluster` is the configuration that all nodes share.
        """
        self.name = name
        self.dc = dc
        self.clock = SimulatedClock(booted_s=rng_of(seed, f"{name} boot").uniform(0, 1e6))
        self.way = CoordinationWay(rng_of(seed, f"{name} way"))
        """Connection to the coordination log; it outlives the node."""
        self._is_first = is_first
        self._cluster = cluster
        self._seed = seed
        self._disk = disk
        self._logs = logs
        self._log_topics = log_topics
        self._endpoints = endpoints
        self._nursery = nursery
        self._history = history
        self._trace = trace
        self._failures = failures
        self._lives = 0
        self._down_s = 0.0
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._leave = trio.Event()
        self._node: Node | None = None
        self._mortal: list[_Mortal] = []
        self._requests: dict[Exchange, trio.CancelScope] = {}
        self._calls = Calls(nursery)
        self._process = determinism.inside("")
        self._is_stopped = False
        self._crashes: Counter[str] = Counter()
        # The positions of its folds at the last report.
        self._reached: dict[str, tuple[str, int, int]] = {}
        self._came_up = trio.Event()

    async def run(self) -> None:
        """Start the node again whenever it ends, until cancelled."""
        while True:
            self._down_s = _RESTART_S
            self._scope = trio.CancelScope()
            self._ended = trio.Event()
            self._leave = trio.Event()
            self._lives += 1
            self._process = determinism.inside(self.life_name)
            # In a separate task, so that nothing waits for what a killed life does until it
            # notices.
            self._process.run(self._nursery.start_soon, self._life, self._scope, self._ended)
            await self._ended.wait()
            await trio.sleep(self._down_s)

    async def _life(self, scope: trio.CancelScope, ended: trio.Event) -> None:
        try:
            with scope:
                await self._live()
        except RestartIntensityExceeded as error:
            self._die()
            self._history.faults["node escalated"] += 1
            self._trace.note(self.name, f"escalated: {error}")
        ended.set()

    @property
    def spooled(self) -> int:
        """The number of messages in the spool of a serving node; 0 while it is down."""
        if self._node is None:
            return 0
        # Called often, so collect families only up to this one.
        families = (family for metrics in self._node.metrics for family in metrics.collect())
        spooled = next((each for each in families if each.name == _SPOOLED), None)
        return 0 if spooled is None else int(sum(sample.value for sample in spooled.samples))

    async def wait_up(self) -> None:
        """Wait until the node serves."""
        while not self.is_serving:
            await self._came_up.wait()

    @property
    def life_name(self) -> str:
        """The name of this life of the node, unique in the run."""
        return f"{self.name}#{self._lives}"

    @property
    def is_serving(self) -> bool:
        """True while a load balancer would send it requests, which a paused node does not get."""
        return self._node is not None and not self._is_stopped

    @property
    def administration(self) -> Administration:
        """The node's administration. Only while it serves."""
        assert self._node is not None, "the node is down"
        assert self._node.administration is not None, "the node has no management"
        return self._node.administration

    @property
    def catalog(self) -> Catalog:
        """The node's view of the catalog. Only while it serves."""
        assert self._node is not None, "the node is down"
        return self._node.metadata.catalog

    def allowed(self, subscription: str) -> float | None:
        """Its share of the subscription's rate, in messages a second. None if it owns nothing of
        it, or its lease is closed.
        """
        node = self._node
        if node is None or node.agent is None or node.presence is None:
            return None
        consumer, lease = node.agent.consumer(subscription), node.presence.lease
        if consumer is None or lease is None or not lease.is_open():
            return None
        return consumer.spent().allowed

    def folds(self) -> list[Folded]:
        """Its folds of its datacentre's metadata and coordination, as far as they have advanced
        since the last call. Empty while it does not serve.
        """
        node = self._node
        if node is None or self._is_stopped:
            return []
        found: list[Folded] = []
        metadata, coordination = node.metadata, node.coordination
        if metadata.is_own and self._is_news("metadata", metadata.refolds, metadata.state.position):
            registers = {
                key: (each.incarnation, each.stamp, each.dc, each.body)
                for key, each in metadata.state.registers.items()
            }
            found.append(
                Folded(
                    self.life_name,
                    self.dc,
                    "metadata",
                    metadata.refolds,
                    metadata.state.position,
                    metadata.state.snapshot(),
                    trio.current_time(),
                    registers,
                )
            )
        if coordination is not None and coordination.generation:
            state, generation = coordination.state, coordination.generation
            if self._is_news("coordination", generation, state.position):
                found.append(
                    Folded(
                        self.life_name,
                        self.dc,
                        "coordination",
                        generation,
                        state.position,
                        content_of(state),
                        trio.current_time(),
                    )
                )
        return found

    def _is_news(self, kind: str, begun: int, position: int) -> bool:
        reached = self.life_name, begun, position
        is_news = self._reached.get(kind) != reached
        self._reached[kind] = reached
        return is_news

    def weights(self) -> dict[str, float]:
        """The measured cost of each subscription in its datacentre, in thousandths of a core."""
        coordination = None if self._node is None else self._node.coordination
        if coordination is None:
            return {}
        subscriptions = coordination.state.subscriptions
        return {name: weight_of(o.load) for name, o in subscriptions.items() if o.load is not None}

    def owns(self, subscription: str) -> bool:
        """True if it hands out messages of a pull subscription. A client would be led here."""
        return self.is_serving and self._hand_out(subscription) is not None

    async def hand_out(
        self, subscription: str, act: Callable[[PullDispatch, str], Awaitable[T]]
    ) -> T | None:
        """The result of `act` with what hands out messages, and with this life's name, on the
        node's side. None if the node dies first. Raises Unavailable.
        """
        found = self._hand_out(subscription)
        assert found is not None, "the node owns it"
        return await self._calls.make(self._process, partial(act, found, self.life_name))

    def _hand_out(self, subscription: str) -> PullDispatch | None:
        agent = None if self._node is None else self._node.agent
        consumer = None if agent is None else agent.consumer(subscription)
        return None if consumer is None else consumer.hand_out

    def kill(self, down_s: float, commits_after_s: float | None = None) -> bool:
        """End the node as kill -9 does; it starts again after `down_s`. False if it is down.

        With `commits_after_s`, its last commits reach the log a second time, that much later.
        """
        if self._node is None:
            return False
        self._die(commits_after_s)
        self._down_s = down_s
        self._scope.cancel()
        self._ended.set()
        return True

    def stop(self, down_s: float) -> bool:
        """Stop the node in good order, as an orchestrator does; it starts again `down_s` later.

        False if it is down.
        """
        if not self.is_serving:
            return False
        self._came_up = trio.Event()
        self._down_s = down_s
        self._leave.set()
        return True

    def pause(self) -> bool:
        """Pause the node's process as SIGSTOP does. False if it is down or already paused."""
        if not self.is_serving:
            return False
        self._is_stopped = True
        determinism.stop(self.life_name)
        return True

    def go_on(self) -> None:
        """Resume a paused node as SIGCONT does."""
        if self._is_stopped:
            self._is_stopped = False
            determinism.go_on(self.life_name)

    def crash_actor(self, where: float) -> str | None:
        """Crash one running actor. Return its name, or None if there is none."""
        if self._node is None:
            return None
        actors = _running_actors(self._node)
        if not actors:
            return None
        name, crash = actors[int(where * len(actors))]
        crash()
        self._crashes[name] += 1
        return name

    def backoff_max_s(self, producer: str) -> float:
        """The longest time that a producer is away after a crash."""
        return TENANT.backoff_first_s * float(2 ** (self._crashes[producer] - 1))

    async def post(
        self, path: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> Response | None:
        """A publisher's answer; None if the node dies first or the client gives up."""
        assert self._node is not None, "the node is down"
        exchange, scope = Exchange(path, headers, body), trio.CancelScope()
        is_over = trio.Event()
        self._requests[exchange] = scope
        self._process.run(
            self._nursery.start_soon, self._answer, exchange, self._edge, scope, is_over
        )
        with trio.move_on_after(_CLIENT_TIMEOUT_S):
            await is_over.wait()
        scope.cancel()
        return exchange.response

    async def _answer(
        self, exchange: Exchange, edge: PublishEdge, scope: trio.CancelScope, is_over: trio.Event
    ) -> None:
        """Handle a request on the node's side."""
        with scope:
            await exchange.run(edge)
        self._requests.pop(exchange, None)
        is_over.set()

    def tell_counts(self, *, is_whole: bool) -> None:
        """Report this life's counters to the history; nothing while it does not serve."""
        if self._node is None:
            return
        samples = tuple(
            (sample.name, sample.labels, sample.value)
            for metrics in self._node.metrics
            for family in metrics.collect()
            for sample in family.samples
        )
        self._history.tell(Counted(self.life_name, samples, is_whole))

    async def _live(self) -> None:
        self._crashes.clear()
        self._failures.started()
        life = self.life_name
        net = SimulatedNet(
            self._nursery,
            self.dc,
            self._endpoints,
            rng_of(self._seed, f"{life} network"),
            self._process,
        )
        logs = {
            dc: MortalLog(log, life, self._log_topics, self._history, self.way)
            for dc, log in self._logs.items()
        }
        mount = Mount(self._disk)
        self._mortal = [net, mount, *logs.values()]
        config = self._config()
        ids = seeded_ids(rng_of(self._seed, f"{life} ids"))
        environment = NodeEnvironment(
            clock=self.clock,
            ids=ids,
            rng=rng_of(self._seed, f"{life} actors"),
            log=logs.pop(self.dc),
            remote_logs=logs,
            open_senders=lambda *_: _open_senders(net, life, self._history, self._mortal),
            cpu=StillCpu(),
            threads=NoThreads(),
            make_pool=InlinePool,
            open_spool=partial(open_store_on, mount, config.spool.disk_bytes_max),
        )
        async with open_node(config, environment) as node:
            front = node.frontend
            assert front is not None, "every simulated node is a frontend"
            host = TrioHost(self._nursery)
            self._edge = PublishEdge(front, host)
            self._edge.tick(trio.current_time(), self.clock.now_ms())
            await node.metadata.wait_readable()
            self._nursery.start_soon(self._hear, node.metadata, life)
            front.drain.open()
            self._node = node
            self._trace.note(self.name, f"up, life {self._lives}")
            self._came_up.set()
            await self._leave.wait()
            self.tell_counts(is_whole=False)
            self._node = None
            await front.drain.run()
        self._trace.note(self.name, "stopped")
        if self._requests:
            self._failures.failed(f"{life} left {len(self._requests)} requests without an answer")

    async def _hear(self, metadata: Metadata, life: str) -> None:
        """Report the suspensions and retransmissions that the node hears of."""
        suspended: set[str] = set()
        seeks: dict[str, int] = {}
        with metadata.watch() as watch:
            while await watch.wait():
                if self.life_name != life:
                    return
                for change in watch.take_nowait():
                    if isinstance(change, SubscriptionChanged) and change.subscription is not None:
                        self._tell_of(life, change.subscription, suspended, seeks)

    def _tell_of(
        self, life: str, live: LiveSubscription, suspended: set[str], seeks: dict[str, int]
    ) -> None:
        name, at_s = str(live.name), trio.current_time()
        is_suspended = live.state is SubscriptionState.SUSPENDED
        if is_suspended is not (name in suspended):
            (suspended.add if is_suspended else suspended.remove)(name)
            self._history.tell(Halted(life, name, is_suspended, at_s))
        seek = live.seek
        if seek is not None and seek.number > seeks.get(name, 0):
            seeks[name] = seek.number
            positions = seek.body.positions.get(self.dc)
            self._history.tell(Sought(life, name, seek.number, positions, seek.body.time_ms, at_s))

    def _die(self, commits_after_s: float | None = None) -> None:
        """Cut everything by which a dead node could act, before its tasks are cancelled."""
        self.go_on()
        self.tell_counts(is_whole=False)
        self._node = None
        self._came_up = trio.Event()
        self._history.tell(
            Troubled(self.name, Fault.NODE_KILL.value, trio.current_time(), lasts_s=0.0)
        )
        for each in self._mortal:
            if isinstance(each, MortalLog):
                each.die(commits_after_s)
            else:
                each.die()
        self._calls.die()
        for scope in self._requests.values():
            scope.cancel()
        self._requests.clear()

    def _config(self) -> Config:
        roles: list[Role] = ["frontend", "consumers"]
        return replace(
            self._cluster,
            dc=self.dc,
            node=self.name,
            roles=[*roles, "management"] if self._is_first else roles,
        )


def _running_actors(node: Node) -> list[tuple[str, Callable[[], None]]]:
    """The running actors and how to crash each; supervised actors first, then consumers."""
    found: list[tuple[str, Callable[[], None]]] = [
        (name, partial(supervisor.crash, name))
        for supervisor in (node.control, node.producers)
        if supervisor is not None
        for name in sorted(supervisor.statistics())
        if supervisor.is_running(name)
    ]
    if node.agent is not None:
        found.extend(
            (f"consumer {name}", partial(node.agent.crash, name))
            for name in node.agent.subscriptions()
            if node.agent.consumer(name) is not None
        )
    return found


@asynccontextmanager
async def _open_senders(
    net: SimulatedNet, life: str, history: History, mortal: list[_Mortal]
) -> AsyncIterator[SenderOf]:
    sender = Http1Sender(net, PoolLimits(connections_max=_CONNECTIONS_MAX))
    watched = WatchedSender(sender, life, history)
    mortal.append(watched)

    def sender_of(live: LiveSubscription) -> Sender:
        if str(live.name) == SUBSCRIPTION.full_name:
            return sender
        history.tell(Adopted(life, str(live.name), trio.current_time()))
        return watched

    try:
        yield sender_of
    finally:
        sender.close()
