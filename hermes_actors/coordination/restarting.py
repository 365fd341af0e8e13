"""Whether the nodes are being restarted one after another, and since when: by the log alone."""

from collections.abc import Collection, Iterable

from hermes_actors.coordination.values import Departed, Member

PAUSE_MAX_MS = 10 * 60_000
"""A restart is over when for so long no node has gone and none has come."""
LASTS_MAX_MS = 2 * 3_600_000
"""A longer restart counts as several: nodes that come and go all day are no restart."""


def restarting_since(
    members: Collection[Member], departed: Iterable[Departed], now_ms: int
) -> int | None:
    """When the first node of the restart that is under way went, in log time; None if none is.

    Nodes that went are followed back from now, with nodes that came in between: any node that is
    gone may be the first of a restart. Who has joined since then has been restarted, or is new.
    A restart takes each node once: what went before is no part of it when one of them goes again,
    as nodes that crash do. Else what they moved would stay where it is, however uneven that is.
    """
    # Beside the time: who is gone, "" for one that comes.
    events = [(member.joined_log_ms, "") for member in members]
    events += [(each.stops_log_ms, each.node) for each in members if each.stops_log_ms is not None]
    events += [(each.gone_log_ms, each.node) for each in departed if each.gone_log_ms >= 0]
    since_ms, last_ms = None, now_ms
    gone: set[str] = set()
    for at_ms, node in sorted(events, reverse=True):
        if last_ms - at_ms > PAUSE_MAX_MS or now_ms - at_ms > LASTS_MAX_MS or node in gone:
            break
        last_ms = at_ms
        if node:
            gone.add(node)
            since_ms = at_ms
    return since_ms
