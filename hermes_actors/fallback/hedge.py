"""Stores a topic's batches in the own datacentre, and in another one when that takes too long.

Each message's fate is told once: stored as soon as any datacentre has acknowledged it, or failed
when none is left to ask or its time is up. What still runs then runs on, and is only counted.
"""

import math
from collections.abc import Callable, Sequence

import trio

from hermes_actors.fallback.appends import Appends
from hermes_actors.fallback.budget import HedgeBudget
from hermes_actors.fallback.chaos import roll
from hermes_actors.fallback.flight import Flight, Flying, Item
from hermes_actors.fallback.measures import Cause
from hermes_actors.fallback.node import Fallback
from hermes_actors.fallback.outlet import Joins, Outlet, Records
from hermes_actors.fallback.remotes import Path
from hermes_actors.fallback.shares import Keys
from hermes_actors.fallback.verdicts import Settle, Verdicts
from hermes_actors.fallback.ways import Ways
from hermes_actors.log.base import Stored
from hermes_actors.model.topic import Ack, Chaos, ChaosMode

_END_MARGIN_S = 0.001
"""So much before the limit a message is given up; whoever sweeps deadlines calls `hurry` first."""
_LOOK_AGAIN_MIN_S = 0.005

_RELEASE_POLL_S = 0.05
_WAKE_MIN_S = 0.0002

Keeps = Callable[[Item], bool]
"""True: it has just been kept elsewhere, where the end of its appends is waited for."""

_Sends = dict[tuple[Path, Cause], list[Flying]]


class Hedge:
    """One topic's. `name` is `group.topic`, `topic` what the logs call it.

    `records` makes the records of some items, with the `via` that it is given; `limit_s` is how
    long after its `started_s` an item has its answer. `keys` are those of an item whose messages
    have several. Run `follow` beside it.
    """

    def __init__(
        self,
        fallback: Fallback,
        name: str,
        topic: str,
        *,
        ack: Ack,
        records: Records,
        settle: Settle,
        limit_s: float,
        chaos: Chaos | None = None,
        keys: Keys = lambda _item: None,
        joins: Joins = lambda _item, _older: False,
        keeps: Keeps = lambda _item: False,
        records_max: int = 1_000,
        bytes_max: int = 1_000_000,
    ) -> None:
        config = fallback.config
        self._fallback = fallback
        self._clock = fallback.clock
        self._limit_s = limit_s
        self._chaos = chaos or Chaos()
        self._keys = keys
        self._joins = joins
        self._keeps = keeps
        self._rescue_s = config.rescue_before_limit_ms / 1_000
        self._cap_s = config.speculative_send_delay_ms / 1_000
        self._is_off = config.hedge_mode == "off"
        self._budget = HedgeBudget(config.hedge_budget_percent, config.hedge_burst_max)
        self._verdicts = Verdicts(name, fallback.measures, settle)
        self._appends = Appends(
            fallback, topic, ack, records, self._verdicts, self._fly, self._go_on
        )
        local = fallback.local.path(ack)
        outlets = {
            path: Outlet(
                path,
                topic,
                fallback.nursery,
                fallback.clock,
                append=self._appends.remote,
                records=records,
                keys=keys,
                joins=joins,
                on_looked_up=self._use_found,
                records_max=records_max,
                bytes_max=bytes_max,
            )
            for path in [dc.path(ack) for dc in fallback.remotes]
        }
        self._local = local
        self._ways = Ways(local, outlets)
        for path in self._ways.all:
            path.on_open = self._flush
        # In the order in which they began.
        self._flights: dict[Flight, None] = {}

    @property
    def is_useful(self) -> bool:
        """Some remote could be used now."""
        return self._ways.has_remote

    def set_local_known(self, is_known: bool) -> None:
        """Whether the own log has told how many partitions the topic has; while it has not, only
        the others are used.
        """
        self._ways.is_local_known = is_known

    def change(self, ack: Ack, chaos: Chaos) -> None:
        """The topic was changed."""
        self._appends.ack = ack
        self._chaos = chaos

    async def follow(self) -> None:
        """Keep what is known of the remotes' topics up to date, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                for outlet in self._ways.outlets.values():
                    nursery.start_soon(outlet.follow)
        finally:
            self._ways.leave()

    async def append(self, items: Sequence[Item], partition: int) -> None:
        """Store a batch; returns when each item's fate was told, or is the business of another.

        While no remote can be used it returns only when the own log has answered, as without
        hedging. Raises what a log's append failed with, if that was a programmer's error.
        """
        flight = Flight(items, partition, self._clock.monotonic_s())
        self._budget.earn(sum([item.count for item in items]))
        self._flights[flight] = None
        try:
            self._launch(flight)
            while (wake_s := self._step(flight)) is not None:
                pause_s = max(wake_s - self._clock.monotonic_s(), _WAKE_MIN_S)
                with trio.move_on_after(pause_s):
                    await flight.changed.wait()
                flight.changed = trio.Event()
        finally:
            del self._flights[flight]
            self._land(flight)
        if flight.error is not None:
            raise flight.error

    def hurry(self) -> None:
        """Do at once what is due: somebody else is about to answer what is over."""
        for flight in list(self._flights):
            self._step(flight)

    # What a flight does first, and then by the clock.

    def _launch(self, flight: Flight) -> None:
        now_s = flight.sent_s
        ways = self._ways
        if self._chaos.mode is not ChaosMode.DISABLED and ways.has_remote:
            dcs = [path.dc.name for path in ways.all]
            flight.strikes = roll(self._chaos, dcs, self._fallback.rng)
        is_usable = ways.is_local_usable
        target = None if is_usable else ways.usable()
        if is_usable or (target is None and ways.is_local_known):
            started_s = min([item.started_s for item in flight.items])
            flight.wake_s = min(
                now_s + self._local.delay_s(now_s),
                started_s + self._rescue_after_s(now_s),
                started_s + self._limit_s - _END_MARGIN_S,
            )
            self._appends.begin_local(self._local, flight, None)
            return
        flyings = self._fly(flight, is_local=False)
        if target is None:
            return
        if ways.is_local_known and self._local.take_probe(now_s):
            probes = self._probes(flyings)
            flyings = [each for each in flyings if each not in probes]
            for probe in probes:
                probe.cause = Cause.PROBE
                probe.due_s = now_s + self._pause_s(probe, now_s)
            self._appends.begin_local(self._local, flight, list(probes))
        self._send({(target, Cause.BREAKER): flyings} if flyings else {}, now_s)

    def _probes(self, flyings: list[Flying]) -> dict[Flying, None]:
        """The last one, and those whose key it has: a key's messages take one way, or those that
        the remote fails would follow it to the own log in another order.
        """
        last = flyings[-1]
        if any(self._keys(each.item) is not None for each in flyings):
            # Of some the keys are many.
            return dict.fromkeys(flyings)
        if last.key is None:
            return {last: None}
        return {each: None for each in flyings if each.key == last.key}

    def _pause_s(self, flying: Flying, now_s: float) -> float:
        """How long it waits for what comes next. Where nothing is sent because of time alone, only
        a probe, whose log is known not to work, and what could not be sent at all wait so long.
        """
        delay_s = self._local.delay_s(now_s)
        return min(delay_s, self._cap_s) if flying.is_probing or not flying.tried else delay_s

    def _step(self, flight: Flight) -> float | None:
        """Do what is due now; when to look again, None when the producer need not wait."""
        now_s = self._clock.monotonic_s()
        if flight.error is not None:
            return None
        if flight.is_over:
            if not flight.appends or flight.went_remote or self._ways.has_remote:
                return None
            return now_s + _RELEASE_POLL_S
        if now_s < flight.wake_s:
            return flight.wake_s
        for path in self._ways.all:
            path.check(now_s)
        flyings = self._fly(flight)
        # First, so that a loop that was away for long does not begin what is over.
        self._give_up([each for each in flyings if each.is_open and each.end_s <= now_s])
        waiting = [each for each in flyings if each.is_open and each.end_s < math.inf]
        self._hedge([each for each in waiting if each.due_s <= now_s], now_s)
        self._rescue([each for each in waiting if each.is_open and each.rescue_s <= now_s], now_s)
        if flight.is_over:
            return self._step(flight)
        # Silence is looked for once in each hedge delay.
        wake_s = now_s + max(min(self._local.delay_s(now_s), self._limit_s), _LOOK_AGAIN_MIN_S)
        for each in waiting:
            if each.is_open:
                wake_s = min(wake_s, each.due_s, each.rescue_s, each.end_s)
        flight.wake_s = wake_s
        return wake_s

    def _hedge(self, flyings: list[Flying], now_s: float) -> None:
        """These have waited for a hedge delay."""
        sends: _Sends = {}
        for flying in flyings:
            flying.due_s = now_s + self._pause_s(flying, now_s)
            capped_s = flying.sent_s + self._cap_s
            target, cause = self._ways.usable(flying.tried), Cause.HEDGE
            if target is None:
                target, cause = self._ways.probed(flying.tried, now_s), Cause.PROBE
            if target is None:
                continue
            if not flying.tried:
                # It could not be sent at all before.
                cause = Cause.BREAKER
            elif flying.is_probing:
                cause = Cause.PROBE
            if cause is not Cause.HEDGE or self._budget.take(
                flying.count, is_early=now_s < capped_s
            ):
                sends.setdefault((target, cause), []).append(flying)
                continue
            if now_s < capped_s:
                flying.due_s = min(flying.due_s, capped_s)
            if not flying.was_refused:
                flying.was_refused = True
                self._fallback.measures.budget_refused.add(flying.count)
        self._send(sends, now_s)

    def _rescue(self, flyings: list[Flying], now_s: float) -> None:
        """These would miss their deadlines: no budget holds them back."""
        sends: _Sends = {}
        for flying in flyings:
            latest = self._ways.named(next(reversed(flying.tried), ""))
            if latest is not None and latest is not self._local:
                left_s = flying.end_s - flying.sent_s
                again_s = flying.sent_s + min(latest.delay_s(now_s), left_s / 2)
                if now_s < again_s:
                    # A remote was asked a moment ago; what was late by then waits for it too.
                    flying.rescue_s = again_s
                    continue
            flying.rescue_s = math.inf
            target = self._ways.any_left(flying.tried)
            if target is not None:
                sends.setdefault((target, Cause.RESCUE), []).append(flying)
            elif self._ways.may_have_another(flying.tried):
                flying.rescue_s = now_s + _LOOK_AGAIN_MIN_S
        self._send(sends, now_s)

    def _give_up(self, flyings: list[Flying]) -> None:
        """The time of these is over. Where no remote was asked, that is said by their timer."""
        for flying in flyings:
            flying.end_s = math.inf
        over = [flying for flying in flyings if flying.went_remote or flying.is_idle]
        told = [flying for flying in over if not self._is_kept(flying)]
        self._verdicts.report(self._local.dc.name, told)

    def _is_kept(self, flying: Flying) -> bool:
        """Rather than told that its fate is unknown: its appends run, and may store it yet."""
        is_stored_in_part = any(type(each) is Stored for each in flying.outcomes)
        return bool(flying.running) and not is_stored_in_part and self._keeps(flying.item)

    def _flush(self, path: Path, now_s: float) -> None:
        """A datacentre does not work: what waits for it goes to the next one at once."""
        sends: _Sends = {}
        for flight in self._flights:
            for flying in self._fly(flight):
                if flying.is_open and next(reversed(flying.tried), "") == path.dc.name:
                    target = self._ways.usable(flying.tried)
                    if target is not None:
                        sends.setdefault((target, Cause.BREAKER), []).append(flying)
            flight.changed.set()
        self._send(sends, now_s)

    def _go_on(self, failed: list[Flying]) -> None:
        """A datacentre did not take these: the next one is asked, while there is time."""
        now_s = self._clock.monotonic_s()
        sends: _Sends = {}
        ended = []
        for flying in failed:
            if flying.is_underway and flying.is_open:
                # Another one was asked already.
                continue
            target = None
            if flying.is_open and now_s < flying.end_s:
                target = self._ways.any_left(flying.tried)
            if target is not None:
                sends.setdefault((target, Cause.ERROR), []).append(flying)
            elif not flying.running and not self._may_wait(flying, now_s):
                ended.append(flying)
        self._verdicts.report(self._local.dc.name, ended)
        self._send(sends, now_s)

    def _may_wait(self, flying: Flying, now_s: float) -> bool:
        """Nobody can be asked, but perhaps soon: a remote's partitions are being looked up."""
        is_in_time = flying.is_open and now_s < flying.end_s
        return is_in_time and self._ways.may_have_another(flying.tried)

    def _use_found(self) -> None:
        """A remote was asked for its partitions: what has waited for that goes there, or has
        failed if there is no other.
        """
        now_s = self._clock.monotonic_s()
        flyings = [each for flight in self._flights for each in flight.flyings or ()]
        self._go_on([each for each in flyings if each.is_idle])
        for path in self._ways.all:
            if path.is_open:
                self._flush(path, now_s)

    def _send(self, sends: _Sends, now_s: float) -> None:
        """Send these to one more datacentre each."""
        for (target, cause), asked in sends.items():
            flyings = [flying for flying in asked if not self._joins(flying.item, flying.older)]
            if not flyings:
                continue
            name = target.dc.name
            due_s = now_s + target.delay_s(now_s)
            for flying in flyings:
                flying.cause = cause
                flying.tried[name] = ""
                flying.sent_s = now_s
                flying.due_s = due_s
            count = sum([flying.count for flying in flyings])
            self._fallback.measures.messages(cause, name).add(count)
            by_flight: dict[Flight, list[Flying]] = {}
            for flying in flyings:
                by_flight.setdefault(flying.flight, []).append(flying)
            if target is self._local:
                for flight, some in by_flight.items():
                    self._appends.begin_local(target, flight, some)
                continue
            outlet = self._ways.outlets[target]
            plain: list[Flying] = []
            for flight, some in by_flight.items():
                flight.went_remote = True
                strike = flight.strikes.get(name)
                if strike is None:
                    plain += some
                else:
                    self._appends.begin_struck(outlet, some, strike)
            if plain:
                outlet.send(plain)

    def _fly(self, flight: Flight, *, is_local: bool = True) -> list[Flying]:
        """The flight's items one by one; `is_local`: all were sent to the own log."""
        if flight.flyings is None:
            rescue_s = self._rescue_after_s(flight.sent_s)
            due_s = flight.sent_s + (self._local.delay_s(flight.sent_s) if is_local else 0.0)
            local = self._local.dc.name if is_local else None
            for flying in flight.fly(local):
                started_s = flying.item.started_s
                flying.due_s = due_s
                flying.rescue_s = started_s + rescue_s
                flying.end_s = started_s + self._limit_s - _END_MARGIN_S
        assert flight.flyings is not None, "just made"
        return flight.flyings

    def _rescue_after_s(self, now_s: float) -> float:
        """So long after its start a message must go to a remote to be there in time."""
        if self._is_off:
            return math.inf
        return max(self._limit_s - self._ways.rescue_s(self._rescue_s, now_s), 0.0)

    def _land(self, flight: Flight) -> None:
        """The producer goes on: what runs still belongs to nobody; what never began has ended."""
        for append in flight.appends:
            self._fallback.losers.adopt(append)
        unsent = [
            each for each in flight.flyings or () if not each.is_reported and not each.running
        ]
        self._verdicts.report(self._local.dc.name, unsent)
