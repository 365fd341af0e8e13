"""Promises to subscribers about pushes that they do not get: filtered messages, and pushes that are
too many, too late, or too large.
"""

from collections import defaultdict

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.history.events import (
    Adopted,
    Attempted,
    Delivery,
    Ended,
    Event,
    Halted,
    Lettered,
    Stored,
    serial_of,
)
from hermes_chaos.sim.workload.subject import Subject

_HALTED_WITHIN_S = 1.0
_MANY = 3
"""Several owners of a subscription each see a part of the failures."""
_SURELY_FALLEN = 30
"""Ten failures more than successes in a round show it; those of the previous round may
not count.
"""
_UNTIL_SURE_S = 0.5
"""Failures are an outage only if nothing was accepted for this long."""
_UNTIL_COUNTED_AGAIN_S = 3.5
"""For this long, a message that had failed before others succeeded may itself be the cause."""
_AT_ONCE_S = 0.1


class FilteredStayAway(Checker):
    """A message that a subscription's filter rejects never reaches its subscriber."""

    name = "filtered stay away"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._filtering = {each.name: each for each in subject.audiences if each.wants_even}

    def watch(self, event: Event) -> None:
        """Check the event."""
        if isinstance(event, Delivery) and event.subscription in self._filtering:
            self.examined += 1
            if not self._filtering[event.subscription].wants(event.body):
                self.violations.append(
                    f"{event.subscription} got message {serial_of(event.body)}, which its filter "
                    "leaves out"
                )


class AttemptsAreFew(Checker):
    """No message is attempted more often than `attemptsMax`, unless it is re-driven or its consumer
    was replaced.
    """

    name = "attempts are few"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._limits = {
            each.name: each.attempts_max
            for each in subject.audiences
            if each.attempts_max is not None
        }
        self._made: dict[tuple[str, str, str, str], int] = defaultdict(int)
        self._lettered: set[tuple[str, str, str]] = set()
        self._copies: dict[tuple[str, str], int] = defaultdict(int)

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Stored(place, _, message_id):
                self._copies[place[0], message_id] += 1
            case Attempted(subscription=name) if name in self._limits:
                self.examined += 1
                if event.retries == 0:
                    self._made[event.lane] = 0
                limit = self._limits[name]
                # After a crash a message may be read again while its letter is re-driven. And of
                # two copies in a log it is unclear which one is attempted.
                is_single = (
                    event.dc,
                    name,
                    event.message_id,
                ) not in self._lettered and self._copies[event.dc, event.message_id] <= 1
                made = self._made[event.lane] if is_single else 0
                if max(event.retries, made) >= limit:
                    self.violations.append(
                        f"{event.node} made attempt {event.retries + 1} at {event.message_id} for "
                        f"{name} at {event.at_s:.3f}; {limit} are allowed"
                    )
            case Lettered(dc, letter):
                self._lettered.add((dc, letter.subscription, letter.message_id))
            case Ended(attempt=attempt, status=status) if attempt.subscription in self._limits:
                # An attempt without an answer may not have been sent.
                self._made[attempt.lane] += status > 0
            case _:
                pass


class SuspensionHalts(Checker):
    """A second after a node has heard of a subscription's suspension it attempts nothing more,
    until it hears that the subscription is resumed.
    """

    name = "a suspension halts"
    is_rare = True

    def __init__(self, _subject: Subject) -> None:
        super().__init__()
        self._since_s: dict[tuple[str, str], float] = {}

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Halted(node, name, is_suspended, at_s):
                if is_suspended:
                    self.examined += 1
                    self._since_s[node, name] = at_s
                else:
                    self._since_s.pop((node, name), None)
            case Attempted(node=node, subscription=name, at_s=at_s):
                since_s = self._since_s.get((node, name))
                if since_s is not None and at_s > since_s + _HALTED_WITHIN_S:
                    self.violations.append(
                        f"{node} pushed {event.message_id} to {name} at {at_s:.3f}, and has known "
                        f"of its suspension since {since_s:.3f}"
                    )
            case _:
                pass


class BatchesAreBounded(Checker):
    """No batch exceeds the configured messages or bytes, and equal batch ids mean equal batches."""

    name = "batches are bounded"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._limits = {e.name: e.batch for e in subject.audiences if e.batch is not None}
        self._bodies: dict[str, bytes] = {}

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        if not isinstance(event, Attempted) or event.subscription not in self._limits:
            return
        self.examined += 1
        size, volume_bytes = self._limits[event.subscription]
        batch = f"{event.subscription} was pushed batch {event.message_id}"
        if len(event.ids) > size or len(event.body) > volume_bytes:
            self.violations.append(
                f"{batch} of {len(event.ids)} messages and {len(event.body)} bytes; at most {size} "
                f"and {volume_bytes} are asked for"
            )
        if self._bodies.setdefault(event.message_id, event.body) != event.body:
            self.violations.append(f"{batch} with two different bodies")


class DeadEndpointsRest(Checker):
    """Half a second after an endpoint has begun to fail without any success, only a few more
    messages are attempted there, plus one a second, until its consumer restarts or hears of a
    change. Judged if failures come at once. Messages that had failed before count three seconds
    later.
    """

    name = "dead endpoints rest"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        # A batch waits for the previous one; of several recipients each may fail on its own.
        self._audiences = {
            e.name: e for e in subject.audiences if e.batch is None and e.recipients == 1
        }
        # Since when there are only failures, and the messages attempted since.
        self._failing: dict[tuple[str, str], tuple[float, dict[str, None]]] = {}
        # When each message first failed.
        self._failed_s: dict[tuple[str, str, str], float] = {}

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Adopted(node, name):
                self._failing.pop((node, name), None)
            case Ended(attempt=attempt) if attempt.subscription in self._audiences:
                lane = attempt.node, attempt.subscription
                is_late = event.at_s - attempt.at_s > _AT_ONCE_S
                is_failure = self._is_failure(event)
                if is_failure:
                    self._failed_s.setdefault((*lane, attempt.message_id), event.at_s)
                if is_late or not is_failure:
                    self._failing.pop(lane, None)
                else:
                    self._failing.setdefault(lane, (event.at_s, {}))
            case Attempted(node=node, subscription=name) if (node, name) in self._failing:
                self._check(event, *self._failing[node, name])
            case _:
                pass

    def _is_failure(self, ended: Ended) -> bool:
        """True if the answer shows that the endpoint is failing, whatever the message."""
        if ended.status == 0:
            return True
        is_refused = self._audiences[ended.attempt.subscription].ends(ended.status)
        return ended.status >= 500 and not ended.retry_after and not is_refused

    def _check(self, attempt: Attempted, since_s: float, attempted: dict[str, None]) -> None:
        failed_s = self._failed_s.get((attempt.node, attempt.subscription, attempt.message_id))
        had_failed = failed_s is not None and failed_s < since_s
        if attempt.at_s - since_s < (_UNTIL_COUNTED_AGAIN_S if had_failed else _UNTIL_SURE_S):
            return
        attempted[attempt.message_id] = None
        self.examined += len(attempted) > _MANY
        if len(attempted) > _SURELY_FALLEN + attempt.at_s - since_s:
            self.violations.append(
                f"{attempt.node} attempted {len(attempted)} messages for {attempt.subscription} "
                f"from {since_s:.3f} to {attempt.at_s:.3f}, and all have failed there"
            )
