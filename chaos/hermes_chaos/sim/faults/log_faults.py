"""How each fault of a log begins and ends."""

from collections.abc import Callable

from hermes_actors.log.memory import MemoryLog
from hermes_chaos.sim.environment.watched_log import calm
from hermes_chaos.sim.faults.strikes import Fault, Strike

# The shares of lost datacentres that are gone and that hang; the others are slow.
_GONE_RATE = 0.3
_HUNG_RATE = 0.5


def strike_log(strike: Strike, log: MemoryLog) -> Callable[[], None]:
    """Begin a fault of a log; return what ends it. If two overlap, the first to end ends both."""
    faults, how = log.faults, strike.how
    match strike.fault:
        case Fault.LOG_SLOW:
            faults.delay_s = (0.001, 0.02 + how * 0.3)
            faults.read_delay_s = (0.0, how * 0.1)
        case Fault.LOG_FAILING:
            faults.unavailable_rate = 0.3 + how * 0.7
        case Fault.LOG_SILENT:
            faults.late_store = how < 0.5
            faults.silent = True
        case Fault.LOG_CUT:
            faults.cut()
        case Fault.DC_LOST | Fault.BLACKOUT if how < _GONE_RATE:
            faults.cut()
        case Fault.DC_LOST | Fault.BLACKOUT if how < _GONE_RATE + _HUNG_RATE:
            faults.late_store = how < _GONE_RATE + _HUNG_RATE / 2
            faults.silent = faults.reads_silent = True
        case Fault.DC_LOST | Fault.BLACKOUT:
            # Slower than any publisher waits.
            faults.delay_s = (0.3, 0.9)
            faults.read_delay_s = (0.05, 0.2)
        case Fault.ACKS_LOST:
            faults.acknowledgement_lost_rate = 0.2 + how * 0.5
        case Fault.PARTIAL:
            faults.partial_rate = 0.5 + how * 0.5
        case Fault.READS_FAILING:
            faults.reads_failing = True
        case Fault.COMMITS_FAILING:
            faults.commits_failing = True
        case Fault.STALE_COMMITS:
            faults.stale_commits = True
        case Fault.LEADER_CHANGE:
            faults.replication_stopped = True
            return lambda: _change_leader(log)
        case other:
            raise AssertionError(f"{other} is no fault of a log")
    return lambda: calm(log)


def _change_leader(log: MemoryLog) -> None:
    log.change_leader()
    calm(log)
