"""Adaptive hedging compared with a fixed delay and none, on logs with heavy-tailed delays.

    python benchmarks/hedging.py [--seconds 60] [--rate 200] [--seeds 1,2,3]

Two datacentres, each with a log in memory whose appends take random times. One node's production
code publishes to a fallback topic in virtual time: nothing waits, and a seed is one exact history,
the same for each mode. Messages without keys arrive independently at the rate. All answers count;
failed ones count with the time until they failed.

The columns are percentages of all messages. Hedged: sent to the other datacentre because the hedge
delay had passed. Otherwise: sent there for another reason (a breaker, an error, a deadline).
Duplicates: stored in both. Refused: not hedged because the budget was used up.
"""

import argparse
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

import trio

from asking import numbers
from hermes_actors.actors.supervisor import Crash, open_supervisor
from hermes_actors.config import FrontendConfig
from hermes_actors.config.fallback import FallbackConfig
from hermes_actors.fallback.budget import Cause
from hermes_actors.fallback.node import Fallback
from hermes_actors.log.base import Outcome, Stored, TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.catalog import LiveTopic
from hermes_actors.model.names import TopicName
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack, ContentType, Owner, RetentionTime, Topic
from hermes_actors.publisher.demands import Head
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.publisher.pending import Pending
from hermes_actors.runtime.clock import IdSource
from hermes_actors.telemetry.metrics import Metrics
from hermes_chaos.sim.determinism import rng_of, run
from hermes_chaos.sim.environment.clock import SimulatedClock
from publishing.arrivals import poisson
from publishing.latencies import Latencies

TOPIC = "bench.orders"
PARTITIONS = 10
BODY = b'{"n":1}'
SETTLE_S = 5.0
WARM_UP_S = 5.0
Mode = Literal["off", "fixed", "adaptive"]
MODES: tuple[Mode, ...] = ("off", "fixed", "adaptive")


class Delays(NamedTuple):
    """How long appends take: log-normal, and with a small probability Pareto (both in ms).

    The other datacentre is `distance_ms` farther. In slow phases, which come on average every
    `slow_every_s` and last `slow_for_s` (both exponential), all appends to the own log take
    `slow_factor` times as long.
    """

    name: str
    median_ms: float
    sigma: float
    tail_percent: float
    tail_from_ms: float
    tail_alpha: float
    distance_ms: float = 10.0
    slow_every_s: float = math.inf
    slow_for_s: float = 0.0
    slow_factor: float = 1.0

    def draw_s(self, rng: random.Random) -> float:
        """The seconds of one append, without phases and distance."""
        if rng.random() * 100 < self.tail_percent:
            return self.tail_from_ms * rng.paretovariate(self.tail_alpha) / 1_000
        return rng.lognormvariate(math.log(self.median_ms), self.sigma) / 1_000

    def phases_s(self, rng: random.Random, end_s: float) -> Iterator[tuple[float, float]]:
        """The slow phases."""
        at_s = 0.0
        while self.slow_every_s < math.inf:
            at_s += rng.expovariate(1 / self.slow_every_s)
            if at_s > end_s:
                return
            begun_s, at_s = at_s, at_s + rng.expovariate(1 / self.slow_for_s)
            yield begun_s, at_s

    def describe(self) -> str:
        """All parameters in one line."""
        text = (
            f"{self.name}: log-normal, median {self.median_ms:g} ms, sigma {self.sigma:g}; "
            f"{self.tail_percent:g} % Pareto from {self.tail_from_ms:g} ms, "
            f"alpha {self.tail_alpha:g}; the other datacentre {self.distance_ms:g} ms farther"
        )
        if self.slow_every_s < math.inf:
            text += (
                f"; every {self.slow_every_s:g} s the own log is {self.slow_factor:g} times as "
                f"slow for {self.slow_for_s:g} s"
            )
        return text


DELAYS = (
    Delays("moderate", 2.0, 0.5, 0.5, 20.0, 1.5),
    Delays("heavy", 2.0, 0.5, 2.0, 20.0, 1.1),
    Delays("phases", 2.0, 0.5, 0.5, 20.0, 1.5, 10.0, 10.0, 1.0, 50.0),
)


class SlowLog(MemoryLog):
    """A log whose appends take these times; they do not wait for each other."""

    def __init__(
        self, dc: str, delays: Delays, seed: int, distance_ms: float, end_s: float
    ) -> None:
        super().__init__(dc, SimulatedClock(), append_timeout_s=math.inf)
        self._delays = delays
        self._rng = rng_of(seed, f"delays {dc}")
        self._distance_s = distance_ms / 1_000
        self._phases = []
        if not distance_ms:
            self._phases = list(delays.phases_s(rng_of(seed, "phases"), end_s))

    async def append(
        self, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> list[Outcome]:
        """As `Log.append`, later."""
        delay_s = self._delays.draw_s(self._rng)
        now_s = trio.current_time()
        if any(begun_s <= now_s < ended_s for begun_s, ended_s in self._phases):
            delay_s *= self._delays.slow_factor
        await trio.sleep(self._distance_s + delay_s)
        return await super().append(topic, partition, batch, ack)


class Tally:
    """The publishers' answers and their cost, after the warm-up."""

    def __init__(self) -> None:
        self.latencies = Latencies()
        self.failed = 0
        self.counts: Counter[str] = Counter()

    def note(self, pending: Pending) -> None:
        """Count one answer."""
        if pending.started_s >= WARM_UP_S:
            self.latencies.record(trio.current_time() - pending.started_s)
            self.failed += type(pending.outcome) is not Stored


async def publish(
    delays: Delays, mode: Mode, seed: int, rate_per_s: float, seconds: float, tally: Tally
) -> None:
    """Run a node that publishes to two logs, with its publishers."""
    clock, rng = SimulatedClock(), rng_of(seed, "node")
    metrics = Metrics("hermes_frontend")
    end_s = WARM_UP_S + seconds
    own = SlowLog("dc1", delays, seed, 0.0, end_s)
    other = SlowLog("dc2", delays, seed, delays.distance_ms, end_s)
    for log in (own, other):
        await log.topics.create(TOPIC, TopicSettings(partitions=PARTITIONS))
    async with open_supervisor(rng, raise_it) as supervisor, trio.open_nursery() as nursery:
        fallback = Fallback(
            FallbackConfig(hedge_mode=mode), own, {"dc2": other}, nursery, clock, rng, metrics
        )
        frontend = Frontend(
            FrontendConfig(),
            own,
            supervisor,
            metrics,
            clock,
            IdSource(rng_of(seed, "ids").randbytes),
            fallback=fallback,
        )
        frontend.routes.set(live_topic(), nursery)
        nursery.start_soon(frontend.deadlines.run)
        frontend.drain.open()
        arrivals = poisson(rate_per_s, 0.0, rng_of(seed, "arrivals"))
        before: Counter[str] | None = None
        for due_s in takewhile(lambda each_s: each_s < end_s, arrivals):
            await trio.sleep_until(due_s)
            if before is None and due_s >= WARM_UP_S:
                before = counted(fallback)
            pending = frontend.gateway.admit(TOPIC, len(BODY), None, Head([], {}), tally.note)
            assert isinstance(pending, Pending), pending
            frontend.gateway.hand_over(pending, BODY)
        # Messages under way may still turn out to be stored twice.
        await trio.sleep(SETTLE_S)
        assert before is not None, "it ended before the warm-up did"
        tally.counts += counted(fallback) - before
        nursery.cancel_scope.cancel()


def counted(fallback: Fallback) -> Counter[str]:
    """The fallback's counters."""
    counter = fallback.local.metrics.counter
    counts: Counter[str] = Counter(refused=counter("fallback_budget_refused").value)
    group, _, name = TOPIC.rpartition(".")
    for cause in Cause:
        kind = "hedged" if cause is Cause.HEDGE else "otherwise"
        counts[kind] += counter("fallback_messages", cause=cause.value, dc="dc2").value
        labels = {"group": group, "topic": name, "cause": cause.value}
        counts["duplicates"] += counter("topic_duplicated_message", **labels).value
    return counts


def live_topic() -> LiveTopic:
    """The topic to publish to."""
    topic = Topic(
        name=TOPIC,
        description="",
        owner=Owner("Plaintext", "bench"),
        content_type=ContentType.JSON,
        retention_time=RetentionTime(1),
        fallback_to_remote_datacenter_enabled=True,
    )
    return LiveTopic(TopicName.parse(TOPIC), topic, 1, 1, TOPIC)


def raise_it(crash: Crash) -> None:
    """A crash of production code ends the benchmark."""
    raise crash.error


def positive(text: str) -> float:
    """For argparse: a finite number above 0."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return number


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=positive, default=60.0, help="of each history")
    parser.add_argument("--rate", type=positive, default=200.0, help="messages/s")
    parser.add_argument(
        "--seeds", type=numbers, default=[1, 2, 3], help="a history for each, summed up"
    )
    asked = parser.parse_args()
    for delays in DELAYS:
        print(delays.describe())
    seeds = ",".join(map(str, asked.seeds))
    print(f"{asked.rate:g} messages/s for {asked.seconds:g} s, seeds {seeds}, 10 partitions")
    print(
        f"{'delays':10}{'hedge':10}{'p50 ms':>8}{'p99 ms':>9}{'p99.9 ms':>9}{'max ms':>9}"
        f"{'hedged':>9}{'otherwise':>10}{'duplicates':>11}{'refused':>9}{'failed':>8}{'of':>8}"
    )
    for delays in DELAYS:
        for mode in MODES:
            tally = Tally()
            for seed in asked.seeds:
                run(publish, delays, mode, seed, asked.rate, asked.seconds, tally, seed=seed)
            show(delays.name, mode, tally)


def show(delays: str, mode: str, tally: Tally) -> None:
    """Print one row of the table."""
    count = tally.latencies.count
    p50, p99, p999, most = tally.latencies.summary().values()
    hedged, otherwise, duplicates, refused = (
        f"{tally.counts[name] / count * 100:.2f} %"
        for name in ("hedged", "otherwise", "duplicates", "refused")
    )
    print(
        f"{delays:10}{mode:10}{p50:8.1f}{p99:9.1f}{p999:9.1f}{most:9.1f}"
        f"{hedged:>9}{otherwise:>10}{duplicates:>11}{refused:>9}{tally.failed:8}{count:8}",
        flush=True,
    )


if __name__ == "__main__":
    main()
