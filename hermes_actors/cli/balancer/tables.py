"""Prints the balancers' answers as tables and sentences."""

from collections.abc import Callable, Iterable, Sequence

from hermes_actors.cli.output.render import (
    Columns,
    Fields,
    counted,
    fields_of,
    say,
    show_table,
    span,
    time_of,
)


def show_heading(dc: Fields) -> None:
    """Print one line about a datacentre: whether it is known, its leader, and its balance."""
    name = dc.get("datacenter")
    if not dc.get("isKnown"):
        say(f"{name}: {dc.get('reason')}")
    led = "without a leader"
    if leader := dc.get("leader"):
        age_s = leader.get("leaseAgeMs", 0) / 1_000
        led = f"led by {leader.get('node')}, last heard from {age_s:.1f} s ago"
    line = f"{name}: term {dc.get('term', 0)}, {led}"
    skew = dc.get("skew") or {}
    if skew.get("nodes"):
        line += (
            f"; {skew.get('highestNode')} carries the most: {skew.get('maxToMean', 1):.2f} times "
            "the "
            f"mean, {skew.get('maxToIdeal', 1):.2f} times the possible minimum"
        )
    say(line)


def of_all(datacenters: Iterable[Fields], *lists: str) -> list[Fields]:
    """Return the objects in these lists of all datacentres, each with its datacentre."""
    return [
        {"datacenter": dc.get("datacenter"), **each}
        for dc in datacenters
        for name in lists
        for each in fields_of(dc, name)
    ]


def show_members(datacenters: Iterable[Fields]) -> None:
    """Print a row for each consuming node."""
    show_table(_MEMBERS, of_all(datacenters, "members"), "no node takes part")


def _state(member: Fields) -> str:
    flags = {"LEADER": member.get("isLeader"), "DRAINED": member.get("isDraining")}
    return ", ".join(word for word, is_so in flags.items() if is_so) or "MEMBER"


def _tasks(member: Fields) -> str:
    tasks, targets = member.get("tasks", 0), member.get("targets", 0)
    return str(tasks) if tasks == targets else f"{tasks} → {targets}"


def _cpu(member: Fields) -> str:
    cpu, available = member.get("cpu"), member.get("cpuAvailable")
    return "?" if cpu is None or available is None else f"{cpu:.2f} of {available:.2f}"


_MEMBERS: Columns = {
    "DC": "datacenter",
    "Node": "node",
    "State": _state,
    "Cores": lambda each: f"{each.get('cores', 0):g}",
    "Tasks": _tasks,
    "Weight": lambda each: f"{each.get('weight', 0):.4g}",
    "CPU": _cpu,
    "Heard": lambda each: f"{each.get('heardAgoMs', 0) / 1_000:.1f} s",
    "Boot": "boot",
}


def show_owners(datacenters: Iterable[Fields]) -> None:
    """Print a row for each owner of each subscription, and for each node waiting to be one."""
    rows = [
        {**subscription, **owner}
        for subscription in of_all(datacenters, "subscriptions")
        for owner in of_all([subscription], "owners", "waiting")
    ]
    say("")
    show_table(_OWNERS, rows, "no subscription runs")


def _share(owner: Fields) -> str | None:
    if "share" not in owner:
        return None
    share, wanted = owner["share"], owner.get("wantedShare", 0.0)
    shown = f"{100 * share:.0f} %"
    return shown if abs(share - wanted) < 0.005 else f"{shown} → {100 * wanted:.0f} %"


def _note(owner: Fields) -> str:
    if waited_for := owner.get("waitsFor"):
        return f"waits for {', '.join(waited_for)}"
    return "will release them" if owner.get("isToRelease") else ""


def _partitions(owner: Fields) -> str:
    return numbers(owner.get("partitions"))


_OWNERS: Columns = {
    "DC": "datacenter",
    "Subscription": "subscription",
    "Node": "node",
    "Partitions": _partitions,
    "Share": _share,
    "Epoch": "epoch",
    "For": lambda each: span(each.get("ownedForS", each.get("waitingForS"))),
    "Note": _note,
}


def show_troubles(datacenters: Sequence[Fields]) -> None:
    """Print a line for each subscription without a node, and for each drained node."""
    for each in of_all(datacenters, "unassigned"):
        name = f"{each['datacenter']} {each.get('subscription')}"
        say(f"{name}: no node runs it: {each.get('reason')}")
    for each in of_all(datacenters, "drained"):
        say(f"{each['datacenter']} {each.get('node')}: {drained(each)}")


def drained(drain: Fields) -> str:
    """Return the progress of a node's draining, as text."""
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
    """Print a row for each subscription whose owners would change."""
    columns: Columns = {
        "Subscription": "subscription",
        "Now": _parts("before"),
        "Then": _parts("after"),
        "Reason": "reason",
    }
    show_table(columns, changes, "nothing would change")


def _parts(name: str) -> Callable[[Fields], object]:
    return lambda change: [
        f"{each.get('node')}[{_partitions(each)}]" for each in fields_of(change, name)
    ]


def show_moves(datacenters: Sequence[Fields], limit: int | None) -> None:
    """Print the last moves and departures of all datacentres, newest first, at most `limit`."""
    rows = of_all(datacenters, "moves")
    for gone in of_all(datacenters, "departures"):
        cause = "its lease ran out" if gone.get("isExpired") else "it left"
        reason = f"node {gone.get('node')} is gone: {cause}"
        rows.append({**gone, "movedAt": gone.get("leftAt"), "reason": reason})
    rows.sort(key=lambda each: float(each.get("movedAt") or 0), reverse=True)
    show_table(_MOVES, rows[:limit], "no moves")


_MOVES: Columns = {
    "Time": lambda each: time_of(each.get("movedAt")),
    "DC": "datacenter",
    "Term": "term",
    "Subscription": "subscription",
    "From": "before",
    "To": "after",
    "Reason": "reason",
}


def numbers(found: object) -> str:
    """Format numbers with ranges: `0-3, 7`."""
    listed = found if isinstance(found, list) else []
    runs: list[list[int]] = []
    for number in sorted(each for each in listed if isinstance(each, int)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
