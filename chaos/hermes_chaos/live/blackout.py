"""Both datacentres' Kafkas die while publishers go on: every message is spooled, and stored in the
end.

The load goes to dc1's frontends, to a plain topic and a fallback topic, with the spool on for both.
In the middle one frontend is killed and restarted. Publishers do not retry.
"""

from dataclasses import dataclass, field
from functools import partial

import trio

from hermes_chaos.live.copies import Copies, read_copies
from hermes_chaos.live.open_loop import NO_ANSWER, NO_CONNECTION, OpenLoop, Sent
from hermes_chaos.live.scrape import Scrape, shown
from hermes_chaos.live.site import DCS, NodeProcess, Site

TOPICS = {"dark.plain": False, "dark.fallback": True}
VARIABLES = {"HERMES_SPOOL_FOR_FALLBACK_TOPICS": "true"}
"""The configuration of the site's nodes."""
KEYS = 200
WITHIN_S = 90.0
_WARM_S = 2.0
_ON_ITS_WAY_S = 1.0
"""For this long after its answer, a message may still be on its way to a log, or be replayed."""
_WAITING = "hermes_frontend_spool_entries"
_COUNTED = (
    "hermes_frontend_spool_written_total",
    "hermes_frontend_spool_replayed_total",
    "hermes_frontend_spool_late_acknowledgements_total",
    "hermes_frontend_spool_replay_failures_total",
    "hermes_frontend_fallback_unknown_copies_total",
    "hermes_frontend_topic_duplicated_message_total",
)

in_thread = trio.to_thread.run_sync


@dataclass(frozen=True)
class Lengths:
    """All durations in seconds, and the rate of the load."""

    rate_per_s: float = 500.0
    calm_s: float = 5.0
    dark_s: float = 20.0
    recovery_s: float = 5.0


@dataclass
class Blackout:
    """The result of a run. `settled_s`: seconds from healing until the last message was stored."""

    loop: OpenLoop
    copies: Copies = field(default_factory=Copies)
    settled_s: float = -1.0
    waiting_max: int = 0
    deaths_s: list[float] = field(default_factory=list)
    counted: dict[str, float] = field(default_factory=dict)

    @property
    def sent(self) -> list[Sent]:
        """All messages."""
        return self.loop.sent

    @property
    def dark(self) -> list[Sent]:
        """The messages due while nothing could be stored, and answered before healing."""
        return next(phase for phase in self.loop.phases if phase.name == "dark").sent

    @property
    def refused(self) -> list[Sent]:
        """The messages that were answered, but neither stored nor spooled."""
        return [
            each
            for each in self.sent
            if not each.is_accepted and each.status not in (NO_ANSWER, NO_CONNECTION)
        ]

    @property
    def unanswered(self) -> list[Sent]:
        """The messages that the killed frontend had not answered."""
        return [each for each in self.sent if each.status == NO_ANSWER]

    @property
    def doubled(self) -> list[Sent]:
        """The messages stored more than once although nothing died while they were on their way."""
        return [
            each
            for each in self.sent
            if len(self.copies.by_id.get(each.message_id, ())) > 1
            and not any(
                each.began_s - _ON_ITS_WAY_S <= death_s <= each.ended_s + _ON_ITS_WAY_S
                for death_s in self.deaths_s
            )
        ]

    @property
    def violations(self) -> list[str]:
        """The broken promises, each with its number of messages."""
        copies, sent = self.copies, self.sent
        found = {
            "refused": len(self.refused),
            "accepted and missing in both logs": len(copies.missing(sent)),
            "out of order": len(copies.disordered(sent)),
            "still waiting": self.settled_s < 0,
        }
        return [f"{count} messages: {what}" for what, count in found.items() if count]

    def report(self) -> str:
        """The result as text."""
        lines = []
        for phase in self.loop.phases:
            statuses = ", ".join(
                f"{name}: {count}" for name, count in sorted(phase.statuses.items())
            )
            lines.append(
                f"{phase.name:12} {statuses:30} latency p50 {phase.latency_ms(50):.1f} "
                f"p99 {phase.latency_ms(99):.0f} max {phase.latency_ms(100):.0f} ms, "
                f"worst gap {phase.worst_gap_ms:.0f} ms"
            )
        lines += [f"  {each.number}: {each.status} {each.error}" for each in self.refused[:5]]
        copies, sent = self.copies, self.sent
        lines.append(
            f"accepted: {sum(each.is_accepted for each in sent)} of {len(sent)}, refused "
            f"{len(self.refused)}, without an answer from the killed frontend "
            f"{len(self.unanswered)}; missing in both logs: {len(copies.missing(sent))}; out of "
            f"order: {len(copies.disordered(sent))}; all stored {self.settled_s:.1f} s after the "
            f"heal; at most {self.waiting_max} waited"
        )
        lines.append(
            f"stored more than once: {copies.extra}, of which {len(self.doubled)} were not on "
            f"their way when something died; counted: {shown(self.counted)}"
        )
        lines += [f"  {count} × {ways}" for ways, count in copies.extra_by_ways.items()]
        return "\n".join(lines)


async def black_out(site: Site, lengths: Lengths) -> Blackout:
    """Run on a site that does not have the topics yet. On trio, as the guest of an asyncio host."""
    for topic, falls_back in TOPICS.items():
        create = partial(
            site.create_topic, topic, ack="ALL", fallbackToRemoteDatacenterEnabled=falls_back
        )
        await in_thread(create)
    loop = OpenLoop(site.frontends, list(TOPICS), rate_per_s=lengths.rate_per_s, keys=KEYS)
    account = Blackout(loop)
    async with loop.running():
        await trio.sleep(_WARM_S)
        loop.begin("calm")
        await trio.sleep(lengths.calm_s)
        loop.begin("falls dark")
        account.deaths_s.append(trio.current_time())
        await in_thread(site.kill_kafka, *DCS)
        loop.begin("dark")
        await trio.sleep(lengths.dark_s / 2)
        before = await _look(site.second)
        loop.begin("killed")
        account.deaths_s.append(trio.current_time())
        await in_thread(site.second.kill)
        # It restarts soon, but is not ready before it can read its metadata.
        loop.leave_out(site.second.url)
        site.second.begin()
        await trio.sleep(lengths.dark_s / 2)
        account.waiting_max = round((await _look(*site.nodes)).sum(_WAITING))
        loop.begin("heal")
        await in_thread(site.start_kafka, *DCS)
        healed_s = trio.current_time()
        await in_thread(site.second.wait_ready)
        loop.take_in(site.second.url)
        loop.begin("after")
        await trio.sleep(lengths.recovery_s)
    with trio.move_on_after(WITHIN_S):
        while (await _look(*site.nodes)).sum(_WAITING):  # noqa: ASYNC110 -- other processes tell no event
            await trio.sleep(0.2)
        account.settled_s = trio.current_time() - healed_s
    last = await _look(*site.nodes)
    for name in _COUNTED:
        # The killed node's counters are not in those of its successor.
        count = last.sum(name) + before.sum(name)
        if count:
            account.counted[name.removeprefix("hermes_frontend_").removesuffix("_total")] = count
    servers = {dc: cluster.bootstrap_servers for dc, cluster in site.kafka.items()}
    account.copies = await read_copies(servers, list(TOPICS))
    return account


async def _look(*nodes: NodeProcess) -> Scrape:
    return await in_thread(Scrape.of, *(node.url for node in nodes))
