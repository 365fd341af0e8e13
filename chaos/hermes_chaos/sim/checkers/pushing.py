"""Promises to subscribers about pushes: not more than configured, and none too early."""

from collections import Counter, deque

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.history.events import (
    Adopted,
    Attempted,
    Calmed,
    Ended,
    Event,
    Lettered,
    Stored,
    Troubled,
    coordination_of,
)
from hermes_chaos.sim.workload.subject import Subject

_TOLERANCE_S = 1e-6
_AWAY_AFTERMATH_S = 2.0


class RateIsKept(Checker):
    """In no second do all nodes of a datacentre together push more than the subscription's rate.

    This holds also when owners change, because a new owner counts its whole share as just used. A
    share is seldom a whole number of messages a second, and each owner's last message may come
    slightly early, so one more is allowed for each owner but one.
    """

    name = "the rate is kept"

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._audiences = subject.by_name
        self._recent: dict[tuple[str, str, str], deque[tuple[float, str]]] = {}

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Attempted(node=node, subscription=subscription, at_s=at_s):
                self.examined += 1
                # A message to several recipients counts once.
                recent = self._recent.setdefault((event.dc, subscription, event.host), deque())
                recent.extend([(at_s, node.partition("#")[0])] * max(1, len(event.ids)))
                while recent[0][0] <= at_s - 1.0 + _TOLERANCE_S:
                    recent.popleft()
                rate = self._audiences[subscription].rate
                if len(recent) > rate + len({each for _, each in recent}) - 1:
                    self.violations.append(
                        f"{node} pushed {len(recent)} messages to {subscription} within a second "
                        f"(rate {rate}) at {at_s:.3f}, with all nodes of its datacentre"
                    )
            case _:
                pass


class InflightIsKept(Checker):
    """No more pushes of a subscription are under way than its window allows.

    After a restart the pushes of the previous life do not count.
    """

    name = "the window is kept"

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._audiences = subject.by_name
        self._under_way: dict[tuple[str, str], dict[str, set[int]]] = {}

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Attempted(node=node, subscription=subscription, number=number):
                self.examined += 1
                hosts = self._under_way.setdefault((node, subscription), {})
                under_way = hosts.setdefault(event.host, set())
                under_way.add(number)
                window = self._audiences[subscription].inflight_max
                if len(under_way) > window:
                    self.violations.append(
                        f"{node} has {len(under_way)} pushes to {subscription} under way, "
                        f"its window is {window}"
                    )
            case Ended(attempt=attempt):
                for under_way in self._under_way.get(
                    (attempt.node, attempt.subscription), {}
                ).values():
                    under_way.discard(attempt.number)
            case Adopted(node, subscription):
                self._under_way.pop((node, subscription), None)
            case _:
                pass


class RetriesWait(Checker):
    """A retry comes after the backoff, and after the pause that Retry-After asked for.

    If an attempt ended without an answer while its node was paused or cut off, the same attempt is
    repeated, without a wait. Of several recipients some may have answered.
    """

    name = "retries wait"

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._audiences = subject.by_name
        self._latest: dict[tuple[str, str, str, str], int] = {}
        self._last: dict[tuple[str, str, str, str], Ended] = {}
        self._copies: Counter[tuple[str, str]] = Counter()
        self._lettered: set[tuple[str, str, str]] = set()
        # By node and datacentre: until when the coordination may have been unreachable.
        self._away_until_s: dict[str, float] = {}

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Stored(place, _, message_id):
                self._copies[place[0], message_id] += 1
            case Lettered(dc, letter):
                # After a crash a message may be read again while its letter is re-driven.
                self._lettered.add((dc, letter.subscription, letter.message_id))
            case Troubled(where, _, at_s, lasts_s):
                self._away_until_s[where] = max(
                    self._away_until_s.get(where, 0.0), at_s + lasts_s + _AWAY_AFTERMATH_S
                )
            case Calmed(where, at_s):
                self._away_until_s[where] = at_s + _AWAY_AFTERMATH_S
            case Attempted() if self._is_doubled(event):
                # Of two copies it is unclear which one is attempted.
                pass
            case Attempted(number=number):
                last = self._last.get(event.lane)
                if event.retries > 0 and last is not None and not self._is_same(event, last):
                    self.examined += 1
                    self._check(event, last)
                self._latest[event.lane] = number
            case Ended(attempt=attempt):
                # An attempt of a crashed life may end while its successor is at work.
                if self._latest.get(attempt.lane) == attempt.number:
                    self._last[attempt.lane] = event
            case _:
                pass

    def _is_same(self, attempt: Attempted, last: Ended) -> bool:
        """True if the last attempt does not count, because its node was away."""
        dc = attempt.dc
        places = attempt.node.partition("#")[0], dc, coordination_of(dc)
        is_answered = last.status > 0 and self._audiences[attempt.subscription].recipients == 1
        return (
            attempt.retries == last.attempt.retries
            and not is_answered
            and any(last.at_s <= self._away_until_s.get(place, 0.0) for place in places)
        )

    def _is_doubled(self, attempt: Attempted) -> bool:
        """True if the datacentre's log holds the message more than once, or a letter of it."""
        dc, message_id = attempt.dc, attempt.message_id
        is_lettered = (dc, attempt.subscription, message_id) in self._lettered
        return is_lettered or self._copies[dc, message_id] > 1

    def _check(self, attempt: Attempted, last: Ended) -> None:
        waited_s = attempt.at_s - last.at_s
        least_s = self._audiences[attempt.subscription].backoff_ms / 1_000
        if last.status in (429, 503) and last.retry_after.isdigit():
            least_s = float(last.retry_after)
        if waited_s < least_s - 0.001:
            self.violations.append(
                f"{attempt.subscription} got retry {attempt.retries} of {attempt.message_id} "
                f"{waited_s:.3f} s after its failure ({last.status}); {least_s:g} s were due"
            )
