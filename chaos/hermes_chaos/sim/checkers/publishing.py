"""Promises to publishers: an answer is true of the logs."""

from collections.abc import Callable

from hermes_actors.model.topic import Ack
from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.history.events import (
    Delivery,
    Dropped,
    Event,
    Expired,
    Place,
    Published,
    Stored,
    Told,
    serial_of,
)
from hermes_chaos.sim.workload.subject import Subject


class AcknowledgedAreStored(Checker):
    """A 201 comes after its message is in some log; a 202 after it is in a log or safely on its
    node's disk, from where it reaches a log. And no promised message leaves the log.

    A leader change may drop messages acknowledged at LEADER, as in Kafka, but none at ALL. Messages
    removed by retention are `lost` to subscriptions that have not read them.
    """

    name = "acknowledged are stored"

    def __init__(self, subject: Subject, keeps: Callable[[str, str], bool]) -> None:
        super().__init__()
        self._subject = subject
        self._keeps = keeps
        self._copies: dict[str, set[tuple[Place, int]]] = {}
        self._at: dict[tuple[Place, int], str] = {}
        self._acknowledged: dict[str, Published] = {}
        self._expired: set[str] = set()
        self._dropped: set[str] = set()
        self._told: set[str] = set()
        self._left: set[str] = set()

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Stored(place, offset, message_id):
                self._copies.setdefault(message_id, set()).add((place, offset))
                self._at[place, offset] = message_id
                self._left.discard(message_id)
            case Told():
                self._told.update(event.stored)
                # A paused node may hear late of a copy that a leader change has dropped.
                self._dropped.update(self._left.intersection(event.stored))
            case Dropped(place, end):
                self._drop(place, end)
            case Expired(place, start):
                for at in [at for at in self._at if at[0] == place and at[1] < start]:
                    self._expired.add(self._at.pop(at))
            case Published() if event.is_acknowledged:
                self.examined += 1
                self._acknowledged[event.message_id] = event
                if self._copies.get(event.message_id) or self._may_be_lost(event):
                    return
                if not self._is_kept(event):
                    self.violations.append(
                        f"message {event.serial} ({event.message_id}) was answered "
                        f"{event.status} by {event.node} and is in no log"
                    )
            case _:
                pass

    def finish(self) -> None:
        """Judge that every message answered 202 has been in a log by now."""
        for message_id, event in self._acknowledged.items():
            if event.status != 202 or self._copies.get(message_id):
                continue
            if message_id not in self._expired and not self._may_be_lost(event):
                self.violations.append(
                    f"message {event.serial} ({message_id}) was answered 202 by {event.node} "
                    f"at {event.ended_s:.3f} and never came into a log"
                )

    @property
    def lost(self) -> set[str]:
        """The ids of messages that a subscription which has not read them yet need not get."""
        return self._expired | self._dropped

    def _drop(self, place: Place, end: int) -> None:
        for at in [at for at in self._at if at[0] == place and at[1] >= end]:
            message_id = self._at.pop(at)
            copies = self._copies[message_id]
            copies.discard(at)
            published = self._acknowledged.get(message_id)
            if copies:
                continue
            if self._is_kept(published) and message_id not in self._told:
                self._left.add(message_id)
                continue
            self._dropped.add(message_id)
            if published is not None and not self._may_be_lost(published):
                self.violations.append(
                    f"message {published.serial} of ack ALL left {place} with its leader"
                )

    def _is_kept(self, published: Published | None) -> bool:
        """True if it was answered 202 and is on its node's disk."""
        return (
            published is not None
            and published.status == 202
            and self._keeps(published.node, published.message_id)
        )

    def _may_be_lost(self, published: Published) -> bool:
        """True if an allowed leader change dropped it."""
        is_all = self._subject.acks[published.topic] is Ack.ALL
        return published.message_id in self._dropped and not is_all


class RefusedAreNowhere(Checker):
    """A message that was answered 4xx is in no log and reaches nobody.

    Except for a repeated message: refusing the second request says nothing about the first.
    """

    name = "refused are nowhere"

    def __init__(self) -> None:
        super().__init__()
        self._refused: dict[int, Published] = {}
        self._seen: dict[int, str] = {}

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Published() if event.is_refused and not event.is_repeat:
                self._refused[event.serial] = event
            case Stored(place=place, body=body):
                self._see(body, f"stored in {place[0]}/{place[1]}")
            case Delivery(subscription=subscription, body=body):
                self._see(body, f"delivered to {subscription}")
            case _:
                pass

    def finish(self) -> None:
        """Judge what is only known at the end."""
        self.examined = len(self._refused)
        for serial, published in self._refused.items():
            if serial in self._seen:
                self.violations.append(
                    f"message {serial} was answered {published.status} and {self._seen[serial]}"
                )

    def _see(self, body: bytes, how: str) -> None:
        serial = serial_of(body)
        if serial is not None:
            self._seen[serial] = how
