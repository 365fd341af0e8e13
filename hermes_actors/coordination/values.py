"""The values that the coordination log folds to, in log time: members, owners, moves.

Log time goes on by the difference of two records' timestamps, at least 0 and at most 1 s, in
milliseconds since the log's beginning. All times in fields called `…_log_ms` are of it.
"""

from msgspec import Struct

from hermes_actors.coordination.commands import RateState, Target, TaskLoad
from hermes_actors.coordination.reasons import Reason

LEASE_MS = 3_000
"""A member that was not heard of for longer than so much log time is gone."""

FENCE_S = 2.0
"""A node begins nothing for so long, and no longer, after it sent the last heartbeat of its own
that it has seen in the log. Log time may run ahead of the clocks by one step of a second, so this
is a second less than the lease: who takes over starts after the former owner has paused."""

STEP_MAX_MS = 1_000
"""The most that one record moves log time: an outage, or a clock that steps, expires nobody."""


class NodeLoad(Struct, frozen=True, array_like=True, gc=False):
    """The load of a node's process, smoothed: cores used, and cores that the machine leaves it."""

    cpu: float
    cpu_available: float
    at_log_ms: int


class Member(Struct, frozen=True, array_like=True, gc=False):
    """A node that takes part, in one of its lives. One that `is_stopping` is about to leave and
    takes nothing more.
    """

    boot: str
    node: str
    cores: float
    version: str
    joined_log_ms: int
    heard_log_ms: int
    load: NodeLoad | None = None
    is_stopping: bool = False


class Departed(Struct, frozen=True, array_like=True, gc=False):
    """A life that is over. `is_expired`: its lease ran out; else it left by its own will. `at_ms`
    is the timestamp of the record that showed it, Unix epoch.
    """

    boot: str
    node: str
    is_expired: bool
    at_ms: int


class Grant(Struct, frozen=True, array_like=True, gc=False):
    """Partitions that a boot owns: it alone consumes them until it releases them or is gone.

    `epoch` is the offset of the record with which they became its own; later grants of the same
    partitions have greater ones. `share` is the part of the subscription's maximum rate that the
    leader wants it to have; until `high_until_log_ms` it may still be using `high`.
    """

    boot: str
    partitions: tuple[int, ...]
    epoch: int
    share: float
    since_log_ms: int
    high: float = 0.0
    high_until_log_ms: int = 0
    load: TaskLoad | None = None

    def bound(self, log_ms: int) -> float:
        """The greatest share that the owner may be using, however late it reads, within its
        fence.
        """
        return max(self.high, self.share) if log_ms < self.high_until_log_ms else self.share


class Ownership(Struct, frozen=True, array_like=True, gc=False):
    """The planned and the present owners of a subscription.

    `planned_at` is the offset of the plan that named it last. `load` is what all its owners
    together cost, smoothed, remembered over moves. `moved_log_ms` is when its owners last
    changed, None if they never did since they were first named.
    """

    targets: tuple[Target, ...] = ()
    planned_at: int = -1
    grants: tuple[Grant, ...] = ()
    rate: RateState | None = None
    load: TaskLoad | None = None
    moved_log_ms: int | None = None


class Move(Struct, frozen=True, array_like=True, gc=False):
    """A plan changed the owners of a subscription. `before` and `after` name nodes; `at_ms` is the
    plan's timestamp, Unix epoch.
    """

    subscription: str
    reasons: tuple[Reason, ...]
    term: int
    offset: int
    at_ms: int
    before: tuple[str, ...]
    after: tuple[str, ...]


class Changed(Struct, frozen=True, gc=False):
    """The changes by one record: the subscriptions whose targets, grants or usable shares are
    others now (sorted), and whether there are other members (one came or went) or another leader.
    """

    subscriptions: tuple[str, ...] = ()
    members: bool = False
    leader: bool = False

    def __bool__(self) -> bool:
        return bool(self.subscriptions) or self.members or self.leader


NOTHING = Changed()
