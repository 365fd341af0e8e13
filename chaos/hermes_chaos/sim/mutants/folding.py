"""Seeded bugs of folds: incomplete snapshots, registers that go back."""

from collections.abc import Callable, Generator

from msgspec.structs import replace

from hermes_actors.coordination import snapshots, state
from hermes_actors.coordination.snapshots import SnapshotContent
from hermes_actors.metadata.commands import decode
from hermes_actors.metadata.replication import Replicator
from hermes_actors.metadata.state import Register
from hermes_actors.model.record import Record, StoredRecord
from hermes_chaos.sim.mutants.mutant import Mutant

_pack = snapshots.pack_in_steps
_fold = Replicator._fold

Steps = Generator[None, None, bytes]


def _packs(
    change: Callable[[SnapshotContent], SnapshotContent],
) -> Callable[[SnapshotContent], Steps]:
    return lambda content: _pack(change(content))


def _without_loads(content: SnapshotContent) -> SnapshotContent:
    ownerships = {name: replace(each, load=None) for name, each in content.ownerships.items()}
    return replace(content, ownerships=ownerships)


def _wins(_self: Register, _other: Register | None) -> bool:
    return True


def _wins_by_life(self: Register, other: Register | None) -> bool:
    return other is None or self.incarnation > other.incarnation


def _copy_no_deletion(self: Replicator, record: StoredRecord, now_ms: int) -> list[Record]:
    copies = _fold(self, record, now_ms)
    return [each for each in copies if getattr(decode(each.value), "body", None) is not None]


# One mutant for state that a node acts on, one for measurements: `folds agree` compares all of it.
FOLDING = (
    Mutant(
        "snapshot-forgets-leader",
        "a snapshot does not say who leads",
        ((state, "pack_in_steps", _packs(lambda content: replace(content, leader=""))),),
        seed=2,
    ),
    Mutant(
        "snapshot-forgets-weights",
        "a snapshot does not say what tasks cost",
        ((state, "pack_in_steps", _packs(_without_loads)),),
        seed=2,
    ),
    Mutant(
        "older-overwrites",
        "a change from another datacentre counts, however old it is",
        ((Register, "supersedes", _wins),),
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
        seed=2,
    ),
)
