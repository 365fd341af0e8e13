"""Promises to clients of pull subscriptions. That each message arrives, and that no offset is
settled too early, is judged as for pushes.
"""

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.history.events import Event
from hermes_chaos.sim.history.pulling import Acknowledged, HandedOut, LetGo

_ROUNDED_S = 0.001


class HandOutsAreExclusive(Checker):
    """Until its deadline, an owner gives a message, or in an ordered subscription another message
    of its key, to no other client, unless it was acknowledged or given back, or is about to be.
    """

    name = "hand-outs are exclusive"
    is_rare = True

    def __init__(self) -> None:
        super().__init__()
        self._out: dict[tuple[object, ...], HandedOut] = {}
        self._over: set[str] = set()

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case HandedOut():
                # A restarted consumer does not know what its clients have.
                life = event.life, event.ack_id.split(".")[3]
                place = (*life, event.subscription, *event.place)
                keys: list[tuple[object, ...]] = [place]
                if event.key:
                    keys.append((*life, event.subscription, event.place[0], "key", event.key))
                for key in keys:
                    self._check(event, self._out.get(key))
                    self._out[key] = event
            case LetGo(ack_id=ack_id):
                self._over.add(ack_id)
            case _:
                pass

    def _check(self, event: HandedOut, before: HandedOut | None) -> None:
        if before is None:
            return
        self.examined += 1
        if before.ack_id not in self._over and event.at_s < before.until_s - _ROUNDED_S:
            self.violations.append(
                f"{event.life} handed out {event.ack_id} of {event.subscription} at "
                f"{event.at_s:.3f}, while a client had {before.ack_id} until {before.until_s:.3f}"
            )


class StaleAcksAreRefused(Checker):
    """Once a newer owner of a partition has handed out messages, an acknowledgement of what an
    earlier one handed out has no effect.
    """

    name = "stale acknowledgements are refused"
    is_rare = True

    def __init__(self) -> None:
        super().__init__()
        self._newest: dict[tuple[str, str, int], int] = {}

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case HandedOut(life, subscription, (partition, _), epoch):
                key = life.partition("-")[0], subscription, partition
                self._newest[key] = max(epoch, self._newest.get(key, epoch))
            case Acknowledged(dc, subscription, partition, epoch, ack_id, is_taken):
                newest = self._newest.get((dc, subscription, partition), epoch)
                self.examined += epoch < newest
                if is_taken and epoch < newest:
                    self.violations.append(
                        f"{subscription} took {ack_id} in {dc}, though an owner of epoch {newest} "
                        "hands out the partition"
                    )
            case _:
                pass
