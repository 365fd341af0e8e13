"""The coordination state for people and tools: nodes by name, ages, and why owners changed.

Pure: computed from one `CoordinationState` at its log time. Seconds and milliseconds are log time,
except fields named `…At`, which are Unix epoch in seconds.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from hermes_actors.coordination.commands import Assignment, Target
from hermes_actors.coordination.owning import must_release, owners
from hermes_actors.coordination.reasons import Reason, text
from hermes_actors.coordination.room import DEFAULT_LIMITS, OwnershipLimits, no_room
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.tally import NodeTally, WorkTally
from hermes_actors.coordination.values import LEASE_MS, Departed, Grant, Member, Move, Ownership
from hermes_actors.coordination.weights import Weights


class MemberView(Struct, frozen=True, rename="camel"):
    """A node that takes part. It has `tasks`, and will have `targets` when all moves are done.
    `cpu` is what its whole process uses, in cores, of `cpuAvailable`; None until it has reported.
    """

    node: str
    boot: str
    version: str
    cores: float
    is_leader: bool
    is_draining: bool
    tasks: int
    targets: int
    partitions: int
    weight: float
    cpu: float | None
    cpu_available: float | None
    heard_ago_ms: int
    lease_left_ms: int
    member_for_s: float


class OwnerView(Struct, frozen=True, rename="camel"):
    """Partitions of a subscription that a node owns. It may use `share` of the maximum rate now,
    and is planned to have `wantedShare`. `isToRelease`: another node is planned to own them.
    """

    node: str
    boot: str
    partitions: tuple[int, ...]
    epoch: int
    share: float
    wanted_share: float
    owned_for_s: float
    is_to_release: bool
    weight: float


class WaitingView(Struct, frozen=True, rename="camel"):
    """A node that is planned to own partitions but does not yet, and the nodes that must release
    them first.
    """

    node: str
    boot: str
    partitions: tuple[int, ...]
    waits_for: tuple[str, ...]
    waiting_for_s: float | None


class SubscriptionView(Struct, frozen=True, rename="camel"):
    """The owners of a subscription. `movedAgoS` is None if it never moved since its first plan."""

    subscription: str
    owners: tuple[OwnerView, ...]
    waiting: tuple[WaitingView, ...]
    weight: float
    planned_at_offset: int
    moved_ago_s: float | None


class SkewView(Struct, frozen=True, rename="camel"):
    """How unevenly the nodes that are not drained are loaded, per core: the ratio of the highest
    load to the mean, and to the minimum possible (the mean, or the heaviest task). Ratios are 1.0
    if there is no load.
    """

    nodes: int = 0
    highest_node: str = ""
    max_to_mean: float = 1.0
    max_to_ideal: float = 1.0


class MoveView(Struct, frozen=True, rename="camel"):
    """A plan's change of a subscription's owners: `reasons` as data, `reason` as text."""

    subscription: str
    reason: str
    reasons: tuple[Reason, ...]
    term: int
    offset: int
    moved_at: float
    before: tuple[str, ...]
    after: tuple[str, ...]


class DepartureView(Struct, frozen=True, rename="camel"):
    """The end of a node's life: its lease expired, or it left."""

    node: str
    boot: str
    left_at: float
    is_expired: bool


class PartView(Struct, frozen=True, rename="camel"):
    """A node's part of a subscription."""

    node: str
    partitions: tuple[int, ...]
    share: float


class ChangeView(Struct, frozen=True, rename="camel"):
    """A subscription whose owners, or only their rate shares, a plan would change."""

    subscription: str
    reason: str
    reasons: tuple[Reason, ...]
    moves: int
    before: tuple[PartView, ...]
    after: tuple[PartView, ...]


class PlanView(Struct, frozen=True, rename="camel"):
    """The changes of a plan based on the one at offset `base`, and how many tasks they move."""

    term: int
    base: int
    moves: int
    changes: tuple[ChangeView, ...]


def member_views(
    state: CoordinationState, tally: WorkTally, draining: Collection[str] = ()
) -> list[MemberView]:
    """All members, sorted by node."""
    return [
        _member_view(state, member, tally.of(member.boot), draining)
        for member in sorted(state.members.values(), key=lambda each: (each.node, each.boot))
    ]


def _member_view(
    state: CoordinationState, member: Member, tally: NodeTally, draining: Collection[str]
) -> MemberView:
    heard_ago_ms = state.clock_ms - member.heard_log_ms
    load = member.load
    return MemberView(
        node=member.node,
        boot=member.boot,
        version=member.version,
        cores=member.cores,
        is_leader=member.boot == state.leader,
        is_draining=member.node in draining,
        tasks=tally.tasks,
        targets=tally.targets,
        partitions=tally.partitions,
        weight=round(tally.weight, 3),
        cpu=None if load is None else round(load.cpu, 3),
        cpu_available=None if load is None else round(load.cpu_available, 3),
        heard_ago_ms=heard_ago_ms,
        lease_left_ms=max(0, LEASE_MS - heard_ago_ms),
        member_for_s=(state.clock_ms - member.joined_log_ms) / 1_000,
    )


def subscription_view(state: CoordinationState, name: str, weights: Weights) -> SubscriptionView:
    """Return the owners of a subscription and the nodes that wait for it; empty if it is
    unknown.
    """
    ownership = state.subscriptions.get(name, Ownership())
    moved_ms = ownership.moved_log_ms
    moved_ago_s = None if moved_ms is None else (state.clock_ms - moved_ms) / 1_000
    partitions = sum(len(target.partitions) for target in ownership.targets)
    return SubscriptionView(
        subscription=name,
        owners=tuple(
            _owner_view(state, name, grant, weights, partitions) for grant in ownership.grants
        ),
        waiting=tuple(
            WaitingView(
                node=state.node_of(target.boot),
                boot=target.boot,
                partitions=target.partitions,
                waits_for=_holders(state, ownership, target),
                waiting_for_s=moved_ago_s,
            )
            for target in state.waiting(name)
        ),
        weight=round(weights.subscriptions.get(name, 0.0), 3),
        planned_at_offset=ownership.planned_at,
        moved_ago_s=moved_ago_s,
    )


def _owner_view(
    state: CoordinationState, name: str, grant: Grant, weights: Weights, all_partitions: int
) -> OwnerView:
    own = len(grant.partitions)
    return OwnerView(
        node=state.node_of(grant.boot),
        boot=grant.boot,
        partitions=grant.partitions,
        epoch=grant.epoch,
        share=round(state.share_of(name, grant.boot), 4),
        wanted_share=grant.share,
        owned_for_s=(state.clock_ms - grant.since_log_ms) / 1_000,
        is_to_release=must_release(state.subscriptions[name], grant.boot),
        weight=round(weights.of_task(name, own, max(own, all_partitions)), 3),
    )


def _holders(state: CoordinationState, ownership: Ownership, target: Target) -> tuple[str, ...]:
    wanted = set(target.partitions)
    return tuple(
        state.node_of(grant.boot)
        for grant in ownership.grants
        if grant.boot == target.boot or wanted.intersection(grant.partitions)
    )


def skew_of_members(members: Sequence[MemberView], heaviest: float) -> SkewView:
    """How unevenly the members are loaded. Drained ones are left out, unless all are drained.
    `heaviest` is the weight of the heaviest task.
    """
    counted = [each for each in members if not each.is_draining] or members
    capacity = sum(each.cores for each in counted)
    if capacity <= 0:
        return SkewView()
    mean = sum(each.weight for each in counted) / capacity
    ideal = max(mean, heaviest / max(each.cores for each in counted))
    # Among equals, the first by name.
    busiest = max(counted, key=lambda each: each.weight / each.cores)
    most = busiest.weight / busiest.cores
    return SkewView(
        nodes=len(counted),
        highest_node=busiest.node,
        max_to_mean=round(most / mean, 4) if mean else 1.0,
        max_to_ideal=round(most / ideal, 4) if ideal else 1.0,
    )


def unassigned_reason(
    state: CoordinationState,
    name: str,
    draining: Collection[str] = (),
    limits: OwnershipLimits = DEFAULT_LIMITS,
) -> str | None:
    """Why an existing subscription has no owner; None if it has one. `draining` is the result of
    `room.drained`.
    """
    ownership = state.subscriptions.get(name, Ownership())
    if ownership.grants:
        return None
    if not state.members:
        return "no node with the role consumers takes part"
    if ownership.targets:
        return "its planned owners wait for others to release it; see waiting"
    if not state.leader:
        return "there is no leader yet; a node will claim the leadership within a few seconds"
    return no_room(state, draining, limits) or "the leader has not planned it yet"


def move_view(move: Move) -> MoveView:
    """A move, with its time and reasons for people."""
    return MoveView(
        move.subscription,
        text(move.reasons),
        move.reasons,
        move.term,
        move.offset,
        move.at_ms / 1_000,
        move.before,
        move.after,
    )


def departure_view(departed: Departed) -> DepartureView:
    """A departure, with its time for people."""
    return DepartureView(departed.node, departed.boot, departed.at_ms / 1_000, departed.is_expired)


def change_view(state: CoordinationState, assignment: Assignment) -> ChangeView:
    """What an assignment based on this state would change. `moves` counts tasks that would start on
    another node.
    """
    before = state.targets_of(assignment.subscription)
    had = owners(before)
    return ChangeView(
        subscription=assignment.subscription,
        reason=text(assignment.reasons),
        reasons=assignment.reasons,
        moves=sum(had.get(each.boot) != each.partitions for each in assignment.targets),
        before=tuple(_part_view(state, target) for target in before),
        after=tuple(_part_view(state, target) for target in assignment.targets),
    )


def _part_view(state: CoordinationState, target: Target) -> PartView:
    return PartView(state.node_of(target.boot), target.partitions, round(target.share, 4))
