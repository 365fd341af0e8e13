"""Promises to publishers: an answer in time, as long as something works."""

import math
from collections import defaultdict

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.history.events import (
    Calmed,
    Event,
    Published,
    Told,
    Troubled,
    disk_of,
    readiness_of,
)
from hermes_chaos.sim.history.troubles import DISK, LOG, NODE, READINESS, Troubles
from hermes_chaos.sim.workload.subject import Subject

_PROMPT_WITHIN_S = 0.4
"""The cap of the hedge delay (0.25 s), plus what a working log may need then."""
_KEPT_WHILE_S = 0.1
"""How long after a trouble a message that met it may still be spooled."""
_SPOOL_REPLAY_S = 5.0
"""How long messages with keys may still go through a spool, after both logs were away, or after a
node has restarted that had spooled messages.
"""
_JOINED_WITHIN_S = 3.0
"""How long a spool may need to send a message to the working log: its own append is given up after
a second, the own log is tried for another second, then the next log after a pause.
"""


class Answering(Checker):
    """The common part of both promises: publishes, troubles, and other publishes that were in the
    way.

    `waiting_max`: how many messages of a topic may wait in a node before more are refused.
    `batch_max`: how many of them go to a log at once, one batch after the other.
    """

    def __init__(self, subject: Subject, waiting_max: int, batch_max: int) -> None:
        super().__init__()
        self._subject = subject
        self._waiting_max = waiting_max
        self._batch_max = batch_max
        self._published: list[Published] = []
        self._at: dict[tuple[str, str], list[Published]] = defaultdict(list)
        # By node, its lives in order, each with the time of its first request.
        self._lives: dict[str, dict[str, float]] = defaultdict(dict)
        self.troubles = Troubles()

    def watch(self, event: Event) -> None:
        """Note the event; `finish` judges."""
        match event:
            case Published() if event.topic in self._subject.acks and event.node != event.dc:
                self._published.append(event)
                self._at[event.node, event.topic].append(event)
                self._lives[event.node].setdefault(event.life, event.began_s)
            case Troubled() | Calmed():
                self.troubles.watch(event)
            case _:
                pass

    def _is_log_away(self, published: Published, dc: str, aftermath_s: float = 0.0) -> bool:
        """True if that datacentre's log was broken, or not allowed for fallback, during the
        publish.
        """
        began_s, ended_s = published.began_s - aftermath_s, published.ended_s
        return self.troubles.met(dc, LOG, began_s, ended_s) or (
            dc != published.dc and self.troubles.met(readiness_of(dc), READINESS, began_s, ended_s)
        )

    def _is_node_broken(self, published: Published) -> bool:
        return self.troubles.met(
            published.node, NODE, published.began_s, published.ended_s, topic=published.topic
        )

    def _is_disk_broken(self, published: Published) -> bool:
        return self.troubles.met(
            disk_of(published.node), DISK, published.began_s, published.ended_s
        )

    def _is_crowded(self, published: Published) -> bool:
        """True if it was rightly refused because too many others wait, or had to wait behind a full
        batch to a log that is away.
        """
        if published.code == "OTHER":
            return self._others(published, published.ended_s) >= self._waiting_max
        is_away = self._is_log_away(published, published.dc)
        return is_away and self._others(published, published.began_s) >= self._batch_max

    def _is_behind(self, published: Published) -> bool:
        """True if it may have been refused because older messages of its key wait in a spool that
        accepts no more. A failing disk may have stored it all the same, as its code says then.
        """
        is_spooled = published.topic in self._subject.spooled
        is_broken = self._is_disk_broken(published)
        is_refused = published.code == "OTHER" or (
            published.code == "SENDING_TO_KAFKA_TIMEOUT" and is_spooled and is_broken
        )
        return is_refused and bool(published.key) and (is_broken or not is_spooled)

    def _others(self, published: Published, at_s: float) -> int:
        """How many other publishes to the topic were under way on its node at that time."""
        return sum(
            other.began_s <= at_s <= other.ended_s
            for other in self._at[published.node, published.topic]
            if other is not published
        )


class PublishesAreAnswered(Answering):
    """No publish times out, gets another 5xx, or is only spooled, without a cause.

    A cause is: the node's end or a crash of the topic's producer, during the publish or shortly
    before; as many other publishes under way as may wait; no working log that the topic may use and
    a broken disk; or older messages of the key in a spool that is full. Examined are publishes
    without a cause.
    """

    name = "publishes are answered in time"

    def finish(self) -> None:
        """Judge what is only known at the end."""
        for published in self._published:
            if self._is_excused(published):
                continue
            self.examined += 1
            status = published.status
            is_failed = status is None or status >= 500 or self._is_kept_in_vain(published)
            if is_failed and not self._is_crowded(published):
                self.violations.append(
                    f"message {published.serial} for {published.topic} was answered {status} "
                    f"{published.code} by {published.node} after {published.lasted_s:.3f} s "
                    f"at {published.ended_s:.3f}, and nothing was broken"
                )

    def _is_kept_in_vain(self, published: Published) -> bool:
        """True if it was spooled although its log worked and the spool held nothing of its key."""
        aftermath_s = _SPOOL_REPLAY_S if published.key else _KEPT_WHILE_S
        return (
            published.status == 202
            and not published.is_repeat
            and not (published.key and self._has_just_come_back(published))
            and not self._is_log_away(published, published.dc, aftermath_s)
        )

    def _has_just_come_back(self, published: Published) -> bool:
        """True if its node had restarted shortly before: an earlier life may have spooled messages
        at any time.
        """
        first, *_ = lives = self._lives[published.node]
        since_s = lives[published.life]
        return published.life != first and published.began_s < since_s + _SPOOL_REPLAY_S

    def _is_excused(self, published: Published) -> bool:
        if self._is_node_broken(published) or self._is_behind(published):
            return True
        dcs = [published.dc]
        if published.topic in self._subject.falls_back:
            dcs = [*self._subject.dcs]
        if not all(self._is_log_away(published, dc) for dc in dcs):
            return False
        return published.topic not in self._subject.spooled or self._is_disk_broken(published)


class OtherDatacentreServes(Answering):
    """While its own datacentre's log is broken and another's works, a publish to a fallback topic
    is answered 201 within the cap of the hedge delay plus a little.

    Examined are such publishes.
    """

    name = "another datacentre serves"
    is_rare = True

    def __init__(self, subject: Subject, waiting_max: int, batch_max: int) -> None:
        super().__init__(subject, waiting_max, batch_max)
        self._known_s: dict[tuple[str, str], float] = {}

    def finish(self) -> None:
        """Judge what is only known at the end."""
        for published in self._published:
            if not self._is_concerned(published):
                continue
            self.examined += 1
            if published.status == 201 and published.lasted_s <= _PROMPT_WITHIN_S:
                continue
            if not self._is_crowded(published) and not self._joins(published):
                self.violations.append(
                    f"message {published.serial} for {published.topic} was answered "
                    f"{published.status} {published.code} by {published.node} after "
                    f"{published.lasted_s:.3f} s at {published.ended_s:.3f}, though another "
                    "datacentre's log worked"
                )

    def watch(self, event: Event) -> None:
        """Note the event; `finish` judges."""
        super().watch(event)
        if isinstance(event, Told):
            for message_id in event.stored:
                self._known_s.setdefault((event.life, message_id), event.at_s)

    def _joins(self, published: Published) -> bool:
        """True if it was spooled behind an older message of its key, which was spooled for a reason
        of its own, did not wait long, and was not known to be in a log in this life of the node.
        """
        return published.status == 202 and any(
            other.status == 202
            and other.key == published.key != ""
            and other.began_s < published.began_s < other.ended_s + _JOINED_WITHIN_S
            and self._known_s.get((published.life, other.message_id), math.inf) >= published.began_s
            for other in self._at[published.node, published.topic]
        )

    def _is_concerned(self, published: Published) -> bool:
        """True for a valid first request while only its own log was away."""
        if published.topic not in self._subject.falls_back or published.is_repeat:
            return False
        if published.status is not None and 400 <= published.status < 500:
            return False
        others = [dc for dc in self._subject.dcs if dc != published.dc]
        return (
            self._is_log_away(published, published.dc)
            and not all(self._is_log_away(published, dc, _SPOOL_REPLAY_S) for dc in others)
            and not self._is_node_broken(published)
            and not self._is_behind(published)
        )
