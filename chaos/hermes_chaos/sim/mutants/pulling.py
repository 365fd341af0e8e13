"""Seeded bugs of pull subscriptions."""

from hermes_actors.consumer.pulling.hand_outs import AckId, HandOut, HandOuts
from hermes_actors.model.pulling import RefusedAck
from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.mutants.mutant import Mutant
from hermes_chaos.sim.world import Shape

_find = HandOuts.find


def _find_by_place(self: HandOuts, text: str) -> HandOut | RefusedAck:
    found, ack_id = _find(self, text), AckId.parse(text)
    if isinstance(found, HandOut) or ack_id is None:
        return found
    place = ack_id.partition, ack_id.offset
    same = (o for o in self._out.values() if (o.ack_id.partition, o.ack_id.offset) == place)
    return next(same, found)


_never_overdue = property(lambda _self: float("inf"))


_MOVES = Shape(
    faults=frozenset((Fault.NODE_KILL,)),
    strikes=8,
    pull_clients=4,
    rest_rounds=1,
)
_CLIENTS = Shape(
    messages_per_publisher=5,
    load_s=1.0,
    settle_max_s=10.0,
    strikes=3,
    pull_clients=2,
    rest_rounds=1,
)

PULLING = (
    Mutant(
        "stale-ack-taken",
        "an ack id of an earlier owner acknowledges what its successor has handed out",
        ((HandOuts, "find", _find_by_place),),
        seed=7,
        shape=_MOVES,
    ),
    Mutant(
        "deadline-forgotten",
        "a message that a client does not acknowledge never comes again",
        ((HandOuts, "next_s", _never_overdue),),
        shape=_CLIENTS,
    ),
)
