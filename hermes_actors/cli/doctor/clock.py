"""Whether clocks agree, by what carries the time of two of them: no time server is asked. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from hermes_actors.cli.doctor.diagnosis import Diagnosis, fine, span_of, wrong

CHECK = "clock"

_WAY_OUT = "let all machines follow the same time servers (chrony, systemd-timesyncd)"
_RECENT_MS = 60_000


class ClockSeen(Struct, frozen=True):
    """One record of a status topic: when its node wrote it by its own clock, when the log took it
    by the log's, and when it came here by ours; None: it lay there before.
    """

    node: str
    written_ms: int
    stored_ms: int
    arrived_ms: int | None


def judge_clocks(
    dc: str, seen: Sequence[ClockSeen], now_ms: int, limit_ms: int
) -> Iterator[Diagnosis]:
    """How this machine's clock and each node's differ from that of the datacentre's log."""
    about = f"log of {dc}"
    fresh = [each.stored_ms - each.arrived_ms for each in seen if each.arrived_ms is not None]
    newest_ms = max((each.stored_ms for each in seen), default=0)
    if fresh:
        # What took longer on its way makes the log's clock look late.
        yield _judged(about, max(fresh), "this machine's clock", limit_ms)
    elif newest_ms - now_ms > limit_ms:
        yield _judged(about, newest_ms - now_ms, "this machine's clock", limit_ms)
    else:
        when = f"the last one {span_of(now_ms - newest_ms)} ago" if newest_ms else "none ever"
        yield fine(CHECK, about, f"not compared: no node reports to it now, {when}")
    by_node: dict[str, list[int]] = {}
    for each in seen:
        if newest_ms - each.stored_ms <= _RECENT_MS:
            by_node.setdefault(each.node, []).append(each.stored_ms - each.written_ms)
    for node, ahead in by_node.items():
        # The others took longer on their way to the log.
        ahead_ms = min(ahead, key=abs)
        if abs(ahead_ms) > limit_ms:
            yield _judged(about, ahead_ms, f"the clock of node {node}", limit_ms)


def judge_files_clock(
    about: str, newest_ms: Iterable[float], now_ms: int, limit_ms: int
) -> Diagnosis:
    """Whether files that a node has written are from the future."""
    latest_ms = max(newest_ms, default=0.0)
    if latest_ms - now_ms <= limit_ms:
        return fine(CHECK, about, "nothing written there is from the future")
    return wrong(
        CHECK,
        about,
        f"written {span_of(latest_ms - now_ms)} in the future: this machine's clock was set back",
        f"set the clock right; {_WAY_OUT}",
    )


def _judged(about: str, ahead_ms: int, whose: str, limit_ms: int) -> Diagnosis:
    """`ahead_ms`: by how much the log's clock is ahead of that one."""
    if abs(ahead_ms) <= limit_ms:
        return fine(
            CHECK,
            about,
            f"within {span_of(abs(ahead_ms))} of {whose} (limit {span_of(limit_ms)})",
        )
    return wrong(
        CHECK,
        about,
        f"its clock is {span_of(abs(ahead_ms))} {_side(ahead_ms)} {whose}, more than "
        f"consumers.clock_skew_max_ms ({span_of(limit_ms)}): new subscriptions start at a wrong "
        "place in other datacentres",
        _WAY_OUT,
    )


def _side(ahead_ms: float) -> str:
    return "ahead of" if ahead_ms > 0 else "behind"
