"""Decides for one topic's batches in several datacentres what is sent where, and when to look
again. Pure.

A batch goes to the own log first. What that does not acknowledge within the hedge delay goes to
another datacentre too, if the budget allows it; what would miss its deadline goes there in any
case, and so does what a log has failed, and what waits for one whose breaker has opened.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import Struct

from hermes_actors.fallback.account import Cause, HedgeBudget
from hermes_actors.fallback.node import Path
from hermes_actors.log.base import Outcome, RefusedRecord, Stored, UnknownRecord
from hermes_actors.publisher.hedging.flight import Attempts, Flight, Part
from hermes_actors.publisher.pending import Pending

_END_MARGIN_S = 0.001
"""So much before the limit a message is given up; whoever sweeps deadlines calls `hurry` first."""
_LOOK_AGAIN_MIN_S = 0.005
_RESCUE_MIN_S = 0.05


class Send(Struct, eq=False):
    """Some of a flight goes to one more datacentre, or all of it (None) to the own log."""

    path: Path
    flight: Flight
    some: list[Attempts] | None


class Told(Struct, eq=False):
    """The fate of these is known: the `verdict` of each, after an append in `dc` of `took_s`."""

    dc: str
    some: list[Attempts]
    took_s: float = 0.0


Orders = Iterator[Send | Told]
"""Actions, each to be taken at once: the next one may depend on what became of it."""


@dataclass(eq=False)
class Decision:
    """One topic's (`group.topic`), over its ways into the own datacentre and the others, in the
    order to ask them.

    `limit_s` is how long after its `started_s` a pending has its answer. Each method takes the time
    and gives orders, all of which are followed; what is to be sent is taken as sent.
    """

    own: Path
    remotes: Sequence[Path]
    topic: str
    limit_s: float

    def __post_init__(self) -> None:
        self.paths = (self.own, *self.remotes)
        self.is_own_known = True
        self._by_name = {path.name: path for path in self.paths}
        config = self.own.dc.config
        self._metrics = metrics = self.own.dc.metrics
        self._budget_refused = metrics.counter("fallback_budget_refused")
        self._rescue_s = config.rescue_before_limit_ms / 1_000
        self._cap_s = config.speculative_send_delay_ms / 1_000
        self._is_off = config.hedge_mode == "off"
        self._budget = HedgeBudget(config.hedge_budget_percent, config.hedge_burst_max)
        # In the order in which they began.
        self._flights: dict[Flight, None] = {}

    @property
    def has_remote(self) -> bool:
        """True when some remote could be used now, if need be."""
        return any(path.is_usable for path in self.remotes)

    # What happens.

    def begin(self, flight: Flight) -> Orders:
        """Decide where a batch that is to be stored goes first."""
        self._flights[flight] = None
        now_s = flight.sent_s
        self._budget.earn(sum([pending.count for pending in flight.pendings]))
        is_own_usable = self.is_own_known and not self.own.is_open
        target = None if is_own_usable else self._working(())
        if is_own_usable or (target is None and self.is_own_known):
            started_s = min([pending.started_s for pending in flight.pendings])
            flight.wake_s = min(
                now_s + self.own.delay_s(now_s),
                started_s + self._rescue_after_s(now_s),
                started_s + self.limit_s - _END_MARGIN_S,
            )
            yield Send(self.own, flight, None)
            return
        some = self.attempts(flight, is_sent=False)
        if target is None:
            return
        if self.is_own_known and self.own.take_probe(now_s):
            probes = self._probes(some)
            some = [each for each in some if each not in probes]
            for probe in probes:
                probe.cause = Cause.PROBE
                probe.sent(self.own.name)
                probe.due_s = now_s + self._pause_s(probe, now_s)
            yield Send(self.own, flight, list(probes))
        yield from self._sends([(target, Cause.BREAKER, each) for each in some], now_s)

    def look(self, flight: Flight, now_s: float) -> Orders:
        """Decide what the time that has passed demands; set the flight's `wake_s`, when to look
        again.
        """
        some = self.attempts(flight)
        # First, so that a loop that was away for long does not begin what is over.
        waiting = [each for each in some if each.is_open and not each.is_given_up]
        yield from self._give_up([each for each in waiting if each.end_s <= now_s])
        waiting = [each for each in waiting if each.is_open and not each.is_given_up]
        due = [each for each in waiting if each.due_s <= now_s]
        yield from self._sends(self._hedged(due, now_s), now_s)
        late = [each for each in waiting if each.is_open and each.rescue_s <= now_s]
        yield from self._sends(self._rescued(late, now_s), now_s)
        # Silence is looked for once in each hedge delay.
        flight.wake_s = now_s + max(min(self.own.delay_s(now_s), self.limit_s), _LOOK_AGAIN_MIN_S)
        for each in waiting:
            if each.is_open:
                flight.wake_s = min(flight.wake_s, each.due_s, each.rescue_s, each.end_s)

    def stored(self, flight: Flight) -> bool:
        """Record that the own log has stored all of a flight; True when that is told for all at
        once.
        """
        if flight.attempts is not None:
            return False
        self._count_late(self.own.name, flight.pendings)
        flight.is_told = True
        return True

    def ended(
        self,
        path: Path,
        parts: Sequence[Part],
        found: Sequence[Outcome],
        now_s: float,
        took_s: float,
        *,
        may_go_on: bool = True,
    ) -> Orders:
        """Decide what follows an append's end, with an outcome for each of the messages.
        `may_go_on` False: what is refused here is refused everywhere.
        """
        told: dict[Attempts, None] = {}
        failed: dict[Attempts, None] = {}
        at = 0
        for part in parts:
            each = part.attempts
            own = found[at : at + part.count]
            at += part.count
            was_stored = each.is_stored
            again = each.learn(path.name, part.places, own)
            self._count_copies(each, path.name, own, again)
            if each.is_told:
                if each.is_stored and not was_stored:
                    self._add_late(path.name, each.count)
            elif each.is_stored:
                self._count_late(path.name, [each.pending])
                told[each] = None
            elif not may_go_on and all(type(outcome) is RefusedRecord for outcome in own):
                told[each] = None
            elif not (each.is_open and path.name in each.unanswered):
                failed[each] = None
        yield from self._tell(path.name, list(told), took_s)
        yield from self._go_on(list(failed), now_s)

    def opened(self, path: Path, now_s: float) -> Orders:
        """Send what waits for a datacentre that does not work to the next one at once."""
        waiting = [
            each
            for flight in self._flights
            for each in self.attempts(flight)
            if each.is_open and now_s < each.end_s and each.latest == path.name
        ]
        targets = [(self._working(each.tried), each) for each in waiting]
        picks = [(target, Cause.BREAKER, each) for target, each in targets if target is not None]
        yield from self._sends(picks, now_s)

    def looked_up(self, now_s: float) -> Orders:
        """Send on what waited for a remote's partitions, which was asked for them now; it has
        failed if there is no other.
        """
        some = [each for flight in self._flights for each in flight.attempts or ()]
        yield from self._go_on([each for each in some if each.is_idle], now_s)
        for path in self.paths:
            if path.is_open:
                yield from self.opened(path, now_s)

    def leave(self, flight: Flight) -> Orders:
        """Forget a flight that nobody waits for any more: what never began has failed."""
        del self._flights[flight]
        some = flight.attempts or ()
        unsent = [each for each in some if not each.is_told and not each.running]
        yield from self._tell(self.own.name, unsent)

    # What publishers do not hear of.

    def _count_copies(self, each: Attempts, dc: str, found: Sequence[Outcome], again: int) -> None:
        """Count known copies, `again` of them new, and those that nobody knows of."""
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

    def _count_late(self, dc: str, pendings: Iterable[Pending]) -> None:
        """Count those, about to be told to be stored, that have been answered otherwise."""
        late = sum([pending.count for pending in pendings if pending.is_done])
        if late:
            self._add_late(dc, late)

    def _add_late(self, dc: str, count: int) -> None:
        self._metrics.counter("fallback_late_acknowledgements", dc=dc).add(count)

    # What becomes of those that it concerns.

    def _probes(self, some: list[Attempts]) -> dict[Attempts, None]:
        """The last one, and those whose key it has: a key's messages take one way, or those that
        the remote fails would follow it to the own log in another order.
        """
        last = some[-1]
        if any(each.pending.keys is not None for each in some):
            # Of some the keys are many.
            return dict.fromkeys(some)
        if last.pending.key is None:
            return {last: None}
        return {each: None for each in some if each.pending.key == last.pending.key}

    def _pause_s(self, each: Attempts, now_s: float) -> float:
        """How long it waits for what comes next. Where nothing is sent because of time alone, only
        a probe, whose log is known not to work, and what could not be sent at all wait so long.
        """
        delay_s = self.own.delay_s(now_s)
        return min(delay_s, self._cap_s) if each.is_probing or not each.tried else delay_s

    def _hedged(self, some: list[Attempts], now_s: float) -> "_Picks":
        """Those to hedge, of these that have waited for a hedge delay."""
        for each in some:
            each.due_s = now_s + self._pause_s(each, now_s)
            capped_s = each.sent_s + self._cap_s
            target, cause = self._working(each.tried), Cause.HEDGE
            if target is None:
                target, cause = self._probed(each.tried, now_s), Cause.PROBE
            if target is None:
                continue
            if not each.tried:
                # It could not be sent at all before.
                cause = Cause.BREAKER
            elif each.is_probing:
                cause = Cause.PROBE
            is_early = now_s < capped_s
            if cause is not Cause.HEDGE or self._budget.take(each.count, is_early=is_early):
                yield target, cause, each
                continue
            if is_early:
                each.due_s = min(each.due_s, capped_s)
            if not each.was_refused:
                each.was_refused = True
                self._budget_refused.add(each.count)

    def _rescued(self, some: list[Attempts], now_s: float) -> "_Picks":
        """Those to send on, of these that would miss their deadlines: no budget holds them back."""
        for each in some:
            latest = self._by_name.get(each.latest)
            if latest is not None and latest is not self.own:
                left_s = each.end_s - each.sent_s
                again_s = each.sent_s + min(latest.delay_s(now_s), left_s / 2)
                if now_s < again_s:
                    # A remote was asked a moment ago; what was late by then waits for it too.
                    each.rescue_s = again_s
                    continue
            each.rescue_s = math.inf
            target = self._any_left(each.tried)
            if target is not None:
                yield target, Cause.RESCUE, each
            elif self._may_have_another(each.tried):
                each.rescue_s = now_s + _LOOK_AGAIN_MIN_S

    def _give_up(self, some: list[Attempts]) -> Orders:
        """Give up those whose time is over. If no remote was asked, their timer says so."""
        for each in some:
            each.is_given_up = True
        over = [each for each in some if (each.tried and each.flight.went_remote) or each.is_idle]
        told = [each for each in over if not self._is_kept(each)]
        yield from self._tell(self.own.name, told)

    def _is_kept(self, each: Attempts) -> bool:
        """Keep it rather than tell that its fate is unknown, while its appends run and may store it
        yet; True when the spool has it.
        """
        is_stored_in_part = any(type(outcome) is Stored for outcome in each.outcomes)
        return bool(each.running) and not is_stored_in_part and each.pending.keep()

    def _go_on(self, failed: list[Attempts], now_s: float) -> Orders:
        """A datacentre did not take these: the next one is asked, while there is time."""
        picks, over = [], []
        for each in failed:
            if each.unanswered and each.is_open:
                # Another one was asked already.
                continue
            is_in_time = each.is_open and now_s < each.end_s
            target = self._any_left(each.tried) if is_in_time else None
            if target is not None:
                picks.append((target, Cause.ERROR, each))
            elif not each.running and not (is_in_time and self._may_have_another(each.tried)):
                over.append(each)
        yield from self._tell(self.own.name, over)
        yield from self._sends(picks, now_s)

    def _tell(self, dc: str, some: list[Attempts], took_s: float = 0.0) -> Orders:
        for each in some:
            each.is_told = True
        if some:
            yield Told(dc, some, took_s)

    def _sends(self, picks: "_Picks", now_s: float) -> Orders:
        """Send these to one more datacentre each."""
        sends: dict[tuple[Path, Cause], list[Attempts]] = {}
        for path, cause, each in picks:
            sends.setdefault((path, cause), []).append(each)
        for (target, cause), asked in sends.items():
            some = [each for each in asked if not each.joins_kept()]
            if not some:
                continue
            due_s = now_s + target.delay_s(now_s)
            by_flight: dict[Flight, list[Attempts]] = {}
            for each in some:
                each.cause = cause
                each.sent(target.name)
                each.sent_s = now_s
                each.due_s = due_s
                by_flight.setdefault(each.flight, []).append(each)
            sent = self._metrics.counter("fallback_messages", cause=cause.value, dc=target.name)
            sent.add(sum([each.count for each in some]))
            for flight, its in by_flight.items():
                flight.went_remote = flight.went_remote or target is not self.own
                yield Send(target, flight, its)

    def attempts(self, flight: Flight, *, is_sent: bool = True) -> list[Attempts]:
        """The flight's pendings one by one; `is_sent`: all were sent to the own log."""
        if flight.attempts is None:
            rescue_s = self._rescue_after_s(flight.sent_s)
            due_s = flight.sent_s + (self.own.delay_s(flight.sent_s) if is_sent else 0.0)
            flight.attempts = [Attempts(pending, flight) for pending in flight.pendings]
            for each in flight.attempts:
                if is_sent:
                    each.sent(self.own.name)
                    each.begun(self.own.name, each.count)
                each.due_s = due_s
                each.rescue_s = each.pending.started_s + rescue_s
                each.end_s = each.pending.started_s + self.limit_s - _END_MARGIN_S
        return flight.attempts

    # Which datacentre is the next.

    def _left(self, tried: Iterable[str]) -> Iterator[Path]:
        """The remotes that are ready and not among those tried."""
        return (path for path in self.remotes if path.name not in tried and path.is_usable)

    def _working(self, tried: Iterable[str]) -> Path | None:
        """The first remote that is ready, works, and is not among those tried."""
        return next((path for path in self._left(tried) if not path.is_open), None)

    def _any_left(self, tried: Iterable[str]) -> Path | None:
        """As `_working`, when the message fails otherwise: the own log too if it was left out, and
        then a remote that did not work of late.
        """
        target = self._working(tried)
        if target is not None:
            return target
        if self.is_own_known and self.own.name not in tried:
            return self.own
        return next(self._left(tried), None)

    def _probed(self, tried: Iterable[str], now_s: float) -> Path | None:
        """A remote that did not work of late and is due to be tried with one message."""
        return next((path for path in self._left(tried) if path.take_probe(now_s)), None)

    def _may_have_another(self, tried: Iterable[str]) -> bool:
        """True when some other remote might be used as soon as it has told its partitions, and is
        asked.
        """
        return any(
            path.partitions is None
            and path.is_asked
            and path.name not in tried
            and path.dc.is_ready(path.name)
            for path in self.remotes
        )

    def _rescue_after_s(self, now_s: float) -> float:
        """Return how long after its start, in seconds, a message must go to a remote to be in time.

        That leaves, before the limit, twice what all but the slowest acknowledgements of that
        remote take, and the configured time at most. Infinite when hedging is off.
        """
        if self._is_off:
            return math.inf
        before_s = self._rescue_s
        target = self._working(())
        if target is not None:
            needed_s = 2 * target.delay_s(now_s)
            if not math.isinf(needed_s):
                before_s = min(before_s, max(needed_s, _RESCUE_MIN_S))
        return max(self.limit_s - before_s, 0.0)


_Picks = Iterable[tuple[Path, Cause, Attempts]]
