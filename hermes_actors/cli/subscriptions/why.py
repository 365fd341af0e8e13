"""`hermes subscription why`: what holds a subscription back, or that nothing does."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import typer

from hermes_actors.cli.command_line.options import (
    MANAGEMENT_URL_DEFAULT,
    ManagementOption,
    Output,
    OutputOption,
    SubscriptionArgument,
    TopicArgument,
    examples,
)
from hermes_actors.cli.command_line.plain import PlainCommand, PlainGroup
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.connection.paths import subscription_path
from hermes_actors.cli.dlq.line import say_letters
from hermes_actors.cli.output.render import (
    counted,
    fields_of,
    known,
    listed,
    printable,
    say,
    show_answer,
    show_rows,
)
from hermes_actors.cli.output.times import span, time_of

app = typer.Typer(cls=PlainGroup, rich_markup_mode="rich")


@app.command(cls=PlainCommand, epilog=examples("hermes subscription why shop.orders billing"))
def why(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say for each datacentre and node what holds a subscription back, or that it is delivered."""
    with ManagementClient(management) as client:
        content = client.get(f"{subscription_path(topic, subscription)}/why")
    show_answer(content, output, partial(_show_why, topic, subscription))


def _show_why(topic: str, subscription: str, found: dict[str, Any]) -> None:
    say(f"subscription {printable(subscription)} of {printable(topic)} is {found.get('state')}")
    if found.get("state") == "SUSPENDED":
        by = f"{found['suspensionReason']}; " if found.get("suspensionReason") else ""
        way_out = f"to deliver again: 'hermes subscription activate {topic} {subscription}'"
        say(printable(by + way_out))
    datacenters = fields_of(found, "datacenters")
    rows = folded([row for each in datacenters for row in _why_rows(each)])
    nothing = "the node that was asked follows no node's status"
    show_rows(_WHY_COLUMNS, rows, nothing, has_sentences=True)
    for line in _lines(datacenters):
        say(printable(line))
    say_letters(topic, subscription, found)


_WHY_COLUMNS = ("DC", "Node", "State", "Deliv./s", "Lag", "Reason")

_LEVELS = {
    "FULL": "the endpoint gets up to {rate} a second, all that the subscription allows",
    "ADAPTING": "the endpoint gets up to {rate} a second, less than the subscription allows, as "
    "long as it fails or has just failed",
    "SLOW": "the endpoint gets a single message about each second, until one succeeds",
    "HEARTBEAT": "the endpoint gets a single message about each minute, until one succeeds",
}


_SHARE = (
    "the endpoint gets up to {rate} a second from this node: its share, {percent} % of the "
    "subscription's {rate_max}"
)


_AT_REST = ("IDLE", "")
"""States in which one node is as the next: nothing is to be done there."""
_NAMED_MAX = 3
_NEW_OWNER_S = 3_600.0
_SILENT_MS = 3_000
"""A node tells of itself each second; after three of them it may be slow, or dead."""


def _lines(datacenters: list[dict[str, Any]]) -> Iterator[str]:
    """What there is to say of each node; of those at rest once, where it is the same."""
    said: dict[tuple[str, str], list[str]] = {}
    for dc in datacenters:
        for node in fields_of(dc, "nodes"):
            where = f"{dc.get('datacenter')} {node.get('node')}"
            if words := "; ".join(_held_by(node)):
                # Of a node at work each has its own line: it is the one to look at.
                own = "" if node.get("state") in _AT_REST else where
                said.setdefault((own, words), []).append(where)
    for (_, words), places in said.items():
        yield f"{listed(places, _NAMED_MAX)}: {words}"


def folded(rows: list[list[str]]) -> list[list[str]]:
    """Rows of nodes at rest for one and the same reason are one; figures are their sums."""
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for row in rows:
        dc, node, state, *_, reason = row
        own = () if state in _AT_REST else (dc, node)
        alike.setdefault((state, reason, *own), []).append(row)
    return [rows[0] if len(rows) == 1 else _as_one(rows) for rows in alike.values()]


def _as_one(rows: list[list[str]]) -> list[str]:
    dcs, nodes, states, rates, lags, reasons = ([row[at] for row in rows] for at in range(6))
    rate = f"{sum(map(float, rates)):.1f}" if all(rates) else ""
    lag = (
        str(sum(map(int, lags)))
        if all(each.isdecimal() for each in lags)
        else ("?" if any(lags) else "")
    )
    names = listed([each for each in nodes if each], _NAMED_MAX)
    return [", ".join(dict.fromkeys(dcs)), names, states[0], rate, lag, reasons[0]]


def _held_by(node: dict[str, Any]) -> Iterator[str]:
    """What there is to say of the rate, of what is under way, and of the last failure."""
    # Of who is silent nobody knows what he does now.
    if not _silence(node):
        yield from _doing(node)
    if failure := node.get("lastFailure"):
        # The reason above may tell of it already.
        what = "" if failure in str(node.get("reason", "")) else f": {failure}"
        yield f"last failure {time_of(node.get('lastFailureAt'))}{what}"
        if "lastSuccessAt" in node:
            yield f"last success {time_of(node['lastSuccessAt'])}"
        else:
            owned_for_s = node.get("ownedForS")
            since = "since the node's start"
            if owned_for_s is not None:
                since = f"in the {span(owned_for_s)} that the node has had it"
            yield f"no success {since}"
    elif words := _taken_over(node):
        yield words
    if hint := node.get("hint"):
        yield str(hint)


def _doing(node: dict[str, Any]) -> Iterator[str]:
    """The rate that it goes by, what is under way, and what its filters leave out."""
    level = node.get("rateLevel")
    if level:
        rate, rate_max = node.get("rateNow", 0), node.get("rateMax", 0)
        text = _LEVELS.get(level, f"rate level {level}, up to {{rate}} a second")
        if level == "FULL" and rate < 0.995 * rate_max:
            text = _SHARE
        percent = 100 * rate / rate_max if rate_max else 100
        yield text.format(rate=f"{rate:.1f}", percent=f"{percent:.0f}", rate_max=f"{rate_max:g}")
    inflight, waiting = node.get("inflight", 0), node.get("waitingRetries", 0)
    if inflight or waiting:
        oldest = (
            f", the oldest {oldest_ms / 1_000:.1f} s old"
            if (oldest_ms := node.get("oldestAgeMs", 0))
            else ""
        )
        lag = max(node.get("lag", -1), inflight + waiting)
        yield (
            f"of {counted(lag, 'message')} not settled {inflight} in flight, "
            f"{waiting} waiting for a retry{oldest}"
        )
    if filtered := node.get("filtered"):
        # The reason tells of them where nothing else passes; else nothing else does.
        if "filtered out" in str(node.get("reason", "")):
            yield "Deliv./s is what the endpoint takes; what is filtered out is not in it"
        elif node.get("rate"):
            left_out = counted(filtered, "message")
            yield f"Deliv./s is without what its filters leave out: {left_out} so far"


def _silence(node: dict[str, Any]) -> str:
    """For how long a node is silent that may be dead; "" for one that is heard of."""
    # The reason of an unknown one tells of it already.
    silent_ms = node.get("heardAgoMs", 0)
    if silent_ms < _SILENT_MS or node.get("state") == "UNKNOWN":
        return ""
    return f"not heard of for {span(silent_ms / 1_000)}; told before: "


def _taken_over(node: dict[str, Any]) -> str:
    """What a new owner cannot know; "" for one of an hour and more, and where nothing is to do."""
    before, owned_for_s = node.get("takenOverFrom"), node.get("ownedForS", 0.0)
    if not before or node.get("state") in _AT_REST or owned_for_s > _NEW_OWNER_S:
        return ""
    theirs = ", ".join(map(str, before))
    return (
        f"it has been this node's for {span(owned_for_s)}, and {theirs}'s before "
        f"({node.get('takenOverBecause')}): what failed there is not told here"
    )


def _why_rows(datacenter: dict[str, Any]) -> list[list[str]]:
    """A row for each node; one with the datacentre's reason where none tells of it."""
    dc = str(datacenter.get("datacenter", ""))
    rows = [
        [
            dc,
            str(node.get("node", "")),
            str(node.get("state", "")),
            f"{node.get('rate', 0):.1f}",
            known(node.get("lag")),
            _silence(node) + str(node.get("reason", "")),
        ]
        for node in fields_of(datacenter, "nodes")
    ]
    if not rows or not datacenter.get("isKnown"):
        rows.insert(0, [dc, "", "", "", "", str(datacenter.get("reason", ""))])
    return rows
