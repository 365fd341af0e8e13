"""Filters the balancers' answers: what is not as it should be; the newest of all that happened."""

import math
from collections.abc import Iterator
from typing import Any

from hermes_actors.cli.output.render import counted, fields_of

Fields = dict[str, Any]

_HEARD_MS_MAX = 1_500
"""Twice as long as a heartbeat may usually take; a lease is twice as long again."""
_LEFT_MIN = 0.8
"""With less than this part of its cores a node is short of CPU that it was to have."""
_BUSY = 0.9
_SKEW_MAX = 1.2
_NEW_S = 60.0
"""Within so long after it has joined a node has told what it uses."""
_EVENTS = {"moves": "movedAt", "departures": "leftAt", "resignations": "resignedAt"}


def odd(dc: Fields) -> Fields:
    """The datacentre with those nodes and subscriptions only that are not as they should be."""
    return {
        **dc,
        "members": [each for each in fields_of(dc, "members") if list(odd_of_node(each, dc))],
        "subscriptions": [each for each in fields_of(dc, "subscriptions") if _is_odd(each)],
    }


def is_calm(dc: Fields) -> bool:
    """True when all of the datacentre is as it should be; `dc` has only what is odd."""
    listed = ("members", "subscriptions", "unassigned", "drained")
    return not (any(fields_of(dc, each) for each in listed) or list(odd_of_datacenter(dc)))


def odd_of_datacenter(dc: Fields) -> Iterator[str]:
    """Why the datacentre's balancer is not as it should be, in clauses."""
    if not dc.get("isKnown"):
        yield str(dc.get("reason"))
    elif not isinstance(dc.get("leader"), dict):
        yield "without a leader"
    skew = dc.get("skew")
    if isinstance(skew, dict) and skew.get("maxToIdeal", 1) > _SKEW_MAX:
        yield (
            f"{skew.get('highestNode')} carries {skew['maxToIdeal']:.2f} times the least possible"
        )


def odd_of_node(node: Fields, dc: Fields) -> Iterator[str]:
    """Why a node is not as it should be, in clauses; of drains the answer tells apart."""
    name, heard_ms = node.get("node"), node.get("heardAgoMs", 0)
    if sum(each.get("node") == name for each in fields_of(dc, "members")) > 1:
        yield "two processes take part under this name"
    if heard_ms > _HEARD_MS_MAX:
        yield f"not heard of for {heard_ms / 1_000:.1f} s"
    tasks, targets = node.get("tasks", 0), node.get("targets", 0)
    if tasks != targets:
        yield f"has {counted(tasks, 'task')} and is to have {targets}"
    cpu, left, cores = node.get("cpu"), node.get("cpuAvailable"), float(node.get("cores", 0))
    if not isinstance(cpu, int | float) or not isinstance(left, int | float):
        if node.get("memberForS", 0.0) > _NEW_S:
            yield "has not told what it uses"
        return
    if left < _LEFT_MIN * cores:
        yield f"its machine leaves it {left:.2f} of {cores:g} cores"
    if cpu > _BUSY * left:
        yield f"uses {cpu:.2f} of the {left:.2f} cores that it has"


def _is_odd(subscription: Fields) -> bool:
    owners = fields_of(subscription, "owners")
    return (
        not owners
        or bool(fields_of(subscription, "waiting"))
        or any(
            each.get("isToRelease")
            or abs(each.get("share", 0.0) - each.get("wantedShare", 0.0)) >= 0.005
            for each in owners
        )
    )


def newest(datacenters: list[Fields], limit: int) -> tuple[list[Fields], int]:
    """The datacentres with the newest `limit` events of them all, and how many were left out."""
    times = [
        _at(each, field) for dc in datacenters for field in _EVENTS for each in fields_of(dc, field)
    ]
    times.sort(reverse=True)
    if len(times) <= limit:
        return datacenters, 0
    since = times[limit - 1] if limit else math.inf
    # Of those at the same moment as the last one, as many as there is room for.
    ties = limit - sum(each > since for each in times)
    kept: list[Fields] = []
    for dc in datacenters:
        shown = dict(dc)
        for field in _EVENTS:
            if field not in dc:
                continue
            shown[field] = []
            for each in fields_of(dc, field):
                at = _at(each, field)
                if at > since or (at == since and ties > 0):
                    ties -= at == since
                    shown[field].append(each)
        kept.append(shown)
    return kept, len(times) - limit


def _at(event: Fields, field: str) -> float:
    at = event.get(_EVENTS[field])
    return float(at) if isinstance(at, int | float) else 0.0
