"""Promises about the Avro topic, whose schema changes while it is published to."""

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.history.events import Delivery, Event, Healed, Published, Stored
from hermes_chaos.sim.workload.plans import VISITS
from hermes_chaos.sim.workload.subject import Subject

_USED_WITHIN_S = 2.5


class WrittenVersionsAreRead(Checker):
    """A message is stored in a saved version, and every subscriber gets it, as JSON or as Avro, by
    that version. After healing, messages published 2.5 s after a version was saved are stored in it
    or a later one, in each datacentre that delivers again: its leader copies the versions.
    """

    name = "written versions are read"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._readers = {each.name for each in subject.audiences if each.topic == VISITS.name}
        self._asked = 1
        self._saved: list[tuple[float, int]] = []
        self._healed_s = float("inf")
        self._latest_s = 0.0
        self._delivers_s: dict[str, float] = {}
        self._versions: dict[str, set[int]] = {}

    def saving(self, version: int) -> None:
        """A version is about to be saved, perhaps repeatedly."""
        self._asked = max(self._asked, version)

    def saved(self, version: int, at_s: float) -> None:
        """Saving a version was confirmed."""
        self._saved.append((at_s, version))

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        if isinstance(event, Published):
            self._latest_s = max(self._latest_s, event.began_s)
        elif isinstance(event, Delivery) and self._latest_s >= self._healed_s:
            self._delivers_s.setdefault(event.dc, self._latest_s)
        match event:
            case Stored(topic=VISITS.name, message_id=message_id, version=version):
                self._versions.setdefault(message_id, set()).add(version)
                if not 1 <= version <= self._asked:
                    self.violations.append(
                        f"{event.place} holds {message_id} in version {version} of {self._asked}"
                    )
            case Delivery() if event.subscription in self._readers:
                self.examined += 1
                written = self._versions.get(event.message_id, set())
                if event.version not in written:
                    self.violations.append(
                        f"{event.subscription} got {event.message_id} in version {event.version}; "
                        f"it is stored in {sorted(written)}"
                    )
            case Published(topic=VISITS.name, is_acknowledged=True, message_id=message_id):
                self._check_use(event)
            case Healed(at_s):
                self._healed_s = at_s
            case _:
                pass

    def _check_use(self, published: Published) -> None:
        since_s = published.began_s - _USED_WITHIN_S
        known = max((version for at_s, version in self._saved if at_s <= since_s), default=1)
        written = self._versions.get(published.message_id, set())
        begins_s = self._delivers_s.get(published.dc, float("inf"))
        if since_s >= begins_s and min(written, default=known) < known:
            self.violations.append(
                f"{published.node} stored {published.message_id} in version {min(written)} at "
                f"{published.began_s:.3f}; version {known} was saved long before"
            )
