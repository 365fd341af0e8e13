"""The fold of the coordination log: all readers of the same records have the same state.

It trusts no node's clock: the records before a record determine whether it is valid. An invalid
record only advances log time.
"""

from collections import deque
from collections.abc import Generator, Iterable, Mapping
from math import isfinite
from types import MappingProxyType

from msgspec.structs import replace

from hermes_actors.coordination import owning
from hermes_actors.coordination.commands import (
    Assignment,
    Heartbeat,
    Join,
    Leave,
    Loads,
    Plan,
    RateState,
    Release,
    Said,
    Stopping,
    Target,
    TaskLoad,
    TermClaim,
)
from hermes_actors.coordination.reasons import REASONS_MAX
from hermes_actors.coordination.snapshots import SnapshotContent, pack_in_steps, unpack
from hermes_actors.coordination.values import (
    LEASE_MS,
    NOTHING,
    STEP_MAX_MS,
    Changed,
    Departed,
    Grant,
    Member,
    Move,
    NodeLoad,
    Ownership,
)
from hermes_actors.runtime.turns import at_once

MEMBERS_MAX = 1_000
SUBSCRIPTIONS_MAX = 100_000
MOVES_MAX = 200
DEPARTED_MAX = 200
_TEXT_LENGTH_MAX = 200
_FIRST_INTERVAL_MS = 10_000

_NO_OWNERSHIP = Ownership()
_NO_GRANTS: Mapping[str, Grant] = MappingProxyType({})


class CoordinationState:
    """The fold of the log up to the record before `position`. Only `apply` changes it."""

    def __init__(self) -> None:
        self.position = 0
        """The offset of the next record."""
        self.clock_ms = 0
        """Log time."""
        self.timestamp_ms: int | None = None
        """The timestamp of the last record (Unix epoch)."""
        self.term = 0
        self.leader = ""
        """The boot of the living leader; empty string if there is none."""
        self.plan_offset = -1
        """The offset of the last valid plan."""
        self.moves: deque[Move] = deque(maxlen=MOVES_MAX)
        """The last moves, oldest first."""
        self.moved = 0
        """How often plans have changed the owners of a subscription since the log began."""
        self.departed: deque[Departed] = deque(maxlen=DEPARTED_MAX)
        """Ended lives, the latest last."""
        self.expired = 0
        """How many leases have expired since the log began."""
        # Sorted by last heartbeat, so that the first expires first.
        self._members: dict[str, Member] = {}
        self._ownerships: dict[str, Ownership] = {}
        # The grants by boot and subscription.
        self._grants: dict[str, dict[str, Grant]] = {}
        # Subscriptions with a lowered share, and when the old one stops to count, soonest first.
        self._settling: dict[str, int] = {}
        self._changed: dict[str, None] = {}

    # Queries.

    @property
    def clock_s(self) -> float:
        """Log time in seconds."""
        return self.clock_ms / 1_000

    @property
    def members(self) -> Mapping[str, Member]:
        """The living members by boot, sorted by last heartbeat."""
        return MappingProxyType(self._members)

    @property
    def subscriptions(self) -> Mapping[str, Ownership]:
        """The ownerships of all subscriptions that have owners or planned owners."""
        return MappingProxyType(self._ownerships)

    def grants_of(self, boot: str) -> Mapping[str, Grant]:
        """Return the grants of a boot, by subscription."""
        found = self._grants.get(boot)
        return _NO_GRANTS if found is None else MappingProxyType(found)

    def targets_of(self, subscription: str) -> tuple[Target, ...]:
        """Return the planned owners of the subscription; none if it is unknown."""
        return self._ownerships.get(subscription, _NO_OWNERSHIP).targets

    def grants(self, subscription: str) -> tuple[Grant, ...]:
        """Return the grants of the subscription's partitions; none if it is unknown."""
        return self._ownerships.get(subscription, _NO_OWNERSHIP).grants

    def waiting(self, subscription: str) -> tuple[Target, ...]:
        """The targets that have no grant yet: an owner has to release first, or the target is no
        member.
        """
        ownership = self._ownerships.get(subscription, _NO_OWNERSHIP)
        owned = {(grant.boot, grant.partitions) for grant in ownership.grants}
        return tuple(t for t in ownership.targets if (t.boot, t.partitions) not in owned)

    def must_release(self, boot: str, subscription: str) -> bool:
        """True if the boot owns partitions of the subscription but is planned to own others, or
        none.
        """
        ownership = self._ownerships.get(subscription)
        return ownership is not None and owning.must_release(ownership, boot)

    def share_of(self, subscription: str, boot: str) -> float:
        """The part of the maximum rate that an owner may use now, 0 to 1; 0 without a grant.

        It also changes with log time; then the subscription is reported as changed.
        """
        ownership = self._ownerships.get(subscription)
        return 0.0 if ownership is None else owning.usable_share(ownership, boot, self.clock_ms)

    def rate_of(self, subscription: str) -> RateState | None:
        """Return the endpoint's rate, as the last owner that released the subscription knew it;
        None if unknown.
        """
        return self._ownerships.get(subscription, _NO_OWNERSHIP).rate

    def node_of(self, boot: str) -> str:
        """The node of a life, even if it is over; the boot itself if it is no longer known."""
        member = self._members.get(boot)
        if member is not None:
            return member.node
        return next((d.node for d in reversed(self.departed) if d.boot == boot), boot)

    # The fold.

    def apply(self, offset: int, timestamp_ms: int, said: Said | None) -> Changed:
        """Fold the record at `offset` (None: it could not be decoded). Returns what changed."""
        if offset < self.position:
            raise ValueError(f"the record at {offset} was folded already")
        self.position = offset + 1
        self._pass_time(timestamp_ms)
        members, leader = len(self._members), self.leader
        self._expire(offset, timestamp_ms)
        has_changed = False
        if isinstance(said, Heartbeat):
            self._hear(said.boot)
        elif isinstance(said, Join):
            has_changed = self._join(said, offset)
        elif isinstance(said, Loads):
            self._take_loads(said)
        elif isinstance(said, Stopping):
            has_changed = self._stop(said)
        elif isinstance(said, Leave):
            self._remove(said.boot, offset, timestamp_ms, is_expired=False)
        elif isinstance(said, TermClaim):
            self._claim(said)
        elif isinstance(said, Plan):
            self._plan(said, offset, timestamp_ms)
        elif isinstance(said, Release):
            self._release(said, offset)
        has_other_members = has_changed or len(self._members) != members
        if not self._changed and not has_other_members and leader == self.leader:
            return NOTHING
        changed = Changed(tuple(sorted(self._changed)), has_other_members, leader != self.leader)
        self._changed.clear()
        return changed

    def _pass_time(self, timestamp_ms: int) -> None:
        if self.timestamp_ms is not None:
            self.clock_ms += min(max(timestamp_ms - self.timestamp_ms, 0), STEP_MAX_MS)
        self.timestamp_ms = timestamp_ms
        while self._settling:
            name, until_ms = next(iter(self._settling.items()))
            if until_ms > self.clock_ms:
                break
            del self._settling[name]
            self._changed[name] = None

    def _expire(self, offset: int, timestamp_ms: int) -> None:
        while self._members:
            first = next(iter(self._members.values()))
            if self.clock_ms - first.heard_log_ms <= LEASE_MS:
                return
            self.expired += 1
            self._remove(first.boot, offset, timestamp_ms, is_expired=True)

    def _hear(self, boot: str) -> None:
        member = self._members.pop(boot, None)
        if member is not None:
            self._members[boot] = replace(member, heard_log_ms=self.clock_ms)

    def _join(self, said: Join, offset: int) -> bool:
        """Fold a `Join`. False if the boot is a member already, or its life is over and cannot
        resume.
        """
        boot, cores = said.boot, said.cores
        is_sane = (
            0 < len(boot) <= _TEXT_LENGTH_MAX
            and 0 < len(said.node) <= _TEXT_LENGTH_MAX
            and len(said.version) <= _TEXT_LENGTH_MAX
            and isfinite(cores)
            and cores > 0
        )
        if not is_sane or boot in self._members or len(self._members) >= MEMBERS_MAX:
            return False
        if any(departed.boot == boot for departed in self.departed):
            return False
        now_ms = self.clock_ms
        self._members[boot] = Member(boot, said.node, cores, said.version, now_ms, now_ms)
        for name, ownership in list(self._ownerships.items()):
            if any(target.boot == boot for target in ownership.targets):
                self._settle(name, ownership, offset)
        return True

    def _stop(self, said: Stopping) -> bool:
        member = self._members.get(said.boot)
        if member is None or member.is_stopping:
            return False
        self._members[said.boot] = replace(member, is_stopping=True)
        if self.leader == said.boot:
            self.leader = ""
        return True

    def _remove(self, boot: str, offset: int, timestamp_ms: int, *, is_expired: bool) -> None:
        member = self._members.pop(boot, None)
        if member is None:
            return
        self.departed.append(Departed(boot, member.node, is_expired, timestamp_ms))
        if self.leader == boot:
            self.leader = ""
        for name in list(self._grants.get(boot, ())):
            ownership = owning.without(self._ownerships[name], boot)
            self._settle(name, ownership, offset)

    def _take_loads(self, said: Loads) -> None:
        member = self._members.get(said.boot)
        if member is None or not _are_sane(said):
            return
        last, now_ms = member.load, self.clock_ms
        interval_ms = _FIRST_INTERVAL_MS if last is None else now_ms - last.at_log_ms
        cpu, available = said.cpu, said.cpu_available
        if last is not None:
            cpu = owning.mixed(last.cpu, cpu, interval_ms)
            available = owning.mixed(last.cpu_available, available, interval_ms)
        # It keeps its place in the order: only a heartbeat renews the lease.
        self._members[said.boot] = replace(member, load=NodeLoad(cpu, available, now_ms))
        idle = TaskLoad()
        for name in list(self._grants.get(said.boot, ())):
            load = said.tasks.get(name, idle)
            self._put(name, owning.measured(self._ownerships[name], said.boot, load, interval_ms))

    def _claim(self, said: TermClaim) -> None:
        member = self._members.get(said.boot)
        if self.leader or member is None or member.is_stopping:
            return
        if said.term == self.term + 1:
            self.term, self.leader = said.term, said.boot

    def _plan(self, said: Plan, offset: int, timestamp_ms: int) -> None:
        if not self.leader or (said.boot, said.term, said.base) != (
            self.leader,
            self.term,
            self.plan_offset,
        ):
            return
        self.plan_offset = offset
        for assignment in said.assignments:
            name = assignment.subscription
            is_known = name in self._ownerships
            if not owning.is_sane(assignment) or (
                not is_known and len(self._ownerships) >= SUBSCRIPTIONS_MAX
            ):
                continue
            old = self._ownerships.get(name, _NO_OWNERSHIP)
            new = owning.planned(old, assignment, offset, self.clock_ms)
            self._note_move(assignment, old, new, timestamp_ms)
            self._settle(name, new, offset)

    def _note_move(
        self, assignment: Assignment, old: Ownership, new: Ownership, timestamp_ms: int
    ) -> None:
        if owning.owners(old.targets) == owning.owners(new.targets):
            return
        self.moved += 1
        self.moves.append(
            Move(
                assignment.subscription,
                assignment.reasons[:REASONS_MAX],
                self.term,
                new.planned_at,
                timestamp_ms,
                tuple(self.node_of(target.boot) for target in old.targets),
                tuple(self.node_of(target.boot) for target in new.targets),
            )
        )

    def _release(self, said: Release, offset: int) -> None:
        grant = self._grants.get(said.boot, {}).get(said.subscription)
        if grant is None or grant.epoch != said.epoch:
            return
        ownership = owning.without(self._ownerships[said.subscription], said.boot)
        if said.rate is not None and owning.is_sane_rate(said.rate):
            ownership = replace(ownership, rate=said.rate)
        self._settle(said.subscription, ownership, offset)

    def _settle(self, name: str, ownership: Ownership, offset: int) -> None:
        """Store a subscription's new ownership, with the grants that are possible now."""
        self._changed[name] = None
        ownership = owning.granted(ownership, self._members, offset, self.clock_ms)
        if ownership.targets or ownership.grants:
            self._put(name, ownership)
            return
        self._index(self._ownerships.pop(name, _NO_OWNERSHIP).grants, (), name)
        self._settling.pop(name, None)

    def _put(self, name: str, ownership: Ownership) -> None:
        self._index(self._ownerships.get(name, _NO_OWNERSHIP).grants, ownership.grants, name)
        self._ownerships[name] = ownership
        until_ms = _settled_at(ownership)
        if until_ms > max(self.clock_ms, self._settling.get(name, 0)):
            self._settling.pop(name, None)
            self._settling[name] = until_ms

    def _index(self, old: Iterable[Grant], new: Iterable[Grant], name: str) -> None:
        for grant in old:
            del self._grants[grant.boot][name]
        for grant in new:
            self._grants.setdefault(grant.boot, {})[name] = grant
        for grant in old:
            if not self._grants[grant.boot]:
                del self._grants[grant.boot]

    # Snapshots.

    def snapshot(self) -> bytes:
        """Return the whole state, compressed; `CoordinationState.restored` makes an equal one."""
        return at_once(self.snapshot_in_steps())

    def snapshot_in_steps(self) -> Generator[None, None, bytes]:
        """As `snapshot`, with a pause at each yield. It contains the state at the call, even if
        records are folded meanwhile.
        """
        return pack_in_steps(self._content())

    @classmethod
    def restored(cls, packed: bytes) -> "CoordinationState":
        """Restore the state from a snapshot. Raises Undecodable."""
        content = unpack(packed)
        state = cls()
        state.position = content.position
        state.clock_ms = content.clock_ms
        state.timestamp_ms = content.timestamp_ms
        state.term = content.term
        state.leader = content.leader
        state.plan_offset = content.plan_offset
        state.expired = content.expired
        state.moved = content.moved
        state.moves.extend(content.moves)
        state.departed.extend(content.departed)
        state._members = {member.boot: member for member in content.members}
        by_time: list[tuple[int, str]] = []
        for name, ownership in content.ownerships.items():
            state._ownerships[name] = ownership
            state._index((), ownership.grants, name)
            if _settled_at(ownership) > state.clock_ms:
                by_time.append((_settled_at(ownership), name))
        state._settling = {name: until_ms for until_ms, name in sorted(by_time)}
        return state

    def _content(self) -> SnapshotContent:
        return SnapshotContent(
            position=self.position,
            clock_ms=self.clock_ms,
            timestamp_ms=self.timestamp_ms,
            term=self.term,
            leader=self.leader,
            plan_offset=self.plan_offset,
            expired=self.expired,
            moved=self.moved,
            moves=tuple(self.moves),
            departed=tuple(self.departed),
            members=tuple(self._members.values()),
            ownerships=dict(self._ownerships),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CoordinationState) and self._content() == other._content()

    __hash__ = None  # type: ignore[assignment]


def _settled_at(ownership: Ownership) -> int:
    """The log time from which no owner can be using more than its share."""
    return max((grant.high_until_log_ms for grant in ownership.grants), default=0)


def _are_sane(said: Loads) -> bool:
    figures = [said.cpu, said.cpu_available]
    for load in said.tasks.values():
        figures += (load.messages, load.size_bytes, load.cpu, load.used)
    return all(isfinite(figure) and figure >= 0 for figure in figures)
