"""Checks times to live, which count from publication or from the first attempt."""

from hermes_actors.model.dead_letter import DiscardReason, Letter
from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.environment.clock import EPOCH_MS
from hermes_chaos.sim.history.events import Attempted, Ended, Event, Lettering, Stored
from hermes_chaos.sim.history.standing import Skewed
from hermes_chaos.sim.workload.subject import Audience, Subject

_SHORT_S = 60.0
_BACKOFFS_S = 0.2
"""A message is given up if its next attempt would come too late, so up to this much earlier."""
_ROUNDED_S = 0.005


class TimeToLiveIsKept(Checker):
    """A message whose attempt fails after its time to live is not attempted again by that life of a
    node. If its age counts from publication, it is not attempted at all once it is too old. And no
    message is given up for its age too early. The age counts from publication, by the wall clocks
    of publisher and consumer, or from the first attempt.
    """

    name = "times to live are kept"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._audiences: dict[str, Audience] = {
            each.name: each
            for each in subject.audiences
            if each.ttl_s < _SHORT_S and each.batch is None
        }
        self._topics = {each.topic for each in self._audiences.values()}
        self._stored_ms: dict[tuple[str, str], list[int]] = {}
        self._skew_ms: dict[str, int] = {}
        self._skewed_s: dict[str, float] = {}
        # Bounds of the first attempt: the latest is this consumer's first, the earliest that of a
        # previous consumer in the same life of the node.
        self._first_s: dict[tuple[str, str, str], float] = {}
        self._earliest_s: dict[tuple[str, str, str], float] = {}
        self._failed: dict[tuple[str, str, str], Ended] = {}
        self._over: dict[tuple[str, str, str], tuple[int, float]] = {}
        self._lettered: set[tuple[str, str]] = set()

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Stored(place, _, message_id) if event.topic in self._topics:
                self._stored_ms.setdefault((place[0], message_id), []).append(event.timestamp_ms)
            case Skewed(node, skew_ms, at_s):
                self._skew_ms[node] = skew_ms
                self._skewed_s[node] = at_s
            case Attempted(subscription=name) if name in self._audiences:
                self._attempt(event)
            case Ended(attempt=attempt) if attempt.subscription in self._audiences:
                self._end(event)
            case Lettering(letter=letter) if letter.subscription in self._audiences:
                self._letter(event, letter)
            case _:
                pass

    def _attempt(self, attempt: Attempted) -> None:
        key = attempt.node, attempt.subscription, attempt.message_id
        if not self._is_plain(attempt.dc, attempt.subscription, attempt.message_id):
            return
        if not attempt.retries:
            if key not in self._first_s:
                self._check_first(attempt, key)
            self._first_s[key] = attempt.at_s
            self._earliest_s.setdefault(key, attempt.at_s)
            self._over.pop(key, None)
            return
        self.examined += 1
        retries, age_s = self._over.get(key, (attempt.retries, 0.0))
        if retries < attempt.retries:
            ttl_s = self._audiences[attempt.subscription].ttl_s
            self.violations.append(
                f"{attempt.node} tried {attempt.message_id} for {attempt.subscription} again at "
                f"{attempt.at_s:.3f}; it was {age_s:.3f} s old when the attempt before had failed, "
                f"and lives for {ttl_s:g} s"
            )

    def _check_first(self, attempt: Attempted, key: tuple[str, str, str]) -> None:
        audience = self._audiences[attempt.subscription]
        if not audience.is_ttl_from_publication:
            return
        age_s = self._age_s(key, self._first_s, attempt.at_s)
        self.examined += age_s is not None
        if age_s is not None and age_s > audience.ttl_s + _ROUNDED_S:
            self.violations.append(
                f"{attempt.node} tried {attempt.message_id} for {attempt.subscription} first at "
                f"{attempt.at_s:.3f}; it was {age_s:.3f} s old, and lives for {audience.ttl_s:g} s"
            )

    def _end(self, ended: Ended) -> None:
        attempt = ended.attempt
        key = attempt.node, attempt.subscription, attempt.message_id
        self._failed[key] = ended
        age_s = self._age_s(key, self._first_s, ended.at_s)
        if age_s is not None and age_s > self._audiences[attempt.subscription].ttl_s + _ROUNDED_S:
            self._over[key] = attempt.retries, age_s

    def _age_s(
        self, key: tuple[str, str, str], firsts: dict[tuple[str, str, str], float], at_s: float
    ) -> float | None:
        """The message's age as the subscription counts it; None if unknown."""
        life, name, message_id = key
        if not self._audiences[name].is_ttl_from_publication:
            first_s = firsts.get(key)
            return None if first_s is None else at_s - first_s
        stored_ms = self._stored_ms.get((life.partition("-")[0], message_id), [])
        if len(stored_ms) != 1:
            return None
        wall_ms = EPOCH_MS + self._skew_ms.get(life.partition("#")[0], 0) + at_s * 1_000
        return (wall_ms - stored_ms[0]) / 1_000

    def _letter(self, lettering: Lettering, letter: Letter) -> None:
        life, name = lettering.life, letter.subscription
        key, node = (life, name, letter.message_id), life.partition("#")[0]
        is_plain = self._is_plain(lettering.dc, name, letter.message_id)
        self._lettered.add((name, letter.message_id))
        if letter.reason != DiscardReason.EXPIRED or not is_plain or not letter.attempts:
            return
        failed = self._failed.get(key)
        if failed is None or self._skewed_s.get(node, -1.0) >= failed.attempt.at_s:
            return
        decided_s = (letter.at_ms - self._skew_ms.get(node, 0) - EPOCH_MS) / 1_000
        age_s = self._age_s(key, self._earliest_s, decided_s)
        ttl_s = self._audiences[name].ttl_s
        if age_s is None or failed.retry_after:
            return
        self.examined += 1
        if age_s + _BACKOFFS_S < ttl_s:
            self.violations.append(
                f"{life} gave {letter.message_id} up for {name} as too old; it was {age_s:.3f} s "
                f"old, and lives for {ttl_s:g} s"
            )

    def _is_plain(self, dc: str, name: str, message_id: str) -> bool:
        """True if that log has it once and it was not given up before. Others cannot be judged."""
        copies = self._stored_ms.get((dc, message_id), [])
        return len(copies) == 1 and (name, message_id) not in self._lettered
