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
    leader = dc.get("leader")
    if isinstance(leader, dict):
        age_s = leader.get("leaseAgeMs", 0) / 1_000
        led = f"led by {leader.get('node')}, heard of {age_s:.1f} s ago"
    else:
        led = "without a leader"
    line = f"{name}: term {dc.get('term', 0)}, {led}"
    skew = dc.get("skew")
    if isinstance(skew, dict) and skew.get("nodes"):
        line += f"; {skew.get('highestNode')} carries most: {skews(skew)}"
    say(printable(line))
    if isinstance(for_s := dc.get("restartingForS"), int | float):
        say(
            printable(
                f"{name}: nodes have gone, the first {span(for_s)} ago, so a restart is taken to "
                "be under way: what has moved since stays, and loads may be uneven, until no node "
                "has gone or come for ten minutes"
            )
        )


def skews(*skews: object) -> str:
    """How far the heaviest loaded node is above what could be; of several: now and then."""
    known = [each if isinstance(each, dict) else {} for each in skews]
    to_mean, to_ideal = (
        " → ".join(f"{each.get(field, 1):.2f}" for each in known)
        for field in ("maxToMean", "maxToIdeal")
    )
    return f"{to_mean} times the mean, {to_ideal} times the least possible"


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
    said = [
        word
        for word, is_so in (
            ("LEADER", member.get("isLeader")),
            ("DRAINED", member.get("isDraining")),
        )
        if is_so
    ]
    return ", ".join(said) or "MEMBER"


def _tasks(member: Fields) -> str:
    tasks, targets = member.get("tasks", 0), member.get("targets", 0)
    return str(tasks) if tasks == targets else f"{tasks} → {targets}"


def _cpu(member: Fields) -> str:
    cpu, available = member.get("cpu"), member.get("cpuAvailable")
    if not isinstance(cpu, (int, float)) or not isinstance(available, (int, float)):
        return "?"
    return f"{cpu:.2f} of {available:.2f}"


def show_owners(datacenters: Iterable[Fields]) -> None:
    """A row for each owner of each subscription, and one for each that waits to be one."""
    rows: list[list[str]] = []
    for dc in datacenters:
        for subscription in fields_of(dc, "subscriptions"):
            head = [str(dc.get("datacenter", "")), str(subscription.get("subscription", ""))]
            rows += [
                [
                    *head,
                    str(each.get("node", "")),
                    numbers(each.get("partitions")),
                    _share(each),
                    str(each.get("epoch", "")),
                    span(each.get("ownedForS")),
                    "is to release them" if each.get("isToRelease") else "",
                ]
                for each in fields_of(subscription, "owners")
            ]
            rows += [
                [
                    *head,
                    str(each.get("node", "")),
                    numbers(each.get("partitions")),
                    "-",
                    "-",
                    span(each.get("waitingForS")),
                    f"waits for {each.get('waitsFor')}",
                ]
                for each in fields_of(subscription, "waiting")
            ]
    columns = ("DC", "Subscription", "Node", "Partitions", "Share", "Epoch", "For", "Note")
    say("")
    show_rows(columns, rows, "no subscription is run", optional=("Epoch",), has_sentences=True)


def _share(owner: Fields) -> str:
    share, wanted = owner.get("share", 0.0), owner.get("wantedShare", 0.0)
    shown = f"{100 * share:.0f} %"
    return shown if abs(share - wanted) < 0.005 else f"{shown} → {100 * wanted:.0f} %"


def show_troubles(datacenters: Iterable[Fields]) -> None:
    """A line for each subscription that nobody runs and each node that is drained."""
    for dc in datacenters:
        name = dc.get("datacenter")
        for each in fields_of(dc, "unassigned"):
            say(printable(f"{name} {each.get('subscription')}: nobody runs it: {each['reason']}"))
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
    if drain.get("isIgnored"):
        return (
            f"{line}that does not count while no other node takes part that is not drained: it has "
            f"{counted(tasks, 'task')}"
        )
    unplanned = f"; for {targets} of them no other node is planned yet" if targets else ""
    return line + f"{counted(tasks, 'task')} left{unplanned}"


def show_changes(changes: Sequence[Fields]) -> None:
    """A row for each subscription whose owners would change."""
    rows = [
        [
            str(each.get("subscription", "")),
            _parts(fields_of(each, "before")),
            _parts(fields_of(each, "after")),
            f"{each.get('weight', 0):.4g}",
            str(each.get("reason", "")),
        ]
        for each in changes
    ]
    columns = ("Subscription", "Now", "Then", "Weight", "Reason")
    show_rows(columns, rows, "nothing would change", optional=("Weight",), has_sentences=True)


def _parts(parts: Iterable[Fields]) -> str:
    return ", ".join(f"{each.get('node')}[{numbers(each.get('partitions'))}]" for each in parts)


def show_planned_nodes(nodes: Sequence[Fields]) -> None:
    """A row for each node before and after."""
    rows = [
        [
            str(each.get("node", "")),
            "DRAINED" if each.get("isDraining") else "",
            f"{each.get('cores', 0):g}",
            f"{each.get('capacity', 0):.3g}",
            f"{each.get('tasksBefore', 0)} → {each.get('tasksAfter', 0)}",
            f"{each.get('weightBefore', 0):.4g} → {each.get('weightAfter', 0):.4g}",
        ]
        for each in nodes
    ]
    say("")
    columns = ("Node", "State", "Cores", "Capacity", "Tasks", "Weight")
    show_rows(columns, rows, "no node takes part", optional=("Cores",))


def show_moves(datacenters: Iterable[Fields]) -> None:
    """The last moves, departures and given-up leads of all datacentres, the newest first."""
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
            left = f"node {gone.get('node')} is gone: {gone.get('cause')}"
            found.append((at, [time_of(at), name, "", "", "", "", left]))
        for each in fields_of(dc, "resignations"):
            at = float(each.get("resignedAt", 0))
            given = f"node {each.get('node')} gave up the lead: {each.get('reason')}"
            found.append((at, [time_of(at), name, str(each.get("term", "")), "", "", "", given]))
    found.sort(key=lambda each: each[0], reverse=True)
    columns = ("Time", "DC", "Term", "Subscription", "From", "To", "Reason")
    rows = [row for _, row in found]
    show_rows(columns, rows, "no move is remembered", optional=("Term",), has_sentences=True)


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
