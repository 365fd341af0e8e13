"""Ends that logs have lost though they had been read, and what nobody can be blamed to have missed.

A log gives the lost offsets again. Who reads meets its end below its own place, and begins anew
there; who does not read just then finds others' records below its place, and a log says nothing of
that.
"""

from hermes_chaos.sim.history.events import Adopted, EndLost, Event, Place, Stored, Troubled

_NOTED_WITHIN_S = 3.0
"""A consumer has noticed, and has committed the lower place."""


class Cuts:
    """Whose consumers may have missed what is stored where something was lost: those that begin, or
    whose node or log is in trouble, before they have noticed for certain.
    """

    def __init__(self) -> None:
        self._cuts: dict[Place, list[EndLost]] = {}
        self._begun: dict[str, list[tuple[str, float]]] = {}
        self._troubled: list[Troubled] = []
        self._stored: list[tuple[str, Place, int]] = []

    def watch(self, event: Event) -> None:
        """Take note."""
        match event:
            case EndLost(place):
                self._cuts.setdefault(place, []).append(event)
            case Stored(place, offset, message_id) if place in self._cuts:
                self._stored.append((message_id, place, offset))
            case Adopted(node, name, at_s):
                self._begun.setdefault(name, []).append((node.partition("-")[0], at_s))
            case Troubled():
                self._troubled.append(event)
            case _:
                pass

    def may_miss(self, name: str, place: Place, offset: int) -> bool:
        """Whether the subscription's consumer may have missed what is there."""
        return any(
            cut.end <= offset < cut.was and self._is_blurred(name, cut)
            for cut in self._cuts.get(place, ())
        )

    def missed(self, name: str) -> set[str]:
        """The messages that it may have missed."""
        return {
            message_id
            for message_id, place, offset in self._stored
            if self.may_miss(name, place, offset)
        }

    def _is_blurred(self, name: str, cut: EndLost) -> bool:
        dc, at_s = cut.place[0], cut.at_s
        until_s = at_s + _NOTED_WITHIN_S
        return any(
            other == dc and at_s <= begun_s <= until_s
            for other, begun_s in self._begun.get(name, ())
        ) or any(
            dc in trouble.where
            and trouble.at_s <= until_s
            and trouble.at_s + _lasts(trouble) >= at_s
            for trouble in self._troubled
        )


def _lasts(trouble: Troubled) -> float:
    # What has no end of its own was over, or the log would not have been cut.
    return 0.0 if trouble.lasts_s == float("inf") else trouble.lasts_s
