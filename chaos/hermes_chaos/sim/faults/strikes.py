"""The kinds of faults, and plans: what goes wrong, when and for how long."""

import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """The kinds of strikes."""

    ACTOR_CRASH = "actor crash"
    NODE_KILL = "node kill"
    NODE_STOP = "node stop"
    LOG_SLOW = "log slow"
    LOG_FAILING = "log failing"
    LOG_SILENT = "log silent"
    LOG_CUT = "log cut"
    ACKS_LOST = "log acks lost"
    PARTIAL = "log partial"
    READS_FAILING = "log reads failing"
    COMMITS_FAILING = "log commits failing"
    STALE_COMMITS = "log stale commits"
    LEADER_CHANGE = "log leader change"
    RETENTION = "log retention"
    SUBSCRIBER = "subscriber mood"
    SUBSCRIBER_DEAD = "subscriber dead"
    SKEW = "wall clock skew"
    DC_LOST = "datacentre lost"
    BLACKOUT = "all datacentres lost"
    NOT_READY = "datacentre not ready"
    DISK_FULL = "disk full"
    DISK_FAILING = "disk failing"
    DISK_SLOW = "disk slow"
    SPOOLED_KILL = "node kill with a spool"
    NODE_PAUSE = "node pause"
    ROLLING = "rolling restart"
    LOG_CLOCK = "log clock steps"
    COORDINATION_SLOW = "coordination slow"
    COORDINATION_CUT = "coordination cut"
    COORDINATION_ACKS_LOST = "coordination acks lost"
    COORDINATION_FAILING = "coordination failing"
    DC_RESTART = "all nodes restarted"
    PARTITIONS = "partitions added"
    LATE_COMMITS = "node kill with commits under way"
    LEASE_EDGE = "cut off for about a lease"
    END_LOST = "log end lost"


_WEIGHTS = {
    Fault.ACTOR_CRASH: 5,
    Fault.NODE_KILL: 4,
    Fault.NODE_STOP: 2,
    Fault.LOG_SLOW: 2,
    Fault.LOG_FAILING: 2,
    Fault.LOG_SILENT: 1,
    Fault.LOG_CUT: 1,
    Fault.ACKS_LOST: 3,
    Fault.PARTIAL: 2,
    Fault.READS_FAILING: 1,
    Fault.COMMITS_FAILING: 2,
    Fault.STALE_COMMITS: 1,
    Fault.LEADER_CHANGE: 1,
    Fault.RETENTION: 1,
    Fault.SUBSCRIBER: 6,
    Fault.SUBSCRIBER_DEAD: 1,
    Fault.SKEW: 2,
    Fault.DC_LOST: 6,
    Fault.BLACKOUT: 3,
    Fault.NOT_READY: 1,
    Fault.DISK_FULL: 1,
    Fault.DISK_FAILING: 1,
    Fault.DISK_SLOW: 1,
    Fault.SPOOLED_KILL: 2,
    Fault.NODE_PAUSE: 6,
    Fault.ROLLING: 1,
    Fault.LOG_CLOCK: 3,
    Fault.COORDINATION_SLOW: 3,
    Fault.COORDINATION_CUT: 2,
    Fault.COORDINATION_ACKS_LOST: 1,
    Fault.COORDINATION_FAILING: 2,
    Fault.DC_RESTART: 3,
    Fault.PARTITIONS: 2,
    Fault.LATE_COMMITS: 2,
    Fault.LEASE_EDGE: 3,
    Fault.END_LOST: 2,
}
_INSTANT = frozenset((Fault.ACTOR_CRASH, Fault.RETENTION, Fault.PARTITIONS, Fault.END_LOST))
_LASTS_LEAST_S = 0.3
# Losing a datacentre lasts longer than other faults, and a dead endpoint until the few attempts at
# it show.
_LONGER = dict.fromkeys(
    (
        Fault.DC_LOST,
        Fault.BLACKOUT,
        Fault.NOT_READY,
        Fault.NODE_PAUSE,
        Fault.COORDINATION_SLOW,
        Fault.COORDINATION_CUT,
        Fault.COORDINATION_FAILING,
    ),
    2.0,
) | {Fault.SUBSCRIBER_DEAD: 4.0}


@dataclass(frozen=True)
class Strike:
    """One fault: when, for how long, and numbers in [0, 1) that choose where and how hard."""

    at_s: float
    lasts_s: float
    fault: Fault
    where: float
    how: float


def draw_plan(
    rng: random.Random,
    *,
    strikes: int,
    lasts_max_s: float,
    begin_s: float,
    end_s: float,
    faults: Collection[Fault] = frozenset(Fault),
) -> list[Strike]:
    """Draw `strikes` of these faults between the two times, in order, each ending in time. Pure."""
    kinds = [fault for fault in _WEIGHTS if fault in faults]
    weights = [_WEIGHTS[fault] for fault in kinds]
    plan = []
    for _ in range(strikes):
        fault = rng.choices(kinds, weights)[0]
        lasts_s = 0.0 if fault in _INSTANT else rng.uniform(_LASTS_LEAST_S, lasts_max_s)
        lasts_s *= _LONGER.get(fault, 1.0)
        at_s = rng.uniform(begin_s, end_s)
        plan.append(Strike(at_s, lasts_s, fault, rng.random(), rng.random()))
    return sorted(plan, key=lambda strike: strike.at_s)
