"""Whether the nodes are being restarted one after another, and since when: by the log alone."""

from collections.abc import Collection, Iterable

from hermes_actors.coordination.values import Departed, Member

PAUSE_MAX_MS = 10 * 60_000
"""A restart is over when for so long no node has gone and none has come."""
LASTS_MAX_MS = 2 * 3_600_000
"""What goes on for longer counts as several: nodes that come and go all day are no restart."""


def restarting_since(
    members: Collection[Member], departed: Iterable[Departed], now_ms: int
) -> int | None:
    """When the first node of the restart that is under way went, in log time; None if none is.

    Nodes that went are followed back from now, with nodes that came in between: any node that is
    gone may be the first of a restart. Who has joined since then has been restarted, or is new.
    """
    events = [(member.joined_log_ms, False) for member in members]
    events += [(each.stops_log_ms, True) for each in members if each.stops_log_ms is not None]
    events += [(each.gone_log_ms, True) for each in departed if each.gone_log_ms >= 0]
    since_ms, last_ms = None, now_ms
    for at_ms, is_gone in sorted(events, reverse=True):
        if last_ms - at_ms > PAUSE_MAX_MS or now_ms - at_ms > LASTS_MAX_MS:
            break
        last_ms = at_ms
        if is_gone:
            since_ms = at_ms
    return since_ms
