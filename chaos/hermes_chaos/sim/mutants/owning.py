"""Seeded bugs of the coordination: terms, releases, leases, clocks, shares."""

from collections.abc import Container

from hermes_actors.balancer.leader import Leader
from hermes_actors.balancer.releases import Releases
from hermes_actors.consumer.offsets.progress import TopicProgress
from hermes_actors.coordination import owning
from hermes_actors.coordination.commands import Plan, Target
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.owned import Unfenced
from hermes_actors.coordination.reader import CoordinationReader
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import Grant, Ownership
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.clock import Clock
from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.mutants.mutant import WHOLE, Mutant
from hermes_chaos.sim.world import Shape

_pass_time = CoordinationState._pass_time
_plan = CoordinationState._plan
_begin_lease = Lease.__init__
_commit = TopicProgress._commit


def _any_plan(self: CoordinationState, said: Plan, offset: int, timestamp_ms: int) -> None:
    leader, term = self.leader, self.term
    self.leader, self.term = said.boot, said.term
    _plan(self, said, offset, timestamp_ms)
    self.leader, self.term = leader, term


def _lead_too(self: Leader, _lease: Lease) -> bool:
    return bool(self._coordination.state.leader)


async def _say_nothing(_self: Releases) -> bool:
    return False


def _granted_at_once(
    old: Ownership, members: Container[str], offset: int, log_ms: int
) -> Ownership:
    holders = {grant.boot for grant in old.grants}
    fresh = [_fresh(target, offset, log_ms) for target in old.targets if target.boot in members]
    grants = [grant for grant in fresh if grant.boot not in holders]
    return Ownership(
        **{
            **{name: getattr(old, name) for name in Ownership.__struct_fields__},
            "grants": (*old.grants, *grants),
        }
    )


def _fresh(target: Target, offset: int, log_ms: int) -> Grant:
    return Grant(target.boot, target.partitions, offset, target.share, log_ms)


def _trust_the_log(self: CoordinationState, timestamp_ms: int) -> None:
    before_ms, last_ms = self.clock_ms, self.timestamp_ms
    _pass_time(self, timestamp_ms)
    if last_ms is not None:
        self.clock_ms = before_ms + timestamp_ms - last_ms


def _lease_by_the_wall(self: Lease, boot: str, clock: Clock, fence_s: float = 2.0) -> None:
    _begin_lease(self, boot, clock, fence_s)
    self._now_s = lambda: clock.now_ms() / 1_000


def _open_for_ever(self: Lease) -> bool:
    return self._until_s > float("-inf")


async def _commit_without_a_look(self: TopicProgress, now_s: float) -> bool:
    lease, self._lease = self._lease, Unfenced()
    try:
        return await _commit(self, now_s)
    finally:
        self._lease = lease


async def _go_on(_self: CoordinationReader, _stored: StoredRecord) -> None:
    pass


def _share_at_once(ownership: Ownership, boot: str, _log_ms: int) -> float:
    return next((grant.share for grant in ownership.grants if grant.boot == boot), 0.0)


_LATE_NEWS = Shape(
    nodes_per_dc=3,
    faults=frozenset((Fault.COORDINATION_SLOW, Fault.SUBSCRIBER)),
    strikes=30,
    load_s=15.0,
    messages_per_publisher=100,
)
OWNING = (
    Mutant(
        "double-start",
        "a new owner starts without the release of the one before",
        ((owning, "granted", _granted_at_once),),
        seed=2,
    ),
    Mutant(
        "log-clock-trusted",
        "log time goes wherever the log's clock goes",
        ((CoordinationState, "_pass_time", _trust_the_log),),
        seed=3,
        shape=WHOLE,
    ),
    Mutant(
        "ignore-terms",
        "while one node leads all do, and their plans count in any term",
        ((Leader, "_leads", _lead_too), (CoordinationState, "_plan", _any_plan)),
        seed=2,
    ),
    Mutant(
        "never-release",
        "an owner that has stopped does not say so",
        ((Releases, "_append_some", _say_nothing),),
        seed=2,
    ),
    Mutant(
        "terms-go-on",
        "who slept while retention took everything counts on from what it knew",
        ((CoordinationReader, "_outlive_silence", _go_on),),
        seed=13,
        shape=WHOLE,
    ),
    Mutant(
        "shares-rise-at-once",
        "an owner uses a greater share before the others have heard that theirs is smaller",
        ((owning, "usable_share", _share_at_once),),
        seed=5,
        shape=_LATE_NEWS,
    ),
    Mutant(
        "lease-by-the-wall",
        "a lease ends by the wall clock",
        ((Lease, "__init__", _lease_by_the_wall),),
        shape=WHOLE,
    ),
    Mutant(
        "lease-never-closes",
        "a lease that was open once is open until the log says that it is over",
        ((Lease, "is_open", _open_for_ever),),
    ),
    Mutant(
        "commit-without-lease",
        "a commit does not look whether the lease is open",
        ((TopicProgress, "_commit", _commit_without_a_look),),
        shape=WHOLE,
    ),
)
