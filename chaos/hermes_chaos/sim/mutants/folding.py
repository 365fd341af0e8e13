"""Seeded bugs of what nodes make of their logs: snapshots that forget, registers that go back."""

from collections.abc import Callable, Generator

from msgspec.structs import replace

from hermes_actors.coordination import snapshots, state
from hermes_actors.coordination.snapshots import Content
from hermes_actors.coordination.values import Member, Ownership
from hermes_actors.metadata.commands import Copy
from hermes_actors.metadata.replication import Replicator
from hermes_actors.metadata.state import Register
from hermes_actors.model.record import StoredRecord
from hermes_chaos.sim.mutants.mutant import Mutant

_pack = snapshots.pack_in_steps
_fold = Replicator._fold

Steps = Generator[None, None, bytes]


def _packs(change: Callable[[Content], Content]) -> Callable[[Content], Steps]:
    return lambda content: _pack(change(content))


def _each_member(change: Callable[[Member], Member]) -> Callable[[Content], Steps]:
    return _packs(lambda content: replace(content, members=tuple(map(change, content.members))))


def _each_ownership(change: Callable[[Ownership], Ownership]) -> Callable[[Content], Steps]:
    return _packs(
        lambda content: replace(
            content, ownerships={name: change(each) for name, each in content.ownerships.items()}
        )
    )


def _wins(_self: Register, _other: Register | None) -> bool:
    return True


def _wins_by_life(self: Register, other: Register | None) -> bool:
    return other is None or self.incarnation > other.incarnation


def _copy_no_deletion(self: Replicator, record: StoredRecord, settled_below: int) -> list[Copy]:
    return [copy for copy in _fold(self, record, settled_below) if copy.body is not None]


_SNAPSHOTS: tuple[tuple[str, str, Callable[[Content], Steps]], ...] = (
    ("departed", "who has left", _packs(lambda content: replace(content, departed=()))),
    ("moves", "what was moved", _packs(lambda content: replace(content, moves=()))),
    ("leader", "who leads", _packs(lambda content: replace(content, leader=""))),
    ("term", "how often a leader was found", _packs(lambda content: replace(content, term=0))),
    ("plan", "which plan is in force", _packs(lambda content: replace(content, plan_offset=-1))),
    ("cores", "what nodes cost", _each_member(lambda each: replace(each, load=None))),
    ("weights", "what tasks cost", _each_ownership(lambda each: replace(each, load=None))),
    ("tracks", "when partitions moved", _each_ownership(lambda each: replace(each, tracks=()))),
)
FOLDING = (
    *(
        Mutant(
            f"snapshot-forgets-{name}",
            f"a snapshot does not say {what}",
            ((state, "pack_in_steps", pack),),
            seed=6,
        )
        for name, what, pack in _SNAPSHOTS
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
