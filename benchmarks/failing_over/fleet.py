"""Runs a datacentre as processes: a Kafka, a node that accepts messages, nodes that only deliver.

All methods block; call them in a thread if a load runs at the same time.
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import trio

from delivering.sink import Sink
from hermes_chaos.live.site import NodeDidNotStart, NodeProcess, ask
from hermes_chaos.wanted import subscription_body, topic_body
from hermes_local.kafka import FULL_SPEED, Cluster

PARTITIONS = 4
_TAKES_WITHIN_S = 60.0


class Fleet:
    """`front` accepts messages and has management, `consumers` deliver; in the sink the n-th
    consumer has number n. `variables` are HERMES_… variables for every node; `of_last` overrides
    them for the last consumer. As a context manager it starts and ends everything.
    """

    def __init__(
        self,
        folder: Path,
        sink: Sink,
        *,
        consumers: int = 3,
        brokers: int = 1,
        variables: Mapping[str, str] = MappingProxyType({}),
        of_last: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.folder = folder
        self.sink = sink
        self._count = consumers
        self._variables = dict(variables)
        self._of_last = dict(of_last)
        self._stack = ExitStack()
        folder.mkdir(parents=True, exist_ok=True)
        self.kafka = Cluster(folder / "kafka", brokers=brokers, heap_mb=384, jvm_options=FULL_SPEED)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.kafka.kill)
            self.kafka.start()
            self.front = self._node("front", "frontend,management", {})
            names = [f"consumers-{number}" for number in range(1, self._count + 1)]
            self.consumers = [
                self._node(name, "consumers", self._of_last if name == names[-1] else {})
                for name in names
            ]
            for node in (self.front, *self.consumers):
                stack.callback(node.kill)
                self.begin(node)
            for node in (self.front, *self.consumers):
                node.wait_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def begin(self, node: NodeProcess) -> None:
        """Start a node without waiting."""
        node.begin()
        if node in self.consumers:
            self.sink.know({node.pid: self.consumers.index(node)})

    def create(self, topics: Mapping[str, str]) -> None:
        """Create subscriptions with these names and their topics, which may be shared. The sink
        records arrivals under the subscription's name. Returns when all topics accept messages.
        """
        base = self.front.management
        for group in sorted({topic.partition(".")[0] for topic in topics.values()}):
            _created(f"{base}/groups", {"groupName": group})
        for topic in sorted(set(topics.values())):
            _created(f"{base}/topics", topic_body(topic))
            self._wait_taking(topic)
        for name, topic in topics.items():
            body = subscription_body(
                topic,
                name,
                self.sink.at(f"note/{name}"),
                # A machine that is busy for a second is not a fault: duplicates must come only from
                # nodes that end.
                subscriptionPolicy={"rate": 10_000, "requestTimeout": 10_000},
            )
            _created(f"{base}/topics/{topic}/subscriptions", body)

    def index_of(self, name: str | None) -> int:
        """The sink's number of a consuming node; 0 for any other name."""
        names = [node.name for node in self.consumers]
        return names.index(name) if name in names else 0

    def _wait_taking(self, topic: str) -> None:
        end_s = time.perf_counter() + _TAKES_WITHIN_S
        while ask("POST", f"{self.front.url}/topics/{topic}", {})[0] not in (201, 202):
            if time.perf_counter() > end_s:
                raise NodeDidNotStart(f"{self.front.name} takes no messages for {topic}")
            time.sleep(0.05)

    def _node(self, name: str, roles: str, own: Mapping[str, str]) -> NodeProcess:
        return NodeProcess(
            name,
            self.folder,
            {
                "HERMES_DC": "dc1",
                "HERMES_ROLES": roles,
                "HERMES_METADATA_REPLICATOR": "front",
                "HERMES_MANAGEMENT_TOPIC_PARTITIONS": str(PARTITIONS),
                "HERMES_LOG_DIRECTORY": str(self.folder / name),
                "HERMES_SPOOL_DIRECTORY": str(self.folder / "spools"),
                "HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS": ",".join(
                    self.kafka.bootstrap_servers
                ),
                "HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": "0",
                **self._variables,
                **own,
            },
        )


@asynccontextmanager
async def open_fleet(fleet: Fleet) -> AsyncIterator[None]:
    """Run the fleet's processes for the duration of the block."""
    await trio.to_thread.run_sync(fleet.__enter__)
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(fleet.__exit__, None, None, None)


def _created(url: str, body: object) -> None:
    status, said = ask("POST", url, body)
    assert status == 201, said
