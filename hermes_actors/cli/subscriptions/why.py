"""`hermes subscription why`: what holds a subscription back, or that nothing does."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import typer

from hermes_actors.cli.administration.resource import SUBSCRIPTION, subscription_path
from hermes_actors.cli.command_line.options import Output, OutputOption
from hermes_actors.cli.command_line.plain import PlainGroup
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.dlq.selection import say_letters
from hermes_actors.cli.output.render import (
    counted,
    fields_of,
    known,
    listed,
    printable,
    say,
    say_wrapped,
    show_answer,
    show_rows,
    span,
    time_of,
)
from hermes_actors.cli.output.watching import WatchOption, watched

app = typer.Typer(cls=PlainGroup, rich_markup_mode="rich")


@management_command(
    app, "hermes subscription why shop.orders billing", arguments=SUBSCRIPTION.arguments
)
def why(
    client: ManagementClient,
    topic: str,
    subscription: str,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say for each datacentre and node what holds a subscription back, or that it is delivered."""
    path = f"{subscription_path(topic, subscription)}/why"
    show_one = partial(_show_why, topic, subscription)
    watched(lambda: show_answer(client.get(path), output, show_one), watch)


def _show_why(topic: str, subscription: str, found: dict[str, Any]) -> None:
    say(f"subscription {printable(subscription)} of {printable(topic)} is {found.get('state')}")
    if found.get("state") == "SUSPENDED":
        by = f"{found['suspensionReason']}; " if found.get("suspensionReason") else ""
        way_out = f"to deliver again: 'hermes subscription activate {topic} {subscription}'"
        say(printable(by + way_out))
    groups = alike(fields_of(found, "datacenters"))
    nothing = "the node that was asked follows no node's status"
    show_rows(_WHY_COLUMNS, [_row(each) for each in groups], nothing, has_sentences=True)
    for group in groups:
        if words := "; ".join(_held_by(group)):
            say_wrapped(f"{listed(group['places'], _NAMED_MAX)}: {words}")
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
    "the endpoint gets up to {rate} a second from {who}, {percent} % of the "
    "subscription's {rate_max}"
)


_AT_REST = ("IDLE", "")
"""States in which nothing is to be done."""
_FIGURES = re.compile(r"[0-9.]+ ?(?:s|min|h|d)?\b")
_NAMED_MAX = 3
_NEW_OWNER_S = 3_600.0
_SILENT_MS = 3_000
"""A node tells of itself each second; after three of them it may be slow, or dead."""


def alike(datacenters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The nodes, those of which the same is to be told as one: what differs in figures alone.

    Counts and rates are sums then, times the latest, and words those of the node that is furthest
    behind. `dcs`, `nodes` and `places` say which nodes they are. A datacentre that no node tells of
    stands for itself.
    """
    groups: dict[object, list[dict[str, Any]]] = {}
    for dc in datacenters:
        name = str(dc.get("datacenter", ""))
        nodes = fields_of(dc, "nodes")
        if not nodes or not dc.get("isKnown"):
            reason = str(dc.get("reason", ""))
            groups.setdefault(("", reason), []).append({"dc": name, "reason": reason})
        for node in nodes:
            groups.setdefault(_kind(node), []).append({**node, "dc": name})
    return [_as_one(nodes) for nodes in groups.values()]


def _kind(node: dict[str, Any]) -> object:
    """Return a key that is the same for nodes that are told of as one."""
    failure, reason = str(node.get("lastFailure", "")), str(node.get("reason", ""))
    told = _FIGURES.sub("#", reason.replace(failure, ""))
    share = f"{node.get('rateNow', 0):.1f}" if node.get("rateLevel") == "FULL" else ""
    is_silent, before = bool(_silence(node)), _taken_over(node)
    has_succeeded = "lastSuccessAt" in node
    return (
        *(node.get("state"), node.get("rateLevel"), share, failure, told, is_silent),
        *(before, has_succeeded, node.get("hint")),
    )


_SUMS = ("rate", "inflight", "waitingRetries", "filtered", "attempts")
_LATEST = (
    "lastFailureAttempt",
    "lastFailureAt",
    "lastSuccessAt",
    "oldestAgeMs",
    "ownedForS",
    "heardAgoMs",
    "rateNow",
)


def _as_one(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    furthest = max(nodes, key=lambda each: int(each.get("lag", -1)))
    one = {**furthest}
    for name in _SUMS:
        if any(name in each for each in nodes):
            one[name] = sum(each.get(name, 0) for each in nodes)
    for name in _LATEST:
        if any(name in each for each in nodes):
            one[name] = max(each.get(name, 0) for each in nodes)
    lags = [each["lag"] for each in nodes if "lag" in each]
    if lags:
        one["lag"] = -1 if min(lags) < 0 else sum(lags)
    one["dcs"] = list(dict.fromkeys(each["dc"] for each in nodes))
    one["nodes"] = [str(each["node"]) for each in nodes if "node" in each]
    one["places"] = [f"{each['dc']} {each.get('node', '')}".strip() for each in nodes]
    return one


def _held_by(node: dict[str, Any]) -> Iterator[str]:
    """Give what there is to say of the rate, of what is in flight, of latency, and of the last
    failure.
    """
    # Of who is silent nobody knows what he does now.
    if not _silence(node):
        yield from _doing(node)
    if latency := node.get("latencyMs"):
        p50, p99 = latency.get("p50", 0) / 1_000, latency.get("p99", 0) / 1_000
        yield f"pushes of the last minute took {p50:.3g} s (half), {p99:.3g} s (99 %) at most"
    if failure := node.get("lastFailure"):
        # The reason above may tell of it already.
        what = "" if failure in str(node.get("reason", "")) else f": {failure}"
        attempt = node.get("lastFailureAttempt", 0)
        which = f" (attempt {attempt} of its message)" if attempt else ""
        yield f"last failure {time_of(node.get('lastFailureAt'))}{which}{what}"
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
    """Give the rate that it goes by, what is in flight, and what its filters leave out."""
    level = node.get("rateLevel")
    if level:
        rate, rate_max = node.get("rateNow", 0), node.get("rateMax", 0)
        text = _LEVELS.get(level, f"rate level {level}, up to {{rate}} a second")
        if level == "FULL" and rate < 0.995 * rate_max:
            text = _SHARE
        if level == "FULL" and "rateMax" not in node:
            text = "the endpoint gets as much as it takes: the subscription has no limit"
        percent = 100 * rate / rate_max if rate_max else 100
        who = (
            "each of these nodes: their share" if len(node["nodes"]) > 1 else "this node: its share"
        )
        yield text.format(
            rate=f"{rate:.1f}", percent=f"{percent:.0f}", rate_max=f"{rate_max:g}", who=who
        )
    inflight, waiting = node.get("inflight", 0), node.get("waitingRetries", 0)
    if inflight or waiting:
        oldest = (
            f", the oldest {span(oldest_ms / 1_000)} old"
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
    """Return for how long a node is silent that may be dead; "" for one that is heard of."""
    # The reason of an unknown one tells of it already.
    silent_ms = node.get("heardAgoMs", 0)
    if silent_ms < _SILENT_MS or node.get("state") == "UNKNOWN":
        return ""
    return f"not heard of for {span(silent_ms / 1_000)}; told before: "


def _taken_over(node: dict[str, Any]) -> str:
    """Return what a new owner cannot know; "" once it has been one for an hour, and where nothing
    is to do.
    """
    before, owned_for_s = node.get("takenOverFrom"), node.get("ownedForS", 0.0)
    if not before or node.get("state") in _AT_REST or owned_for_s > _NEW_OWNER_S:
        return ""
    theirs = ", ".join(map(str, before))
    return (
        f"it has been this node's for {span(owned_for_s)}, and {theirs}'s before "
        f"({node.get('takenOverBecause')}): what failed there is not told here"
    )


def _row(group: dict[str, Any]) -> list[str]:
    reason = str(group.get("reason", ""))
    if not group["nodes"]:
        return [", ".join(group["dcs"]), "", "", "", "", reason]
    return [
        ", ".join(group["dcs"]),
        listed(group["nodes"], _NAMED_MAX),
        str(group.get("state", "")),
        f"{group.get('rate', 0):.1f}",
        known(group.get("lag")),
        _silence(group) + reason,
    ]
