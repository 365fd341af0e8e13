"""A run's datacentres: their logs, nodes and subscribers, as the nemesis and publishers see them.

Logs, disks and subscribers exist from the beginning, nodes from `start` on.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import trio

from hermes_actors.config import Config
from hermes_actors.errors import HermesError
from hermes_actors.management.administration import Administration
from hermes_chaos.sim.checkers.checks import NothingFailsUnasked
from hermes_chaos.sim.determinism import rng_of
from hermes_chaos.sim.environment.coordination_way import CoordinationWay
from hermes_chaos.sim.environment.disk import READ_S, WRITE_S, SimulatedDisk
from hermes_chaos.sim.environment.http_in import Response
from hermes_chaos.sim.environment.subscribers import Endpoint
from hermes_chaos.sim.environment.watched_log import WatchedLog, watched_log
from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.history.events import History, Place, Troubled, coordination_of, disk_of
from hermes_chaos.sim.history.standing import Skewed
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.node_life import NodeLife
from hermes_chaos.sim.workload.passing import HOST, passing_endpoint
from hermes_chaos.sim.workload.plans import ALL_SUBSCRIPTIONS, FALLBACK_TOPICS, SUBSCRIPTIONS

_SPOOL_WRITER = "spool writer"


class Cluster:
    """The cluster of one seed. All nodes share `config`.

    `log_topics` maps names in the logs to topic names; it is filled as topics become known.
    """

    def __init__(
        self,
        seed: int,
        dcs: Sequence[str],
        nodes_per_dc: int,
        config: Config,
        history: History,
        trace: Trace,
    ) -> None:
        self.nodes: dict[str, NodeLife] = {}
        self.log_topics: dict[str, str] = {}
        self._seed = seed
        self._dcs = dcs
        self._config = config
        self._history = history
        self._trace = trace
        self._logs = {dc: watched_log(dc, seed, self.log_topics, history, trace) for dc in dcs}
        self._endpoints = {
            host: Endpoint(
                plan.full_name,
                host,
                plan.request_timeout_s,
                plan.fault_rate,
                rng_of(seed, f"subscriber {host}"),
                history,
                trace,
            )
            for plan in ALL_SUBSCRIPTIONS
            for host in plan.hosts
        }
        self._passer_by = passing_endpoint(rng_of(seed, "passer-by"), trace)
        self._disks = {
            f"{dc}-n{number}": SimulatedDisk(
                rng_of(seed, f"spool {dc}-n{number}"), write_s=WRITE_S, read_s=READ_S
            )
            for dc in dcs
            for number in range(1, nodes_per_dc + 1)
        }
        self._balancing = rng_of(seed, "load balancer")

    def start(self, nursery: trio.Nursery, failures: NothingFailsUnasked) -> None:
        """Start the nodes. Failures that no fault explains are reported to `failures`."""
        for dc in self._dcs:
            names = [name for name in self._disks if name.startswith(f"{dc}-")]
            for name in names:
                node = NodeLife(
                    name,
                    dc,
                    is_first=name == names[0],
                    cluster=self._config,
                    seed=self._seed,
                    disk=self._disks[name],
                    logs=self._logs,
                    log_topics=self.log_topics,
                    endpoints=self._endpoints | {HOST: self._passer_by},
                    nursery=nursery,
                    history=self._history,
                    trace=self._trace,
                    failures=failures,
                )
                self.nodes[node.name] = node
                nursery.start_soon(node.run)

    async def go_on_at_the_end(self) -> None:
        """When cancelled, resume the paused nodes, because otherwise they would never end."""
        try:
            await trio.sleep_forever()
        finally:
            for node in self.nodes.values():
                node.go_on()

    @property
    def logs_by_dc(self) -> Mapping[str, WatchedLog]:
        """Each datacentre's log."""
        return self._logs

    def end_of(self, place: Place) -> int:
        """The offset up to which a partition can be read now: its replicated end."""
        dc, topic, partition = place
        return self._logs[dc].topics.known(topic).partitions[partition].replicated

    def administrations(self) -> list[Administration | None]:
        """Each datacentre's administration; None while its node is down."""
        nodes = [self.nodes[f"{dc}-n1"] for dc in self._dcs]
        return [node.administration if node.is_serving else None for node in nodes]

    # For the nemesis.

    @property
    def logs(self) -> Sequence[WatchedLog]:
        """Each datacentre's log."""
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
        """All nodes, running or not."""
        return list(self.nodes)

    def kill(self, node: str, down_s: float, commits_after_s: float | None = None) -> bool:
        """Kill a node; its next life starts after `down_s`. False if it is already down.

        With `commits_after_s`, its last commits reach the log a second time, that much later.
        """
        return self.nodes[node].kill(down_s, commits_after_s)

    def stop(self, node: str, down_s: float) -> bool:
        """Stop a node in good order; its next life starts `down_s` later. False if it is already
        down.
        """
        return self.nodes[node].stop(down_s)

    def pause(self, node: str) -> bool:
        """Pause the node's process as SIGSTOP does. False if it is down or already paused."""
        return self.nodes[node].pause()

    def go_on(self, node: str) -> None:
        """Resume a paused node as SIGCONT does."""
        self.nodes[node].go_on()

    def way(self, node: str) -> CoordinationWay:
        """The node's connection to the coordination log."""
        return self.nodes[node].way

    def crash_actor(self, node: str, where: float) -> str | None:
        """Crash one running actor of the node. Return its name, or None if there is none."""
        life = self.nodes[node]
        actor = life.crash_actor(where)
        if actor is not None:
            self._history.tell(
                Troubled(
                    coordination_of(life.dc),
                    Fault.ACTOR_CRASH.value,
                    trio.current_time(),
                    life.backoff_max_s(actor),
                )
            )
        kind, _, log_topic = (actor or "").partition(" ")
        if actor == _SPOOL_WRITER:
            self._history.tell(
                Troubled(
                    disk_of(node),
                    Fault.ACTOR_CRASH.value,
                    trio.current_time(),
                    life.backoff_max_s(actor),
                )
            )
        topic = self.log_topics.get(log_topic.partition(" ")[0])
        if kind == "producer" and topic is not None:
            self._history.tell(
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
        """The number of messages in the node's spool; 0 while it is down."""
        return self.nodes[node].spooled

    def disk(self, node: str) -> SimulatedDisk:
        """The disk of the node's spool; it outlives the node."""
        return self._disks[node]

    async def set_ready(self, dc: str, is_ready: bool) -> bool:
        """Set in all datacentres whether this one may be used for fallback. False if
        that failed.
        """
        for administration in self.administrations():
            if administration is not None:
                with suppress(HermesError):
                    await administration.readiness.set(dc, {"isReady": is_ready})
                    return True
        return False

    def skew(self, node: str, skew_ms: int) -> None:
        """Set how far the node's wall clock is off."""
        self.nodes[node].clock.skew_ms = skew_ms
        self._history.tell(Skewed(node, skew_ms, trio.current_time()))

    # For publishers.

    def choose(self, dc: str) -> str:
        """The name of a running node of the datacentre. Empty string if there is none."""
        up = self._up(dc)
        return self._balancing.choice(up).name if up else ""

    async def publish(
        self, dc: str, topic: str, headers: Sequence[tuple[str, str]], body: bytes, prefers: str
    ) -> tuple[str, str, Response | None]:
        """Post to a running node of the datacentre. Return its name, its life, and the answer if
        any.

        `prefers` is the node that a kept-alive connection leads to, or an empty string.
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
        return [node for node in self.nodes.values() if node.dc == dc and node.is_serving]
