"""The balancers' answers as tables and sentences."""

from collections.abc import Iterable, Sequence
from typing import Any

from hermes_actors.cli.output.render import (
    counted,
    fields_of,
    printable,
    say,
    show_rows,
    span,
    time_of,
)

Fields = dict[str, Any]


def show_heading(dc: Fields) -> None:
    """One line on a datacentre: whether it is known, who leads, how even it is."""
    name = dc.get("datacenter")
    if not dc.get("isKnown"):
        say(printable(f"{name}: {dc.get('reason')}"))
    led = "without a leader"
    if leader := dc.get("leader"):
        age_s = leader.get("leaseAgeMs", 0) / 1_000
        led = f"led by {leader.get('node')}, heard of {age_s:.1f} s ago"
    line = f"{name}: term {dc.get('term', 0)}, {led}"
    skew = dc.get("skew") or {}
    if skew.get("nodes"):
        line += (
            f"; {skew.get('highestNode')} carries most: {skew.get('maxToMean', 1):.2f} times the "
            f"mean, {skew.get('maxToIdeal', 1):.2f} times the least possible"
        )
    say(printable(line))


def show_members(datacenters: Iterable[Fields]) -> None:
    """A row for each node that takes part."""
    rows = [
        [
            str(dc.get("datacenter", "")),
            str(each.get("node", "")),
            _state(each),
            f"{each.get('cores', 0):g}",
            _tasks(each),
            f"{each.get('weight', 0):.4g}",
            _cpu(each),
            f"{each.get('heardAgoMs', 0) / 1_000:.1f} s",
            str(each.get("boot", "")),
        ]
        for dc in datacenters
        for each in fields_of(dc, "members")
    ]
    columns = ("DC", "Node", "State", "Cores", "Tasks", "Weight", "CPU", "Heard", "Boot")
    show_rows(columns, rows, "no node takes part", optional=("Boot", "Cores", "CPU"))


def _state(member: Fields) -> str:
    flags = {"LEADER": member.get("isLeader"), "DRAINED": member.get("isDraining")}
    return ", ".join(word for word, is_so in flags.items() if is_so) or "MEMBER"


def _tasks(member: Fields) -> str:
    tasks, targets = member.get("tasks", 0), member.get("targets", 0)
    return str(tasks) if tasks == targets else f"{tasks} → {targets}"


def _cpu(member: Fields) -> str:
    cpu, available = member.get("cpu"), member.get("cpuAvailable")
    return "?" if cpu is None or available is None else f"{cpu:.2f} of {available:.2f}"


def show_owners(datacenters: Iterable[Fields]) -> None:
    """A row for each owner of each subscription, and one for each that waits to be one."""
    rows = [
        [str(dc.get("datacenter", "")), str(subscription.get("subscription", "")), *row]
        for dc in datacenters
        for subscription in fields_of(dc, "subscriptions")
        for row in (
            *map(_owner, fields_of(subscription, "owners")),
            *map(_waiting, fields_of(subscription, "waiting")),
        )
    ]
    columns = ("DC", "Subscription", "Node", "Partitions", "Share", "Epoch", "For", "Note")
    say("")
    show_rows(columns, rows, "no subscription is run", optional=("Epoch",), has_sentences=True)


def _owner(owner: Fields) -> list[str]:
    share, wanted = owner.get("share", 0.0), owner.get("wantedShare", 0.0)
    shown = f"{100 * share:.0f} %"
    return [
        str(owner.get("node", "")),
        numbers(owner.get("partitions")),
        shown if abs(share - wanted) < 0.005 else f"{shown} → {100 * wanted:.0f} %",
        str(owner.get("epoch", "")),
        span(owner.get("ownedForS")),
        "is to release them" if owner.get("isToRelease") else "",
    ]


def _waiting(target: Fields) -> list[str]:
    partitions, since = numbers(target.get("partitions")), span(target.get("waitingForS"))
    note = f"waits for {_listed(target.get('waitsFor'))}"
    return [str(target.get("node", "")), partitions, "-", "-", since, note]


def show_troubles(datacenters: Iterable[Fields]) -> None:
    """A line for each subscription that nobody runs and each node that is drained."""
    for dc in datacenters:
        name = dc.get("datacenter")
        for each in fields_of(dc, "unassigned"):
            reason = each.get("reason")
            say(printable(f"{name} {each.get('subscription')}: nobody runs it: {reason}"))
        for each in fields_of(dc, "drained"):
            say(printable(f"{name} {each.get('node')}: {drained(each)}"))


def drained(drain: Fields) -> str:
    """How far a node's draining has come."""
    tasks, targets = drain.get("tasks", 0), drain.get("targets", 0)
    by = f" by {drain['by']}" if drain.get("by") else ""
    why = f" ({drain['reason']})" if drain.get("reason") else ""
    line = f"drained{by} since {time_of(drain.get('since'))}{why}: "
    if not drain.get("isMember"):
        return line + "it does not take part"
    if not tasks:
        return line + "empty"
    line += f"{counted(tasks, 'task')} left"
    if drain.get("isIgnored"):
        return f"{line}, which it keeps: all nodes that take part are drained"
    return f"{line}; for {targets} of them no other node is planned yet" if targets else line


def show_changes(changes: Sequence[Fields]) -> None:
    """A row for each subscription whose owners would change."""
    rows = [
        [
            str(each.get("subscription", "")),
            _parts(fields_of(each, "before")),
            _parts(fields_of(each, "after")),
            str(each.get("reason", "")),
        ]
        for each in changes
    ]
    columns = ("Subscription", "Now", "Then", "Reason")
    show_rows(columns, rows, "nothing would change", has_sentences=True)


def _parts(parts: Iterable[Fields]) -> str:
    return ", ".join(f"{each.get('node')}[{numbers(each.get('partitions'))}]" for each in parts)


def show_moves(datacenters: Iterable[Fields], limit: int | None) -> None:
    """The last moves and departures of all datacentres, at most `limit`, the newest first."""
    found: list[tuple[float, list[str]]] = []
    for dc in datacenters:
        name = str(dc.get("datacenter", ""))
        for move in fields_of(dc, "moves"):
            at = float(move.get("movedAt", 0))
            moved = [_listed(move.get("before")), _listed(move.get("after"))]
            what = [str(move.get("term", "")), str(move.get("subscription", "")), *moved]
            found.append((at, [time_of(at), name, *what, str(move.get("reason", ""))]))
        for gone in fields_of(dc, "departures"):
            at = float(gone.get("leftAt", 0))
            cause = "its lease ran out" if gone.get("isExpired") else "it left"
            gone_node = f"node {gone.get('node')} is gone: {cause}"
            found.append((at, [time_of(at), name, "", "", "", "", gone_node]))
    found.sort(key=lambda each: each[0], reverse=True)
    columns = ("Time", "DC", "Term", "Subscription", "From", "To", "Reason")
    rows = [row for _, row in found[:limit]]
    show_rows(columns, rows, "no move is shown", optional=("Term",), has_sentences=True)


def _listed(names: object) -> str:
    return ", ".join(map(str, names)) if isinstance(names, list) and names else "-"


def numbers(found: object) -> str:
    """Numbers with runs of them drawn together: `0-3, 7`."""
    listed = found if isinstance(found, list) else []
    runs: list[list[int]] = []
    for number in sorted(each for each in listed if isinstance(each, int)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
