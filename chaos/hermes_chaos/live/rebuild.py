"""A datacentre is lost with all its data under load, and rebuilt: what its publishers and
subscribers lose, and when everything is back.

Publishers send to both datacentres all the time. No topic falls back, so a message is where its
publisher sent it. One subscription is up to date, one is suspended until the loss, and one was
moved by a retransmission long before. Meanwhile one topic is deleted and one is created.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from hermes_chaos.live.load import Account, Subscribers, publishing
from hermes_chaos.live.logs import until
from hermes_chaos.live.site import Site, ask
from hermes_chaos.wanted import subscription_body, topic_body

TOPIC, DELETED, CREATED = "rebuilt.orders", "rebuilt.deleted", "rebuilt.created"
PROMPT, HELD, MOVED = "prompt", "held", "moved"
VARIABLES = {"HERMES_MANAGEMENT_ALLOW_REMOVAL": "true"}
"""The configuration of the site's nodes."""
_OLDER: list[dict[str, int]] = [{}] * 1_000
"""More messages in dc2's old log than its new one gets."""
_AT_LEAST = 20
"""So many messages are acknowledged in dc2 before it is lost."""
_WITHIN_S = 120.0
_AT = f"/topics/{TOPIC}/subscriptions"

in_thread = trio.to_thread.run_sync


@dataclass(frozen=True)
class Lengths:
    """All durations in seconds, and the rate of the load."""

    rate_per_s: float = 200.0
    calm_s: float = 10.0
    lost_s: float = 20.0
    recovery_s: float = 10.0


@dataclass
class Rebuild:
    """The result of a run. `lost` are the (subscriber, id) that were owed in dc2 at its loss,
    `missing` those never delivered. The seconds in `after_s` count from the loss, or from the
    rebuilt Kafka's start.
    """

    account: Account
    lost: set[tuple[str, str]] = field(default_factory=set)
    missing: set[tuple[str, str]] = field(default_factory=set)
    after_s: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def violations(self) -> list[str]:
        """The broken promises."""
        found = {
            "lost although acknowledged elsewhere or later": len(self.missing - self.lost),
            "delivered with another body": len(self.account.wrong()),
        }
        return [f"{count} messages: {what}" for what, count in found.items() if count] + self.wrong

    def report(self) -> str:
        """The result as text."""
        account, lines = self.account, []
        for phase in account.phases:
            refused = ", ".join(f"{why}: {count}" for why, count in phase.refused.items())
            lines.append(
                f"{phase.name:8} 201: {phase.acknowledged}, deliveries {phase.deliveries}, "
                f"twice {phase.duplicates}, not 201: {refused or 'none'}"
            )
        for name in (PROMPT, HELD, MOVED):
            lost = sum(each == name for each, _ in self.missing)
            owed = sum(each == name for each, _ in self.lost)
            lines.append(
                f"{name:8} got {len(account.taken[name])}, lost {lost} of {owed} that waited in dc2"
            )
        lines += [f"{seconds:6.1f} s {what}" for what, seconds in self.after_s.items()]
        return "\n".join([*lines, *(self.violations or ["no violations"])])


async def rebuild_a_datacentre(site: Site, lengths: Lengths) -> Rebuild:
    """Run on a site whose nodes deliver. On trio, as the guest of an asyncio host."""
    account = Account({TOPIC: [PROMPT, HELD, MOVED]})
    result = Rebuild(account)
    account.begin("calm")
    subscribers = Subscribers(account)
    async with subscribers.open():
        await in_thread(_prepare, site, subscribers.url)
        async with publishing(
            account, [*site.frontends, site.other.url], rate_per_s=lengths.rate_per_s
        ):
            await trio.sleep(lengths.calm_s)
            await until(lambda: _acknowledged(account, site.other.url) >= _AT_LEAST)
            await _lose(site, result)
            await trio.sleep(lengths.lost_s)
            await _rebuild(site, result)
            await trio.sleep(lengths.recovery_s)
        with trio.move_on_after(_WITHIN_S):
            await until(lambda: account.owed.keys() <= result.lost)
    result.missing = set(account.owed)
    return result


def _prepare(site: Site, url: str) -> None:
    for topic in (TOPIC, DELETED):
        site.create_topic(topic)
    management = site.first.management
    status, said = ask("POST", f"{site.other.url}/topics/{TOPIC}/batch", _OLDER)
    assert status == 200, said
    for name in (PROMPT, HELD, MOVED):
        body = subscription_body(TOPIC, name, url + name, subscriptionPolicy={"rate": 10_000})
        _must(partial(ask, "POST", f"{management}{_AT}", body))
    for node in (site.first, site.other):
        _must(partial(ask, "GET", f"{node.management}{_AT}/{MOVED}/state"), "ACTIVE")
    _must(partial(ask, "PUT", f"{management}{_AT}/{MOVED}/retransmission", {"to": "end"}))
    _must(partial(ask, "PUT", f"{management}{_AT}/{HELD}/state", "SUSPENDED"))


async def _lose(site: Site, result: Rebuild) -> None:
    account, began_s = result.account, trio.current_time()
    account.begin("lost")
    await in_thread(site.lose_dc2)
    # Pushes under way have ended.
    await trio.sleep(1.0)
    result.lost = {owed for owed, each in account.owed.items() if each.frontend == site.other.url}
    await until(lambda: all(_latest(account, url) > began_s for url in site.frontends))
    result.after_s["publishing goes on in dc1"] = (
        min(_latest(account, url) for url in site.frontends) - began_s
    )
    management = site.first.management
    await in_thread(_must, partial(ask, "DELETE", f"{management}/topics/{DELETED}"))
    await in_thread(_must, partial(ask, "POST", f"{management}/topics", topic_body(CREATED)))
    active = partial(ask, "PUT", f"{management}{_AT}/{HELD}/state", "ACTIVE")
    await in_thread(_must, active)
    at_s = trio.current_time()

    def is_owed() -> bool:
        return any(
            owed[0] == HELD and each.at_s < at_s and owed not in result.lost
            for owed, each in account.owed.items()
        )

    await until(lambda: not is_owed())
    result.after_s["until the resumed one has all of dc1"] = trio.current_time() - at_s


async def _rebuild(site: Site, result: Rebuild) -> None:
    account, after_s = result.account, result.after_s
    account.begin("rebuilt")
    await in_thread(site.start_kafka, "dc2")
    began_s = trio.current_time()
    known = await in_thread(ask, "GET", f"{site.first.management}/topics")
    site.other.begin()
    await in_thread(site.other.wait_ready)
    after_s["until dc2's node runs"] = trio.current_time() - began_s
    await in_thread(_must, partial(ask, "GET", f"{site.other.management}/topics"), known[1])
    after_s["until dc2 has all metadata"] = trio.current_time() - began_s
    await until(lambda: _latest(account, site.other.url) > began_s)
    after_s["until dc2 takes messages"] = _latest(account, site.other.url) - began_s
    if DELETED in known[1] or CREATED not in known[1]:
        result.wrong.append(f"the topics are {known[1]}")


def _acknowledged(account: Account, url: str) -> int:
    return sum(each.frontend == url for each in account.acknowledged.values())


def _latest(account: Account, url: str) -> float:
    return account.latest_s.get((url, TOPIC), 0.0)


def _must(attempt: Callable[[], tuple[int, Any]], wanted: Any = None) -> None:
    """Repeat until it succeeds, and answers what is wanted."""
    pause = threading.Event()
    answer: tuple[int, Any] = (0, None)
    for _ in range(int(_WITHIN_S / 0.1)):
        answer = attempt()
        if answer[0] in (200, 201) and wanted in (None, answer[1]):
            return
        pause.wait(0.1)
    raise AssertionError(f"not within {_WITHIN_S:.0f} s; at last {answer}")
