"""The coordination state as people and tools read it: nodes by name, ages, who waits for whom.

Pure: computed from one `CoordinationState` at its own clock, log time. What is in seconds or
milliseconds here is log time too, unless it is called `…At`, which is Unix epoch, in seconds.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from hermes_actors.coordination.commands import Target, TaskLoad
from hermes_actors.coordination.owning import must_release
from hermes_actors.coordination.room import DEFAULT_LIMITS, OwnershipLimits, no_room
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.tally import NodeTally, PlannerWeights, WorkTally
from hermes_actors.coordination.values import LEASE_MS, Grant, Member, Move, Ownership


class LoadView(Struct, frozen=True, rename="camel"):
    """The load of a task or a subscription a second, smoothed; `cpu` in cores."""

    messages: float = 0.0
    size_bytes: float = 0.0
    cpu: float = 0.0


class MemberView(Struct, frozen=True, rename="camel"):
    """A node that takes part. `tasks` it has; `targets` it is to have when all moves are done.

    `cpu` is its whole process's, in cores, of `cpuAvailable`; None until it has told.
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
    load: LoadView
    cpu: float | None
    cpu_available: float | None
    heard_ago_ms: int
    lease_left_ms: int
    member_for_s: float


class OwnerView(Struct, frozen=True, rename="camel"):
    """Partitions of a subscription that a node owns. `share` of the maximum rate it may use now,
    of which it is to have `wantedShare`. `isToRelease`: they are to be another's.
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
    load: LoadView | None


class WaitingView(Struct, frozen=True, rename="camel"):
    """A node that is to own partitions and does not yet, and for whom it waits."""

    subscription: str
    node: str
    boot: str
    partitions: tuple[int, ...]
    waits_for: str
    waiting_for_s: float | None


class SubscriptionView(Struct, frozen=True, rename="camel"):
    """The owners of a subscription. `movedAgoS`: None when it never moved since its first plan."""

    subscription: str
    owners: tuple[OwnerView, ...]
    waiting: tuple[WaitingView, ...]
    weight: float
    load: LoadView | None
    planned_at_offset: int
    moved_ago_s: float | None


class SkewView(Struct, frozen=True, rename="camel"):
    """How unevenly the nodes that are not drained are loaded, for each unit of their capacity.

    `ideal` is the least that the heaviest loaded one can have: the mean, or the heaviest task.
    Ratios are 1.0 when nothing weighs anything.
    """

    nodes: int
    mean: float
    ideal: float
    highest: float
    highest_node: str
    max_to_mean: float
    max_to_ideal: float


class MoveView(Struct, frozen=True, rename="camel"):
    """A plan changed who is to own a subscription."""

    subscription: str
    reason: str
    term: int
    offset: int
    moved_at: float
    before: tuple[str, ...]
    after: tuple[str, ...]


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
        load=LoadView(round(tally.messages, 2), round(tally.size_bytes, 1), round(tally.cpu, 4)),
        cpu=None if load is None else round(load.cpu, 3),
        cpu_available=None if load is None else round(load.cpu_available, 3),
        heard_ago_ms=heard_ago_ms,
        lease_left_ms=max(0, LEASE_MS - heard_ago_ms),
        member_for_s=(state.clock_ms - member.joined_log_ms) / 1_000,
    )


def subscription_view(
    state: CoordinationState, name: str, weights: PlannerWeights
) -> SubscriptionView:
    """Return who owns a subscription and who waits; nobody for one that the state does not know."""
    ownership = state.subscriptions.get(name, Ownership())
    moved_ms = ownership.moved_log_ms
    partitions = sum(len(target.partitions) for target in ownership.targets)
    return SubscriptionView(
        subscription=name,
        owners=tuple(
            _owner_view(state, name, ownership, grant, weights, partitions)
            for grant in ownership.grants
        ),
        waiting=tuple(
            _waiting_view(state, name, ownership, target) for target in state.waiting(name)
        ),
        weight=round(weights.subscriptions.get(name, 0.0), 3),
        load=None if ownership.load is None else _load_view(ownership.load),
        planned_at_offset=ownership.planned_at,
        moved_ago_s=None if moved_ms is None else (state.clock_ms - moved_ms) / 1_000,
    )


def _owner_view(
    state: CoordinationState,
    name: str,
    ownership: Ownership,
    grant: Grant,
    weights: PlannerWeights,
    all_partitions: int,
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
        is_to_release=must_release(ownership, grant.boot),
        weight=round(weights.of_task(name, own, max(own, all_partitions)), 3),
        load=None if grant.load is None else _load_view(grant.load),
    )


def _waiting_view(
    state: CoordinationState, name: str, ownership: Ownership, target: Target
) -> WaitingView:
    moved_ms = ownership.moved_log_ms
    wanted = set(target.partitions)
    holders = [
        grant
        for grant in ownership.grants
        if grant.boot == target.boot or wanted.intersection(grant.partitions)
    ]
    if target.boot not in state.members:
        waits_for = f"the leader: node {state.node_of(target.boot)} is no member any more"
    elif holders:
        waits_for = "; ".join(
            f"node {state.node_of(each.boot)} to release {_partitions(each.partitions)}"
            for each in holders
        )
    else:
        waits_for = "the log's next record"
    return WaitingView(
        subscription=name,
        node=state.node_of(target.boot),
        boot=target.boot,
        partitions=target.partitions,
        waits_for=waits_for,
        waiting_for_s=None if moved_ms is None else (state.clock_ms - moved_ms) / 1_000,
    )


def skew_of_members(members: Sequence[MemberView], heaviest: float) -> SkewView:
    """How unevenly they are loaded; drained ones are left out, unless all are."""
    counted = [each for each in members if not each.is_draining] or members
    return skew_of([(each.node, each.weight, each.cores) for each in counted], heaviest)


def skew_of(nodes: Sequence[tuple[str, float, float]], heaviest: float) -> SkewView:
    """How unevenly nodes are loaded: each with its name, weight and capacity. `heaviest`: what the
    heaviest task weighs.
    """
    capacity = sum(cores for _, _, cores in nodes)
    if not nodes or capacity <= 0:
        return SkewView(0, 0.0, 0.0, 0.0, "", 1.0, 1.0)
    mean = sum(weight for _, weight, _ in nodes) / capacity
    ideal = max(mean, heaviest / max(cores for _, _, cores in nodes))
    # Of two that carry the same, the first by name.
    node, weight, cores = max(sorted(nodes), key=lambda each: each[1] / each[2])
    most = weight / cores
    return SkewView(
        nodes=len(nodes),
        mean=round(mean, 3),
        ideal=round(ideal, 3),
        highest=round(most, 3),
        highest_node=node,
        max_to_mean=round(most / mean, 4) if mean else 1.0,
        max_to_ideal=round(most / ideal, 4) if ideal else 1.0,
    )


def unassigned_reason(
    state: CoordinationState,
    name: str,
    draining: Collection[str] = (),
    limits: OwnershipLimits = DEFAULT_LIMITS,
) -> str | None:
    """Why nobody owns a subscription that is there; None when somebody does. `draining` as
    `room.drained` gives them.
    """
    ownership = state.subscriptions.get(name, Ownership())
    if ownership.grants:
        return None
    if not state.members:
        return "no node with the role consumers takes part"
    if ownership.targets:
        return "its nodes to be wait; see waiting"
    if not state.leader:
        return "there is no leader: a node is about to claim that, within a few seconds"
    return no_room(state, draining, limits) or "the leader has not planned it yet"


def move_view(move: Move) -> MoveView:
    """A move, its time for people."""
    return MoveView(
        move.subscription,
        move.reason,
        move.term,
        move.offset,
        move.at_ms / 1_000,
        move.before,
        move.after,
    )


def _load_view(load: TaskLoad) -> LoadView:
    return LoadView(round(load.messages, 2), round(load.size_bytes, 1), round(load.cpu, 4))


def _partitions(partitions: Collection[int]) -> str:
    return f"partition{'s' if len(partitions) != 1 else ''} {', '.join(map(str, partitions))}"
