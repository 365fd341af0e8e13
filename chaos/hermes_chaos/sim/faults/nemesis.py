"""The nemesis: carries out a plan of faults, drawn from the seed before the run.

Each strike begins, lasts, and ends; in the end everything is healed. The nemesis reaches the world
through a small seam, so that it can be used with other worlds.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

from hermes_actors.log.memory import MemoryLog
from hermes_chaos.sim.environment.clock import DAY_MS, EPOCH_MS
from hermes_chaos.sim.environment.subscribers import DEATHS, FAULTS
from hermes_chaos.sim.environment.watched_log import calm
from hermes_chaos.sim.faults.log_faults import strike_log
from hermes_chaos.sim.faults.strikes import Fault, Strike
from hermes_chaos.sim.faults.victims import Victims
from hermes_chaos.sim.history.events import (
    Calmed,
    Forgotten,
    History,
    Troubled,
    coordination_of,
    disk_of,
    readiness_of,
)
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.workload.plans import LEADER_TOPICS, LEDGER

T = TypeVar("T")

# The product tolerates clocks that differ by 5 s.
_SKEW_SPAN_MS = 4_000
_COORDINATION = frozenset(
    (
        Fault.COORDINATION_SLOW,
        Fault.COORDINATION_CUT,
        Fault.COORDINATION_ACKS_LOST,
        Fault.COORDINATION_FAILING,
    )
)
_POLL_S = 0.02
_READINESS_PAUSE_S = 0.3
_SPOOLED_WITHIN_S = 4.0
_SLOW_DISK_MAX_S = 0.6
_CLOCK_STEPS_MS = (-3_600_000, -2_500, -600, 600, 2_500, 3_600_000)
# A lease tolerates one step of a log's clock.
_STEP_PAUSE_S = 4.0
_COORDINATION_SLOW_MAX_S = 3.0
_ONE_NODE_RATE = 0.6
_BEHIND_RATE = 0.5
_BEHIND_MAX_S = 2.5
_CLOCK_SET_S = 0.5
_ROLLING_DOWN_S = 0.3
_ROLLING_PAUSE_S = 0.7
_FORGOTTEN_RATE = 0.5
_ASLEEP_RATE = 0.3
# Longer than a lease may be open; in production it would be hours.
_FENCED_S = 2.5
# The fence is 2 s, the lease 3 s. In between, only the fence stops a node from using partitions of
# another.
_EDGE_BEFORE_S = 1.0
_EDGE_LEAST_S = 0.8
_EDGE_SPAN_S = 1.6
_EDGE_STEP_MS = 1_000
# By then the next owner has started, and checks whether a late commit overwrites its own.
_LATE_LEAST_S = 3.5
_LATE_MAX_S = 8.0
_LOST_MAX = 5
_READ_WITHIN_S = 4.0
_DYING_S = 0.001
# Longer than the coordination log's retention.
_AWAY_MS = 7 * 3_600_000
_FAILING_LEAST = 0.3
_PARTITIONS_MAX = 5


class Nemesis:
    """Carries out a plan. `strike` begins a fault; `heal` ends all of them for good."""

    def __init__(self, victims: Victims, history: History, trace: Trace) -> None:
        self._victims = victims
        self._history = history
        self._trace = trace
        self._is_over = False
        # By datacentre: when its log's clock was last set forward; inf while it is off.
        self._stepped_s: dict[str, float] = {}
        # Datacentres whose logs' clocks stay ahead, because hours have passed in which they forgot.
        self._forgetful: list[str] = []

    async def run(self, plan: Sequence[Strike]) -> None:
        """Carry out the plan; returns when the last fault has ended."""
        async with trio.open_nursery() as nursery:
            for strike in plan:
                nursery.start_soon(self._carry_out, strike)

    def heal(self) -> None:
        """End every fault. Nodes that are down come back by themselves."""
        self._is_over = True
        for log in self._victims.logs:
            calm(log)
            if log.dc not in self._forgetful:
                log.clock.skew_ms = 0
            self._history.tell(Calmed(log.dc, trio.current_time()))
            self._history.tell(Calmed(coordination_of(log.dc), trio.current_time()))
            self._history.tell(Calmed(readiness_of(log.dc), trio.current_time()))
        for endpoint in self._victims.endpoints:
            endpoint.heal()
        for node in self._victims.node_names:
            self._victims.skew(node, 0)
            self._victims.go_on(node)
            self._victims.way(node).calm()
            self._victims.disk(node).heal()
            self._history.tell(Calmed(disk_of(node), trio.current_time()))
        self._trace.note("nemesis", "healed")

    async def _carry_out(self, strike: Strike) -> None:
        await trio.sleep_until(strike.at_s)
        if strike.fault is Fault.SPOOLED_KILL:
            await self._kill_with_a_spool(strike)
            return
        if strike.fault is Fault.NOT_READY:
            await self._forbid(strike)
            return
        if strike.fault is Fault.NODE_PAUSE:
            await self._pause(strike)
            return
        if strike.fault is Fault.END_LOST:
            await self._lose_end(strike)
            return
        if strike.fault is Fault.LEASE_EDGE:
            await self._hold_to_the_edge(strike)
            return
        if strike.fault is Fault.ROLLING:
            await self._restart_all(strike)
            return
        if strike.fault is Fault.DC_RESTART:
            await self._kill_all(strike)
            return
        lift = self._strike(strike)
        if lift is None:
            return
        await trio.sleep(strike.lasts_s)
        if not self._is_over:
            lift()
            self._trace.note("nemesis", f"lifted {strike.fault.value}")

    def _strike(self, strike: Strike) -> Callable[[], None] | None:
        """Begin the fault; return what ends it, or None if nothing has to be ended."""
        match strike.fault:
            case Fault.ACTOR_CRASH:
                self._crash(strike)
                return None
            case Fault.NODE_KILL | Fault.NODE_STOP:
                node = _pick(self._victims.node_names, strike.where)
                kills = strike.fault is Fault.NODE_KILL
                end = self._victims.kill if kills else self._victims.stop
                if end(node, strike.lasts_s):
                    self._note(strike.fault, node)
                return None
            case Fault.LATE_COMMITS:
                node = _pick(self._victims.node_names, strike.where)
                after_s = _LATE_LEAST_S + strike.how * (_LATE_MAX_S - _LATE_LEAST_S)
                if self._victims.kill(node, strike.lasts_s, after_s):
                    self._note(strike.fault, node)
                return None
            case Fault.RETENTION:
                log = _pick(self._victims.logs, strike.where)
                self._note(strike.fault, log.dc)
                # As if older records had reached their topics' retention of one day.
                log.expire(EPOCH_MS + int((trio.current_time() - strike.how * 2) * 1_000) + DAY_MS)
                return None
            case Fault.SUBSCRIBER:
                return self._upset(strike)
            case Fault.SUBSCRIBER_DEAD:
                return self._deaden(strike)
            case Fault.SKEW:
                node = _pick(self._victims.node_names, strike.where)
                self._note(strike.fault, node)
                self._victims.skew(node, int((strike.how - 0.5) * _SKEW_SPAN_MS))
                return lambda: self._victims.skew(node, 0)
            case Fault.DISK_FULL | Fault.DISK_FAILING | Fault.DISK_SLOW:
                return self._spoil(strike)
            case Fault.BLACKOUT:
                return self._black_out(strike)
            case Fault.LOG_CLOCK:
                return self._set_clock(strike)
            case Fault.PARTITIONS:
                log = _pick(self._victims.logs, strike.where)
                if log.grow(LEDGER.name, _PARTITIONS_MAX):
                    self._note(strike.fault, log.dc)
                return None
            case fault if fault in _COORDINATION:
                return self._cut_off(strike)
            case _:
                return self._strike_log(strike, _pick(self._victims.logs, strike.where))

    def _strike_log(self, strike: Strike, log: MemoryLog) -> Callable[[], None]:
        self._note(strike.fault, log.dc)
        self._history.tell(Troubled(log.dc, strike.fault.value, trio.current_time()))
        return self._lift_of(log, strike_log(strike, log))

    def _black_out(self, strike: Strike) -> Callable[[], None]:
        lifts = [self._strike_log(strike, log) for log in self._victims.logs]

        def lift_all() -> None:
            for lift in lifts:
                lift()

        return lift_all

    async def _pause(self, strike: Strike) -> None:
        """Pause a node for a while. In half of the cases the whole machine is suspended, so its
        wall clock is behind afterwards until it is set.
        """
        node = _pick(self._victims.node_names, strike.where)
        if not self._victims.pause(node):
            return
        self._note(strike.fault, node)
        self._history.tell(
            Troubled(node, strike.fault.value, trio.current_time(), lasts_s=strike.lasts_s)
        )
        is_behind = strike.how < _BEHIND_RATE
        if is_behind:
            self._victims.skew(node, -int(min(strike.lasts_s, _BEHIND_MAX_S) * 1_000))
        await trio.sleep(strike.lasts_s)
        if not self._is_over:
            self._victims.go_on(node)
            self._trace.note("nemesis", f"lifted {strike.fault.value}")
        await trio.sleep(_CLOCK_SET_S)
        if is_behind:
            self._victims.skew(node, 0)

    async def _hold_to_the_edge(self, strike: Strike) -> None:
        """Cut a node off from the coordination log for about the length of its lease. Its wall
        clock is off, and the log's clock is ahead by as much as a lease tolerates. The node reaches
        everything else, and has work.
        """
        node, now_s = _pick(self._victims.node_names, strike.where), trio.current_time()
        dc = node.partition("-")[0]
        log = next(each for each in self._victims.logs if each.dc == dc)
        if now_s - self._stepped_s.get(dc, 0.0) < _STEP_PAUSE_S:
            return
        self._stepped_s[dc] = math.inf
        self._note(strike.fault, node)
        where, way = coordination_of(dc), self._victims.way(node)
        self._history.tell(Troubled(where, strike.fault.value, now_s))
        way.is_cut = True
        self._victims.skew(node, int((strike.how - 0.5) * _SKEW_SPAN_MS))
        await trio.sleep(_EDGE_BEFORE_S)
        if not self._is_over:
            log.clock.skew_ms = _EDGE_STEP_MS
        await trio.sleep(_EDGE_LEAST_S + strike.how * _EDGE_SPAN_S)
        if not self._is_over:
            way.calm()
            log.clock.skew_ms = 0
            self._victims.skew(node, 0)
            self._history.tell(Calmed(where, trio.current_time()))
            self._trace.note("nemesis", f"lifted {strike.fault.value}")
        self._stepped_s[dc] = now_s + _EDGE_BEFORE_S

    def _set_clock(self, strike: Strike) -> Callable[[], None] | None:
        """Set the clock that stamps coordination records wrong, and later right again."""
        log, now_s = _pick(self._victims.logs, strike.where), trio.current_time()
        if now_s - self._stepped_s.get(log.dc, 0.0) < _STEP_PAUSE_S:
            return None
        step_ms = _pick(_CLOCK_STEPS_MS, strike.how)
        self._note(strike.fault, f"{log.dc} {step_ms} ms")
        self._stepped_s[log.dc] = math.inf
        log.clock.skew_ms = step_ms

        def lift() -> None:
            log.clock.skew_ms = 0
            self._stepped_s[log.dc] = now_s if step_ms > 0 else trio.current_time()

        return lift

    def _cut_off(self, strike: Strike) -> Callable[[], None]:
        """Make the coordination log hard to reach for one node or all nodes of a datacentre. Return
        what ends that. The nodes reach everything else.
        """
        node = _pick(self._victims.node_names, strike.where)
        dc = node.partition("-")[0]
        is_alone = strike.how < _ONE_NODE_RATE
        nodes = [node] if is_alone else [n for n in self._victims.node_names if n.startswith(dc)]
        ways = [self._victims.way(each) for each in nodes]
        # The rest of the number is uniform again.
        span = _ONE_NODE_RATE if is_alone else 1 - _ONE_NODE_RATE
        how = (strike.how - (0.0 if is_alone else _ONE_NODE_RATE)) / span
        for way in ways:
            if strike.fault is Fault.COORDINATION_CUT:
                way.is_cut = True
            elif strike.fault is Fault.COORDINATION_ACKS_LOST:
                way.loses_acknowledgements = True
            elif strike.fault is Fault.COORDINATION_FAILING:
                way.failing_rate = _FAILING_LEAST + (1 - _FAILING_LEAST) * how
            else:
                slow_s = (how * 3 % 1) * _COORDINATION_SLOW_MAX_S
                way.append_s = slow_s if how > 1 / 3 else 0.0
                way.read_s = slow_s if how < 2 / 3 else 0.0
        self._note(strike.fault, ", ".join(nodes))
        where = coordination_of(dc)
        self._history.tell(Troubled(where, strike.fault.value, trio.current_time()))

        def lift() -> None:
            for way in ways:
                way.calm()
            self._history.tell(Calmed(where, trio.current_time()))

        return lift

    async def _kill_all(self, strike: Strike) -> None:
        """Kill all nodes of a datacentre at once. In half of the cases, unless a node is just
        starting, they stay away longer than retention, so that the coordination log is empty. One
        of them may have been paused meanwhile, and go on.
        """
        log = _pick(self._victims.logs, strike.where)
        nodes = [node for node in self._victims.node_names if node.startswith(log.dc)]
        is_long = strike.how < _FORGOTTEN_RATE and self._stepped_s.get(log.dc) != math.inf
        down_s = strike.lasts_s + (_FENCED_S if is_long else 0.0)
        sleeper = ""
        if is_long and strike.how < _ASLEEP_RATE and self._victims.pause(nodes[-1]):
            sleeper, pause = nodes[-1], Fault.NODE_PAUSE.value
            self._history.tell(Troubled(sleeper, pause, trio.current_time(), lasts_s=down_s))
        killed = [self._victims.kill(node, down_s) for node in nodes if node != sleeper]
        if any(killed):
            self._note(strike.fault, log.dc)
        # Tasks that were about to run at the kill may still push, hours before everything is
        # forgotten.
        await trio.sleep(_DYING_S)
        is_idle = all(self._victims.way(node).is_idle for node in nodes)
        if is_long and all(killed) and is_idle and log.forget_coordination():
            log.clock.skew_ms = _AWAY_MS
            self._stepped_s[log.dc] = math.inf
            self._forgetful.append(log.dc)
            self._history.tell(Forgotten(log.dc, trio.current_time()))
            self._history.faults["coordination forgotten"] += 1
            self._trace.note("nemesis", f"{log.dc} forgets what was coordinated {sleeper}")
        if sleeper:
            # Before the others start, or after.
            await trio.sleep(_FENCED_S + strike.lasts_s * 2 * strike.how / _ASLEEP_RATE)
            self._victims.go_on(sleeper)

    async def _restart_all(self, strike: Strike) -> None:
        """Restart a datacentre's nodes in good order, one after the other."""
        dc = _pick(self._victims.logs, strike.where).dc
        self._note(strike.fault, dc)
        for node in self._victims.node_names:
            if node.startswith(dc) and not self._is_over:
                self._victims.stop(node, _ROLLING_DOWN_S)
                await trio.sleep(_ROLLING_DOWN_S + _ROLLING_PAUSE_S)

    def _spoil(self, strike: Strike) -> Callable[[], None]:
        """Fill, break or slow down a node's disk; return what ends that."""
        node = _pick(self._victims.node_names, strike.where)
        disk = self._victims.disk(node)
        if strike.fault is Fault.DISK_FULL:
            disk.is_full = True
        elif strike.fault is Fault.DISK_FAILING:
            disk.is_failing = True
        else:
            disk.slow_s = strike.how * _SLOW_DISK_MAX_S
        self._note(strike.fault, node)
        self._history.tell(Troubled(disk_of(node), strike.fault.value, trio.current_time()))

        def lift() -> None:
            disk.heal()
            self._history.tell(Calmed(disk_of(node), trio.current_time()))

        return lift

    async def _forbid(self, strike: Strike) -> None:
        """Make a datacentre not ready, so that nobody falls back to it. When each node hears of it
        is open.
        """
        dc = _pick(self._victims.logs, strike.where).dc
        self._note(strike.fault, dc)
        self._history.tell(Troubled(readiness_of(dc), strike.fault.value, trio.current_time()))
        await self._victims.set_ready(dc, False)
        await trio.sleep(strike.lasts_s)
        while not self._is_over and not await self._victims.set_ready(dc, True):  # noqa: ASYNC110
            await trio.sleep(_READINESS_PAUSE_S)

    async def _lose_end(self, strike: Strike) -> None:
        """Let a log lose its end as soon as everyone has read it and it has no other fault."""
        log = _pick(self._victims.logs, strike.where)
        with trio.move_on_after(_READ_WITHIN_S):
            while not self._is_over:
                if log.lose_end(LEADER_TOPICS, 1 + int(strike.how * _LOST_MAX)):
                    self._note(strike.fault, log.dc)
                    return
                await trio.sleep(_POLL_S)

    async def _kill_with_a_spool(self, strike: Strike) -> None:
        """Kill a node as soon as its spool holds something; none, if that does not happen."""
        names = self._victims.node_names
        with trio.move_on_after(_SPOOLED_WITHIN_S):
            while True:
                for shift in range(len(names)):
                    node = names[(int(strike.where * len(names)) + shift) % len(names)]
                    if not self._victims.spooled(node):
                        continue
                    if self._victims.kill(node, strike.lasts_s):
                        self._note(strike.fault, node)
                        return
                await trio.sleep(_POLL_S)

    def _lift_of(self, log: MemoryLog, lift: Callable[[], None]) -> Callable[[], None]:
        def lift_and_tell() -> None:
            lift()
            self._history.tell(Calmed(log.dc, trio.current_time()))

        return lift_and_tell

    def _crash(self, strike: Strike) -> None:
        node = _pick(self._victims.node_names, strike.where)
        actor = self._victims.crash_actor(node, strike.how)
        if actor is not None:
            self._note(strike.fault, f"{node} {actor}")

    def _upset(self, strike: Strike) -> Callable[[], None]:
        endpoint = _pick(self._victims.endpoints, strike.where)
        endpoint.mood = mood = _pick(FAULTS, strike.how)
        self._note(strike.fault, f"{endpoint.subscription} {mood.value}")
        return endpoint.calm

    def _deaden(self, strike: Strike) -> Callable[[], None]:
        """Make all subscribers of the burst topics fail; return what ends that."""
        mood = _pick(DEATHS, strike.how)
        busy = self._victims.busy_endpoints
        for endpoint in busy:
            endpoint.mood, endpoint.is_dead = mood, True
        self._note(strike.fault, mood.value)

        def lift() -> None:
            for endpoint in busy:
                endpoint.calm()

        return lift

    def _note(self, fault: Fault, where: str) -> None:
        self._history.faults[fault.value] += 1
        self._trace.note("nemesis", f"{fault.value}: {where}")


def _pick(items: Sequence[T], where: float) -> T:
    return items[int(where * len(items))]
