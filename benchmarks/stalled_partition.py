"""Measures the partitions on two brokers while the third one is paused.

Paced writers append to topics on two brokers, others to topics on the third one only. In every
second phase the third is paused (SIGSTOP: its connections stay open, but nothing answers).
Everything is in one process, over one log. Prints for each ack level: the latency of appends to the
two; how much the 99th percentile changes; and how much it differs between two halves of the phases
in which all three run, which is the machine's own noise. Measure on an otherwise idle machine.

    python benchmarks/stalled_partition.py [--rounds 10]
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import trio
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from hermes_actors.log.base import Stored
from hermes_actors.log.kafka.log import KafkaLog
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest
from hermes_chaos.live.logs import on_kafka
from hermes_local.kafka import Broker, Cluster

TOPICS = 8
BATCH = 10
VALUE_BYTES = 512
INTERVAL_S = 0.02
STALLED_INTERVAL_S = 0.5
"""Writes to the third broker are so rare that their absence does not relieve the others."""
PHASE_S = 2.5
SETTLE_S = 1.0
"""After a broker is paused or resumed: the backlog is worked off, and not measured."""


class Load:
    """Writers that append at a fixed pace. Latencies in seconds go to `phase` while it is set."""

    def __init__(self, log: KafkaLog, ack: Ack) -> None:
        self.phase: list[float] | None = None
        self.failed = 0
        self._log = log
        self._ack = ack
        self._batch = [Record(None, bytes(VALUE_BYTES), (), 1_000)] * BATCH

    async def write(self, topic: str, is_measured: bool) -> None:
        """Append until cancelled."""
        interval_s = INTERVAL_S if is_measured else STALLED_INTERVAL_S
        next_s = trio.current_time()
        while True:
            next_s = max(next_s + interval_s, trio.current_time())
            phase, started_s = self.phase, trio.current_time()
            outcomes = await self._log.append(topic, 0, self._batch, self._ack)
            if is_measured:
                if phase is not None and phase is self.phase:
                    phase.append(trio.current_time() - started_s)
                self.failed += not all(isinstance(outcome, Stored) for outcome in outcomes)
            await trio.sleep_until(next_s)


async def create(cluster: Cluster, topics: dict[str, list[Broker]]) -> None:
    """Create topics with one partition on these brokers."""
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await guest.call(admin.start)
    try:
        new = [
            NewTopic(name, -1, -1, replica_assignments={0: [broker.node_id for broker in brokers]})
            for name, brokers in topics.items()
        ]
        await guest.call(admin.create_topics, new)
    finally:
        await guest.call(admin.close)


async def measure(log: KafkaLog, cluster: Cluster, ack: Ack, rounds: int) -> None:
    """Print one ack level's figures."""
    *others, stalled = cluster.brokers
    # Each of the two leads half of the topics.
    fine = {f"fine.{ack.value}{n}": others[:: 1 if n % 2 else -1] for n in range(TOPICS)}
    broken = {f"broken.{ack.value}{n}": [stalled] for n in range(TOPICS)}
    await create(cluster, {**fine, **broken})
    load = Load(log, ack)
    halves: tuple[list[float], list[float]] = ([], [])
    stopped: list[float] = []
    async with trio.open_nursery() as nursery:
        for topic in fine:
            nursery.start_soon(load.write, topic, True)
        for topic in broken:
            nursery.start_soon(load.write, topic, False)
        await trio.sleep(SETTLE_S)
        for number in range(rounds):
            for phase in (halves[number % 2], stopped):
                if phase is stopped:
                    stalled.pause()
                await trio.sleep(SETTLE_S)
                load.phase = phase
                await trio.sleep(PHASE_S)
                load.phase = None
                stalled.resume()
        nursery.cancel_scope.cancel()
    print(f"ack {ack.value}: {TOPICS} topics on two brokers, {TOPICS} on the third")
    healthy = halves[0] + halves[1]
    figures = [figures_of(healthy), figures_of(stopped)]
    for name, (p50, p99), count in zip(
        ("all three run", "the third stopped"), figures, (len(healthy), len(stopped)), strict=True
    ):
        print(f"  {name:18} p50 {p50 * 1e3:6.2f} ms  p99 {p99 * 1e3:6.2f} ms  ({count} appends)")
    moved = figures[1][1] / figures[0][1] - 1
    noise = figures_of(halves[1])[1] / figures_of(halves[0])[1] - 1
    print(f"  p99 moves by {moved:+.1%} (goal: below +20 %), by itself by {noise:+.1%}")
    print(f"  {load.failed} appends to the two failed")


def figures_of(durations_s: list[float]) -> tuple[float, float]:
    """(p50, p99)."""
    cuts = statistics.quantiles(durations_s, n=100)
    return cuts[49], cuts[98]


def main() -> None:
    """Read the options and measure all ack levels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), brokers=3)
        cluster.start()
        try:

            async def run(log: KafkaLog) -> None:
                for ack in (Ack.ALL, Ack.LEADER):
                    await measure(log, cluster, ack, rounds)

            on_kafka(run, cluster.bootstrap_servers, within_s=600)
        finally:
            cluster.kill()


if __name__ == "__main__":
    main()
