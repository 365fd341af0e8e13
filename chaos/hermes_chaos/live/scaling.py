"""Nodes leave and join under load, as an autoscaler wants it: nothing that was accepted gets lost.

One of three frontends leaves while its datacentre's Kafka is down: its preStop command runs, then
SIGTERM ends it, and its spool is sent from its folder when Kafka is back. Then half of the
consumers leave, and others with new names join.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.kafka.log import open_kafka_log
from hermes_actors.runtime.clock import SystemClock
from hermes_chaos.live.load import Account, Acknowledged, Subscribers, publishing
from hermes_chaos.live.logs import until
from hermes_chaos.live.owners import Owners, read_owners
from hermes_chaos.live.site import NodeProcess, Site, ask
from hermes_chaos.wanted import subscription_body

TOPICS = {"scale.plain": False, "scale.fallback": True}
THIRD = "dc1-third"
_CLOCK = SystemClock()
_ACCEPTED = (201, 202)
_UNROUTED_S = 1.0
"""How long a balancer still sends to a pod after its deletion."""
_CURRENT_S = 3.0
_PAUSE_S = 0.1
_TRIED_MAX = 10
_WITHIN_S = 240.0

in_thread = trio.to_thread.run_sync


@dataclass(frozen=True)
class Lengths:
    """All durations in seconds; the numbers of consumers nodes and of subscriptions per topic."""

    rate_per_s: float = 150.0
    calm_s: float = 5.0
    dark_s: float = 20.0
    settle_s: float = 40.0
    consumers: int = 6
    subscriptions: int = 12


class TimedAccount(Account):
    """Also measures how long messages wait from their answer to their first delivery."""

    def __init__(self, subscribers: dict[str, list[str]]) -> None:
        super().__init__(subscribers)
        self.worst_s: dict[str, float] = {}
        self._answered_s: dict[str, float] = {}

    def acknowledge(self, message_id: str, entry: Acknowledged, latency_s: float) -> None:
        """As Account does."""
        self._answered_s[message_id] = _CLOCK.monotonic_s()
        super().acknowledge(message_id, entry, latency_s)

    def deliver(
        self, subscriber: str, message_id: str, body: bytes, *, is_retry: bool = False
    ) -> None:
        """As Account does."""
        answered_s = self._answered_s.get(message_id)
        if answered_s is not None and message_id not in self.taken[subscriber]:
            name = self.phases[-1].name
            waited_s = _CLOCK.monotonic_s() - answered_s
            self.worst_s[name] = max(waited_s, self.worst_s.get(name, 0.0))
        super().deliver(subscriber, message_id, body, is_retry=is_retry)


@dataclass
class Change:
    """One change of the number of consumers: when it began, when all nodes had stopped or were
    ready, when it was looked at, and the least possible moves.
    """

    name: str
    begin_ms: int
    done_ms: int
    end_ms: int
    least: Callable[[Owners, int], int]


@dataclass
class Drill:
    """The result. `settled_s`: seconds from the end of the load to the last delivery, -1 if some
    are missing.
    """

    account: TimedAccount
    hook: tuple[int, str] = (0, "")
    hook_s: float = 0.0
    stop_s: float = 0.0
    farewell: str = ""
    drained: tuple[int, str] = (0, "")
    changes: list[Change] = field(default_factory=list)
    owners: Owners = field(default_factory=Owners)
    settled_s: float = -1.0

    @property
    def violations(self) -> list[str]:
        """The broken promises."""
        account = self.account
        found = {
            f"accepted and not delivered: {len(account.owed)}": account.owed,
            f"altered: {len(account.wrong())}": account.wrong(),
            f"preStop ended with {self.hook[0]}: {self.hook[1]}": self.hook[0] != 1,
            f"the spool was not drained: {self.drained[1]}": self.drained[0] != 0,
            "the node's log does not say what is left": not self.farewell,
        }
        return [text for text, is_broken in found.items() if is_broken]

    def report(self) -> str:
        """The figures as text."""
        account = self.account
        lines = [
            f"{phase.name:16} accepted {phase.acknowledged:6}, other answers "
            f"{dict(phase.refused)}, deliveries {phase.deliveries} of which again "
            f"{phase.duplicates} ({phase.retried} retries), longest wait "
            f"{account.worst_s.get(phase.name, 0):.1f} s"
            for phase in account.phases
        ]
        lines += [
            f"preStop took {self.hook_s:.1f} s, exit {self.hook[0]}: {self.hook[1]}",
            f"SIGTERM took {self.stop_s:.1f} s: {self.farewell}",
            f"the spool of the frontend that left: {self.drained[1]}",
        ]
        for change in self.changes:
            moved_ms = self.owners.moved_ms(change.begin_ms, change.end_ms)
            after_s = [(at_ms - change.begin_ms) / 1_000 for at_ms in moved_ms] or [0.0]
            owners, begin_ms = self.owners, change.begin_ms
            lines.append(
                f"{change.name}: {len(moved_ms)} partitions moved, least possible "
                f"{change.least(owners, begin_ms)}; from {after_s[0]:.1f} to {after_s[-1]:.1f} s "
                f"after it began, the processes had ended or were ready after "
                f"{(change.done_ms - begin_ms) / 1_000:.1f} s; each node had "
                f"{owners.each_has(begin_ms)} and then has {owners.each_has(change.end_ms)}"
            )
        lines.append(
            f"accepted {len(account.acknowledged)}, missing {len(account.owed)}, delivered again "
            f"{account.duplicates} of {account.deliveries}, all delivered {self.settled_s:.1f} s "
            "after the load"
        )
        return "\n".join([*lines, *(f"VIOLATION {each}" for each in self.violations)])


def open_site(folder: Path, lengths: Lengths) -> Site:
    """The site: two datacentres, three frontends and the consumers in dc1."""
    consumers = [f"pod-{number}" for number in range(lengths.consumers)]
    return Site(
        folder,
        {"HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": "2000"},
        more=[
            ("dc1", THIRD, "frontend"),
            ("dc2", "dc2-consumers", "consumers"),
            *(("dc1", name, "consumers") for name in consumers),
        ],
    )


async def scale(site: Site, lengths: Lengths) -> Drill:
    """Run the drill. On trio, as the guest of an asyncio host."""
    names = {
        topic: [f"{topic.partition('.')[2]}-{number}" for number in range(lengths.subscriptions)]
        for topic in TOPICS
    }
    drill = Drill(TimedAccount(names))
    subscribers = Subscribers(drill.account)
    third = site.more[0]
    rate_per_s = lengths.rate_per_s / 3
    publish = partial(publishing, drill.account, accepted=_ACCEPTED)
    async with subscribers.open():
        # The first messages come while the topics are created.
        drill.account.begin("calm")
        await in_thread(_create, site, subscribers.url, names)
        async with publish(site.frontends, rate_per_s=2 * rate_per_s):
            leaving = trio.Event()

            async def publish_to_third() -> None:
                async with publish([third.url], rate_per_s=rate_per_s):
                    await leaving.wait()
                    await trio.sleep(_UNROUTED_S)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(publish_to_third)
                await trio.sleep(lengths.calm_s)
                await _lose_frontend(site, third, drill, lengths, leaving)
            drill.account.begin("Kafka is back")
            await in_thread(site.start_kafka, "dc1")
            drill.drained = await in_thread(
                partial(third.beside, "spool", "drain", timeout_s=_WITHIN_S)
            )
            await _wait_current(drill.account)
            await trio.sleep(lengths.calm_s)
            await _change_consumers(site, drill, lengths)
        drill.account.begin("after the load")
        ended_s = trio.current_time()
        await _wait_current(drill.account, within_s=0.0)
        if not drill.account.owed:
            drill.settled_s = trio.current_time() - ended_s
    servers = site.kafka["dc1"].bootstrap_servers
    cluster = KafkaClusterConfig(bootstrap_servers=list(servers))
    async with open_kafka_log("dc1", cluster, KafkaConfig(), _CLOCK) as log:
        drill.owners = await read_owners(log)
    return drill


async def _wait_current(account: Account, within_s: float = _CURRENT_S) -> None:
    """Wait until no message has been owed for longer than this, or give up."""

    def oldest_s() -> float:
        now_s = trio.current_time()
        return max((now_s - each.at_s for each in account.owed.values()), default=0.0)

    with trio.move_on_after(_WITHIN_S):
        await until(lambda: oldest_s() <= within_s)


def _create(site: Site, url: str, names: dict[str, list[str]]) -> None:
    for topic, has_fallback in TOPICS.items():
        site.create_topic(topic, fallbackToRemoteDatacenterEnabled=has_fallback)
        for name in names[topic]:
            body = subscription_body(topic, name, url + name, subscriptionPolicy={"rate": 10_000})
            path = f"{site.first.management}/topics/{topic}/subscriptions"
            status, said = ask("POST", path, body)
            for _ in range(_TRIED_MAX):
                # A busy machine checks too slowly.
                if status != 503:
                    break
                status, said = ask("POST", path, body)
            assert status == 201, said
    # Empty messages do not count.
    pause, third = threading.Event(), site.more[0]
    while any(ask("POST", f"{third.url}/topics/{name}", {})[0] != 201 for name in TOPICS):
        pause.wait(_PAUSE_S)


async def _lose_frontend(
    site: Site, third: NodeProcess, drill: Drill, lengths: Lengths, leaving: trio.Event
) -> None:
    """Kill Kafka, then end the frontend as Kubernetes ends a pod."""
    drill.account.begin("Kafka is down")
    await in_thread(site.kill_kafka, "dc1")
    await trio.sleep(lengths.dark_s / 2)
    leaving.set()
    began_s = trio.current_time()
    hook = ("spool", "drain", "--wait", "--timeout-s", f"{lengths.dark_s / 2:g}")
    drill.hook = await in_thread(partial(third.beside, *hook, timeout_s=_WITHIN_S))
    hooked_s = trio.current_time()
    await in_thread(third.stop)
    drill.hook_s, drill.stop_s = hooked_s - began_s, trio.current_time() - hooked_s
    said = [line for line in third.said.splitlines() if " stay in " in line]
    drill.farewell = said[-1] if said else ""


async def _change_consumers(site: Site, drill: Drill, lengths: Lengths) -> None:
    half = lengths.consumers // 2
    leaving = site.more[-half:]
    names = {each.name for each in leaving}
    joining = [("dc1", f"new-pod-{number}", "consumers") for number in range(half)]

    async def change(
        name: str, step: Callable[[], object], least: Callable[[Owners, int], int]
    ) -> None:
        drill.account.begin(name)
        began_ms = _CLOCK.now_ms()
        await in_thread(step)
        done_ms = _CLOCK.now_ms()
        await trio.sleep(lengths.settle_s)
        drill.changes.append(Change(name, began_ms, done_ms, _CLOCK.now_ms(), least))

    few = lengths.consumers - half
    await change(
        f"{lengths.consumers} to {few}",
        partial(site.at_once, *(each.stop for each in leaving)),
        lambda owners, at_ms: owners.least_without(names, at_ms),
    )
    await change(
        f"{few} to {lengths.consumers}",
        partial(site.add, *joining),
        lambda owners, at_ms: owners.least_with(half, at_ms),
    )
