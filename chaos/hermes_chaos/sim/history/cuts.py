"""Ends that logs have lost though they had been read, and what nobody can be blamed to have missed.

A log gives the lost offsets again. Who was reading knows what it has read, and goes back; who
begins knows only the place that was committed, and a log does not say that it was another's.
"""

from collections.abc import Mapping

from hermes_chaos.sim.history.events import Adopted, Committed, EndLost, Event, Place, Stored


class Cuts:
    """The subscriptions that may have missed what is stored where something was lost: those whose
    consumers began after it with a commit of before it. `groups` are the consumer groups of
    subscriptions.
    """

    def __init__(self, groups: Mapping[str, str]) -> None:
        self._names = {group: name for name, group in groups.items()}
        self._cuts: dict[Place, list[EndLost]] = {}
        # The subscriptions that have not committed since a log was cut, and those that began so.
        self._unaware: dict[EndLost, set[str]] = {}
        self._blurred: dict[EndLost, set[str]] = {}
        self._stored: list[tuple[str, Place, int]] = []

    def watch(self, event: Event) -> None:
        """Take note."""
        match event:
            case EndLost(place):
                self._cuts.setdefault(place, []).append(event)
                self._unaware[event] = set(self._names.values())
                self._blurred[event] = set()
            case Stored(place, offset, message_id) if place in self._cuts:
                self._stored.append((message_id, place, offset))
            case Committed(place, group, commit) if group in self._names:
                for cut in self._cuts.get(place, ()):
                    if commit.position != cut.was:
                        self._unaware[cut].discard(self._names[group])
            case Adopted(node, name, _):
                for cut, unaware in self._unaware.items():
                    if cut.place[0] == node.partition("-")[0] and name in unaware:
                        self._blurred[cut].add(name)
            case _:
                pass

    def may_miss(self, name: str, place: Place, offset: int) -> bool:
        """Whether the subscription's consumer may have missed what is there."""
        return any(
            cut.end <= offset < cut.was and name in self._blurred[cut]
            for cut in self._cuts.get(place, ())
        )

    def missed(self, name: str) -> set[str]:
        """The messages that it may have missed."""
        return {
            message_id
            for message_id, place, offset in self._stored
            if self.may_miss(name, place, offset)
        }
