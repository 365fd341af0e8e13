"""Seeded bugs of what nodes make of their logs: snapshots that forget, registers that go back."""

from collections.abc import Callable, Generator
from dataclasses import replace as replace_shape

from msgspec.structs import replace

from hermes_actors.coordination import snapshots, state
from hermes_actors.coordination.snapshots import SnapshotContent
from hermes_actors.coordination.values import Member, Ownership
from hermes_actors.metadata.commands import Copy
from hermes_actors.metadata.replication import Replicator
from hermes_actors.metadata.state import Register
from hermes_actors.model.record import StoredRecord
from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.mutants.mutant import Mutant
from hermes_chaos.sim.world import Shape

_pack = snapshots.pack_in_steps
_fold = Replicator._fold

Steps = Generator[None, None, bytes]


def _packs(
    change: Callable[[SnapshotContent], SnapshotContent],
) -> Callable[[SnapshotContent], Steps]:
    return lambda content: _pack(change(content))


def _each_member(change: Callable[[Member], Member]) -> Callable[[SnapshotContent], Steps]:
    return _packs(lambda content: replace(content, members=tuple(map(change, content.members))))


def _each_ownership(change: Callable[[Ownership], Ownership]) -> Callable[[SnapshotContent], Steps]:
    return _packs(
        lambda content: replace(
            content, ownerships={name: change(each) for name, each in content.ownerships.items()}
        )
    )


def _without_high(ownership: Ownership) -> Ownership:
    grants = tuple(replace(each, high=0.0, high_until_log_ms=0) for each in ownership.grants)
    return replace(ownership, grants=grants)


def _by_name(content: SnapshotContent) -> SnapshotContent:
    return replace(content, members=tuple(sorted(content.members, key=lambda each: each.node)))


def _wins(_self: Register, _other: Register | None) -> bool:
    return True


def _wins_by_life(self: Register, other: Register | None) -> bool:
    return other is None or self.incarnation > other.incarnation


def _copy_no_deletion(self: Replicator, record: StoredRecord) -> list[Copy]:
    return [copy for copy in _fold(self, record) if copy.body is not None]


_SNAPSHOTS: tuple[tuple[str, str, Callable[[SnapshotContent], Steps]], ...] = (
    ("departed", "who has left", _packs(lambda content: replace(content, departed=()))),
    ("moves", "what was moved", _packs(lambda content: replace(content, moves=()))),
    ("leader", "who leads", _packs(lambda content: replace(content, leader=""))),
    ("term", "how often a leader was found", _packs(lambda content: replace(content, term=0))),
    ("plan", "which plan is in force", _packs(lambda content: replace(content, plan_offset=-1))),
    ("cores", "what nodes cost", _each_member(lambda each: replace(each, load=None))),
    ("weights", "what tasks cost", _each_ownership(lambda each: replace(each, load=None))),
)
_COMING_AND_GOING = Shape(
    nodes_per_dc=3,
    faults=frozenset((Fault.NODE_KILL, Fault.NODE_STOP, Fault.SUBSCRIBER)),
    strikes=30,
    messages_per_publisher=20,
)
_BUSY = replace_shape(_COMING_AND_GOING, load_s=15.0, messages_per_publisher=100)
# Of what lasts for moments only, or comes of orderly stops.
_PASSING: tuple[tuple[str, str, Callable[[SnapshotContent], Steps], int, Shape], ...] = (
    ("order", "who was heard of last", _packs(_by_name), 2, _COMING_AND_GOING),
    (
        "rates",
        "what endpoints take",
        _each_ownership(lambda each: replace(each, rate=None)),
        2,
        _COMING_AND_GOING,
    ),
    ("high", "shares that were lowered just now", _each_ownership(_without_high), 3, _BUSY),
)
FOLDING = (
    *(
        Mutant(
            f"snapshot-forgets-{name}",
            f"a snapshot does not say {what}",
            ((state, "pack_in_steps", pack),),
            seed=2,
        )
        for name, what, pack in _SNAPSHOTS
    ),
    *(
        Mutant(
            f"snapshot-forgets-{name}",
            f"a snapshot does not say {what}",
            ((state, "pack_in_steps", pack),),
            seed=seed,
            shape=shape,
        )
        for name, what, pack, seed, shape in _PASSING
    ),
    Mutant(
        "older-overwrites",
        "a change from another datacentre counts, however old it is",
        ((Register, "supersedes", _wins),),
        seed=3,
    ),
    Mutant(
        "newer-stays-out",
        "a change from another datacentre counts only in a new life of what it is about",
        ((Register, "supersedes", _wins_by_life),),
    ),
    Mutant(
        "deletions-stay-at-home",
        "what one datacentre removes is not removed in the other",
        ((Replicator, "_fold", _copy_no_deletion),),
        seed=5,
    ),
)
