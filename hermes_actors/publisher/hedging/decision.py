"""Decides to which datacentre one topic's batches are sent, and when to check them again. Pure.

A batch goes to the own log first. Messages that it does not acknowledge within the hedge delay also
go to another datacentre, if the budget allows it. They go there in any case if they would otherwise
miss their deadline, if a log has failed them, or if the breaker of the log that they wait for has
opened.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import Struct

from hermes_actors.fallback.budget import Cause, HedgeBudget
from hermes_actors.fallback.node import Path
from hermes_actors.log.base import Outcome, RefusedRecord, UnknownRecord
from hermes_actors.publisher.hedging.flight import Attempts, Flight

_END_MARGIN_S = 0.001
"""Messages are given up this long before their limit, with each datacentre's reason."""
_LOOK_AGAIN_MIN_S = 0.005


class Send(Struct, eq=False):
    """Send messages of a flight to one more datacentre, or the whole flight (None) to the own
    log.
    """

    path: Path
    flight: Flight
    some: list[Attempts] | None


class Told(Struct, eq=False):
    """Report the fate of these messages, the `verdict` of each, after an append in `dc` that took
    `took_s`.
    """

    dc: str
    some: list[Attempts]
    took_s: float = 0.0


Orders = Iterator[Send | Told]
"""Actions, each to be done before the next is asked for: it may depend on the result."""

_Picks = Iterable[tuple[Path, Cause, Attempts]]


@dataclass(eq=False)
class Decision:
    """The decisions for one topic (`group.topic`), over the paths into the own datacentre and the
    others, in order of preference.

    A pending is answered at the latest `limit_s` after its `started_s`. Each method takes the time
    and yields orders. The caller must follow all of them; a Send counts as sent.
    """

    own: Path
    remotes: Sequence[Path]
    topic: str
    limit_s: float

    def __post_init__(self) -> None:
        self.paths = (self.own, *self.remotes)
        self.is_own_known = True
        config = self.own.dc.config
        self._metrics = metrics = self.own.dc.metrics
        self._budget_refused = metrics.counter("fallback_budget_refused")
        self._cap_s = config.speculative_send_delay_ms / 1_000
        self._rescue_after_s = math.inf
        if config.hedge_mode != "off":
            self._rescue_after_s = max(self.limit_s - config.rescue_before_limit_ms / 1_000, 0.0)
        self._budget = HedgeBudget(config.hedge_budget_percent, config.hedge_burst_max)
        # In order of their start.
        self._flights: dict[Flight, None] = {}

    @property
    def has_remote(self) -> bool:
        """True if some remote could be used now."""
        return any(path.is_usable for path in self.remotes)

    # Events.

    def begin(self, flight: Flight) -> Orders:
        """Decide where a new batch goes first."""
        self._flights[flight] = None
        now_s = flight.sent_s
        self._budget.earn(sum([pending.count for pending in flight.pendings]))
        is_own = self.is_own_known and (not self.own.is_open or self.own.take_probe(now_s))
        target = None if is_own else self._next((), now_s)
        if is_own or (target is None and self.is_own_known):
            flight.is_probe = self.own.is_open
            started_s = min([pending.started_s for pending in flight.pendings])
            flight.wake_s = min(
                now_s + self._pause_s(flight.is_probe, now_s),
                self._rescue_s(started_s),
                self._end_s(started_s),
            )
            yield Send(self.own, flight, None)
            return
        some = self.attempts(flight, is_sent=False)
        if target is not None:
            yield from self._sends([(target, Cause.BREAKER, each) for each in some], now_s)

    def look(self, flight: Flight, now_s: float) -> Orders:
        """Decide what is due by now, and set the flight's `wake_s`, the time to look again."""
        some = [each for each in self.attempts(flight) if each.is_open]
        waiting = [each for each in some if now_s < self._end_s(each.pending.started_s)]
        if flight.went_remote and len(waiting) < len(some):
            # If no remote was asked, the publish's own deadline answers it.
            over = [each for each in some if now_s >= self._end_s(each.pending.started_s)]
            # A log may still store messages under way, so the spool gets a chance before they are
            # reported as unknown.
            told = [each for each in over if not (each.running and each.pending.keep())]
            yield from self._tell(self.own.name, told)
        yield from self._sends(self._late(waiting, now_s), now_s)
        # The own log's delay is checked once per hedge delay.
        flight.wake_s = now_s + max(min(self.own.delay_s(now_s), self.limit_s), _LOOK_AGAIN_MIN_S)
        for each in waiting:
            rescue_s = self._rescue_s(each.pending.started_s)
            end_s = self._end_s(each.pending.started_s)
            flight.wake_s = min(flight.wake_s, each.due_s, end_s)
            if rescue_s > now_s:
                flight.wake_s = min(flight.wake_s, rescue_s)

    def stored(self, flight: Flight) -> bool:
        """Record that the own log has stored a whole flight. True if the caller may report all of
        it at once.
        """
        if flight.attempts is not None:
            return False
        flight.is_told = True
        return True

    def ended(
        self,
        path: Path,
        some: Sequence[Attempts],
        found: Sequence[Outcome],
        now_s: float,
        took_s: float,
    ) -> Orders:
        """Decide what follows an append that has ended, with an outcome for each message."""
        told: list[Attempts] = []
        failed: list[Attempts] = []
        at = 0
        for each in some:
            own = found[at : at + each.count]
            at += each.count
            self._count_copies(each, path.name, own, each.learn(path.name, own))
            if each.is_told:
                continue
            if each.is_stored or all(map(_is_too_large, own)):
                told.append(each)
            elif not (each.running or (each.is_open and each.queued)):
                failed.append(each)
        yield from self._tell(path.name, told, took_s)
        yield from self._go_on(failed, now_s)

    def opened(self, path: Path, now_s: float) -> Orders:
        """Send the messages that wait for this failed datacentre to the next one at once."""
        waiting = [
            each
            for flight in self._flights
            for each in self.attempts(flight)
            if each.is_open
            and now_s < self._end_s(each.pending.started_s)
            and each.latest == path.name
        ]
        targets = [(self._next(each.tried, now_s), each) for each in waiting]
        picks = [(target, Cause.BREAKER, each) for target, each in targets if target is not None]
        yield from self._sends(picks, now_s)

    def leave(self, flight: Flight) -> Orders:
        """Forget a flight that its producer no longer waits for; messages not yet sent have
        failed.
        """
        del self._flights[flight]
        some = flight.attempts or ()
        unsent = [each for each in some if not each.is_told and not each.running]
        yield from self._tell(self.own.name, unsent)

    # What is only counted.

    def _count_copies(self, each: Attempts, dc: str, found: Sequence[Outcome], again: int) -> None:
        """Count the copies that are known, `again` of them new, and those that may exist."""
        if again:
            group, _, name = self.topic.rpartition(".")
            labels = {"group": group, "topic": name, "cause": each.cause.value}
            self._metrics.counter("topic_duplicated_message", **labels).add(again)
        unknown = sum([type(outcome) is UnknownRecord for outcome in found])
        if unknown:
            each.unknown[dc] = each.unknown.get(dc, 0) + unknown
        if each.is_stored:
            for where, count in each.unknown.items():
                self._metrics.counter("fallback_unknown_copies", dc=where).add(count)
            each.unknown.clear()

    # Time limits and reports.

    def _rescue_s(self, started_s: float) -> float:
        """When it goes to a remote regardless of the budget; never, if hedging is off."""
        return started_s + self._rescue_after_s

    def _end_s(self, started_s: float) -> float:
        return started_s + self.limit_s - _END_MARGIN_S

    def _pause_s(self, is_probe: bool, now_s: float) -> float:
        """How long to wait before asking the next datacentre. A probe's log is known to be failing,
        so a probe waits for the maximum delay at most, even if hedging is off.
        """
        delay_s = self.own.delay_s(now_s)
        return min(delay_s, self._cap_s) if is_probe else delay_s

    def _late(self, some: list[Attempts], now_s: float) -> _Picks:
        """The messages to send on because of time: no answer within the hedge delay, or any later
        would be too late.
        """
        for each in some:
            is_late = now_s >= self._rescue_s(each.pending.started_s)
            if is_late and list(each.tried) == [self.own.name]:
                target = self._next(each.tried, now_s) or next(self._left(each.tried), None)
                if target is not None:
                    yield target, Cause.RESCUE, each
            elif now_s >= each.due_s:
                is_probe = each.flight.is_probe and len(each.tried) == 1
                each.due_s = now_s + self._pause_s(is_probe or not each.tried, now_s)
                target = self._next(each.tried, now_s)
                cause = Cause.PROBE if is_probe else Cause.HEDGE if each.tried else Cause.BREAKER
                if target is None:
                    continue
                if cause is not Cause.HEDGE or self._budget.take(each.count):
                    yield target, cause, each
                elif not each.was_refused:
                    each.was_refused = True
                    self._budget_refused.add(each.count)

    def _go_on(self, failed: list[Attempts], now_s: float) -> Orders:
        """Ask the next datacentre for messages that every datacentre so far has failed, if there is
        time.
        """
        picks, over = [], []
        for each in failed:
            # A cancelled producer waits for nothing any more.
            is_waited_for = each.is_open and each.flight in self._flights
            is_in_time = is_waited_for and now_s < self._end_s(each.pending.started_s)
            target = self._any_left(each.tried, now_s) if is_in_time else None
            if target is not None:
                picks.append((target, Cause.ERROR, each))
            else:
                over.append(each)
        yield from self._tell(self.own.name, over)
        yield from self._sends(picks, now_s)

    def _tell(self, dc: str, some: list[Attempts], took_s: float = 0.0) -> Orders:
        for each in some:
            each.is_told = True
        if some:
            yield Told(dc, some, took_s)

    def _sends(self, picks: _Picks, now_s: float) -> Orders:
        """Send each of these to one more datacentre."""
        sends: dict[tuple[Path, Cause, Flight], list[Attempts]] = {}
        for path, cause, each in picks:
            sends.setdefault((path, cause, each.flight), []).append(each)
        for (target, cause, flight), asked in sends.items():
            some = [each for each in asked if not each.joins_kept()]
            if not some:
                continue
            for each in some:
                each.cause = cause
                each.sent(target.name)
                each.due_s = now_s + target.delay_s(now_s)
            sent = self._metrics.counter("fallback_messages", cause=cause.value, dc=target.name)
            sent.add(sum([each.count for each in some]))
            flight.went_remote = flight.went_remote or target is not self.own
            yield Send(target, flight, some)

    def attempts(self, flight: Flight, *, is_sent: bool = True) -> list[Attempts]:
        """The attempts of the flight's pendings; `is_sent`: all were sent to the own log."""
        if flight.attempts is None:
            due_s = flight.sent_s
            if is_sent:
                due_s += self._pause_s(flight.is_probe, flight.sent_s)
            flight.attempts = [Attempts(pending, flight) for pending in flight.pendings]
            for each in flight.attempts:
                each.due_s = due_s
                if is_sent:
                    each.sent(self.own.name)
                    each.began(self.own.name)
        return flight.attempts

    # Choosing the next datacentre.

    def _left(self, tried: Iterable[str]) -> Iterator[Path]:
        """The remotes that are usable and have not been tried."""
        return (path for path in self.remotes if path.name not in tried and path.is_usable)

    def _next(self, tried: Iterable[str], now_s: float) -> Path | None:
        """The first untried remote that works, else one that is due for a probe."""
        for path in self._left(tried):
            if not path.is_open:
                return path
        return next((path for path in self._left(tried) if path.take_probe(now_s)), None)

    def _any_left(self, tried: Iterable[str], now_s: float) -> Path | None:
        """As `_next`, for a message that fails otherwise: also the own log if it was left out, and
        finally a remote with an open breaker.
        """
        target = self._next(tried, now_s)
        if target is not None:
            return target
        if self.is_own_known and self.own.name not in tried:
            return self.own
        return next(self._left(tried), None)


def _is_too_large(outcome: Outcome) -> bool:
    """True if the message is too large, which it would be in each datacentre."""
    return type(outcome) is RefusedRecord and outcome.is_too_large
