"""A datacentre's Kafka is stopped, killed and slowed down under load: what its publishers notice.

The load goes to dc1's frontends, to topics that may fall back to dc2. Publishers do not retry.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from hermes_chaos.live.copies import Copies, read_copies
from hermes_chaos.live.open_loop import OpenLoop, Phase
from hermes_chaos.live.scrape import Scrape, grown, shown
from hermes_chaos.live.site import Site

TOPICS = {"loss.leader": "LEADER", "loss.all": "ALL"}
KEYS = 200
_SAMPLE_S = 0.25
_WARM_S = 3.0
_QUIET_S = 60.0
_SENT_AGAIN = "hermes_frontend_fallback_messages_total"
_DUPLICATED = "hermes_frontend_topic_duplicated_message_total"
_UNKNOWN = "hermes_frontend_fallback_unknown_copies_total"
_OPENED = "hermes_frontend_fallback_breaker_opened_total"
_DELAY = "hermes_frontend_fallback_hedge_delay_seconds"
_REFUSED = "hermes_frontend_fallback_budget_refused_total"

in_thread = trio.to_thread.run_sync


@dataclass(frozen=True)
class Lengths:
    """All durations in seconds, the rate of the load, and the delay of dc1's slow Kafka."""

    rate_per_s: float = 500.0
    calm_s: float = 10.0
    lost_s: float = 20.0
    recovery_s: float = 8.0
    slow_s: float = 20.0
    slow_delay_s: float = 0.1


@dataclass
class Figures:
    """The counters of dc1's frontends in one phase.

    `sent_again` has, by cause, the messages sent to dc2; `duplicated` those known to be stored
    twice; `unknown` those that may be. `delays_ms` are the observed hedge delays.
    """

    sent_again: dict[str, int] = field(default_factory=dict)
    duplicated: dict[str, int] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)
    unknown: int = 0
    refused: int = 0
    delays_ms: list[float] = field(default_factory=list)

    @property
    def hedged(self) -> int:
        """The messages sent again from the hedge budget."""
        return self.sent_again.get("hedge", 0)


@dataclass
class DcLoss:
    """The result of a run."""

    phases: list[tuple[Phase, Figures]] = field(default_factory=list)
    copies: Copies = field(default_factory=Copies)
    duplicated: dict[str, int] = field(default_factory=dict)
    unknown: int = 0

    @property
    def sent(self) -> list[Any]:
        """All messages."""
        return [each for phase, _ in self.phases for each in phase.sent]

    @property
    def refused(self) -> list[Any]:
        """The messages that were not answered 201."""
        return [each for each in self.sent if each.status != 201]

    @property
    def counted(self) -> int:
        """How many messages the product reports as stored twice, or possibly so."""
        return sum(self.duplicated.values()) + self.unknown

    def phase(self, name: str) -> tuple[Phase, Figures]:
        """The phase of that name."""
        return next(each for each in self.phases if each[0].name == name)

    def report(self) -> str:
        """The result as text."""
        sent, refused = self.sent, self.refused
        lines = [_line(phase, figures) for phase, figures in self.phases]
        lines += [
            f"  {each.number} at {each.frontend}: {each.status} {each.error}"
            for each in refused[:5]
        ]
        lines.append(
            f"in all: {len(sent)} published, {len(sent) - len(refused)} answered 201 at the first "
            f"attempt ({100 * (1 - len(refused) / len(sent)):.3f} %); missing in both logs: "
            f"{len(self.copies.missing(sent))}"
        )
        lines.append(
            f"stored twice: {self.copies.extra} found in the logs, counted by the product: "
            f"{sum(self.duplicated.values())} ({shown(self.duplicated)}), "
            f"perhaps {self.unknown} more"
        )
        lines += [f"  {count} × {ways}" for ways, count in self.copies.extra_by_ways.items()]
        return "\n".join(lines)


def _line(phase: Phase, figures: Figures) -> str:
    statuses = ", ".join(f"{status}: {count}" for status, count in sorted(phase.statuses.items()))
    delays = figures.delays_ms
    delay = f"hedge delay {min(delays):.0f} to {max(delays):.0f} ms, " if delays else ""
    return (
        f"{phase.name:16} {statuses:20} worst gap {phase.worst_gap_ms:4.0f} ms, {delay}"
        f"latency p50 {phase.latency_ms(50):.1f} p99 {phase.latency_ms(99):.0f} "
        f"max {phase.latency_ms(100):.0f} ms\n"
        f"{'':16} sent to dc2: {shown(figures.sent_again)}; stored twice: "
        f"{shown(figures.duplicated)}, perhaps {figures.unknown} more; breakers opened: "
        f"{shown(figures.opened)}; hedges that the budget refused: {figures.refused}"
    )


def _delays_ms(scrape: Scrape) -> list[float]:
    return [value * 1_000 for value in scrape.values(_DELAY)]


class _Watch:
    """Scrapes dc1's frontends during the phases."""

    def __init__(self, site: Site, account: DcLoss, loop: OpenLoop) -> None:
        self._site = site
        self._account = account
        self._loop = loop
        self._delays_ms: list[float] = []

    async def run(self) -> None:
        """Sample the hedge delay until cancelled."""
        while True:
            await self._look()
            await trio.sleep(_SAMPLE_S)

    async def _look(self) -> Scrape:
        scrape = await in_thread(Scrape.of, *self._site.frontends)
        self._delays_ms += _delays_ms(scrape)
        return scrape

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[None]:
        """Make the block a phase of the result."""
        before = await self._look()
        # The delay at the beginning counts, too, because the phase's first messages meet it.
        self._delays_ms = _delays_ms(before)
        phase = self._loop.begin(name)
        yield
        phase.end_s = trio.current_time()
        after = await self._look()
        figures = Figures(
            grown(before.by(_SENT_AGAIN, "cause"), after.by(_SENT_AGAIN, "cause")),
            grown(before.by(_DUPLICATED, "cause"), after.by(_DUPLICATED, "cause")),
            grown(before.by(_OPENED, "cause"), after.by(_OPENED, "cause")),
            round(after.sum(_UNKNOWN) - before.sum(_UNKNOWN)),
            round(after.sum(_REFUSED) - before.sum(_REFUSED)),
            [*self._delays_ms],
        )
        self._account.phases.append((phase, figures))


async def lose_a_datacentre(site: Site, lengths: Lengths) -> DcLoss:
    """Run on a site that does not have the topics yet. On trio, as the guest of an asyncio host."""
    for topic, ack in TOPICS.items():
        create = partial(site.create_topic, topic, ack=ack, fallbackToRemoteDatacenterEnabled=True)
        await in_thread(create)
    account = DcLoss()
    loop = OpenLoop(site.frontends, list(TOPICS), rate_per_s=lengths.rate_per_s, keys=KEYS)
    watch = _Watch(site, account, loop)
    async with loop.running(), trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        # First connections, partitions and the adaptive delay must settle; this is not measured.
        await trio.sleep(_WARM_S)
        async with watch.phase("calm"):
            await trio.sleep(lengths.calm_s)
        async with watch.phase("stopped"):
            await in_thread(site.pause_kafka, "dc1")
            await trio.sleep(lengths.lost_s)
        async with watch.phase("goes on"):
            await in_thread(site.resume_kafka, "dc1")
            await trio.sleep(lengths.recovery_s)
        async with watch.phase("killed"):
            await in_thread(site.kill_kafka, "dc1")
            await trio.sleep(lengths.lost_s)
        async with watch.phase("started again"):
            await in_thread(site.start_kafka, "dc1")
            await trio.sleep(lengths.recovery_s)
        async with watch.phase("only slow"):
            await in_thread(site.slow_kafka, lengths.slow_delay_s)
            await trio.sleep(lengths.slow_s)
        async with watch.phase("fast again"):
            await in_thread(site.slow_kafka, 0.0)
            await trio.sleep(lengths.recovery_s)
        nursery.cancel_scope.cancel()
    await _until_quiet(site)
    last = await in_thread(Scrape.of, *(node.url for node in site.nodes))
    account.duplicated = {
        cause: round(count) for cause, count in last.by(_DUPLICATED, "cause").items()
    }
    account.unknown = round(last.sum(_UNKNOWN))
    servers = {dc: cluster.bootstrap_servers for dc, cluster in site.kafka.items()}
    account.copies = await read_copies(servers, list(TOPICS))
    return account


async def _until_quiet(site: Site) -> None:
    """Wait until requests that were under way at the end are stored, or never will be: until the
    counters stop changing, at most `_QUIET_S`.
    """
    before: dict[str, float] = {}
    with trio.move_on_after(_QUIET_S):
        while True:
            await trio.sleep(2.0)
            scrape = await in_thread(Scrape.of, *site.frontends)
            now = {**scrape.by(_DUPLICATED, "cause"), "unknown": scrape.sum(_UNKNOWN)}
            if now == before:
                return
            before = now
