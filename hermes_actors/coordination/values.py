"""The values to which the coordination log is folded, in log time: members, owners, moves.

Log time advances by the difference between two records' timestamps, at least 0 and at most 1 s. It
is in milliseconds since the log's beginning. Times in fields named `…_log_ms` are log times.
"""

from msgspec import Struct

from hermes_actors.coordination.commands import RateState, Target, TaskLoad
from hermes_actors.coordination.reasons import Reason

LEASE_MS = 3_000
"""A member without a heartbeat for longer than this, in log time, is gone."""

FENCE_S = 2.0
"""How long a node may act after it sent the latest of its heartbeats that it has read back from the
log. Log time may run ahead of the clocks by one step of a second, so this is a second less than the
lease: a new owner starts only after the old one has stopped.
"""

STEP_MAX_MS = 1_000
"""Maximum advance of log time by one record, so that an outage or a clock step expires no lease."""


class NodeLoad(Struct, frozen=True, array_like=True, gc=False):
    """The smoothed load of a node's process: cores used, and cores that the machine leaves
    for it.
    """

    cpu: float
    cpu_available: float
    at_log_ms: int


class Member(Struct, frozen=True, array_like=True, gc=False):
    """A node in one of its lives. If `is_stopping`, it is about to leave and gets no new grants."""

    boot: str
    node: str
    cores: float
    version: str
    joined_log_ms: int
    heard_log_ms: int
    load: NodeLoad | None = None
    is_stopping: bool = False


class Departed(Struct, frozen=True, array_like=True, gc=False):
    """A life that is over. `is_expired`: its lease expired; else the node left. `at_ms` is the
    timestamp of the record that showed it (Unix epoch).
    """

    boot: str
    node: str
    is_expired: bool
    at_ms: int


class Grant(Struct, frozen=True, array_like=True, gc=False):
    """Partitions that a boot owns: it alone consumes them until it releases them or is gone.

    `epoch` is the offset of the record that granted them; later grants of the same partitions have
    greater epochs. `share` is the planned part of the subscription's maximum rate; until
    `high_until_log_ms` the owner may still be using `high`.
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
        """The greatest share that the owner may be using, however late it reads the log within its
        fence.
        """
        return max(self.high, self.share) if log_ms < self.high_until_log_ms else self.share


class Ownership(Struct, frozen=True, array_like=True, gc=False):
    """The planned and the present owners of a subscription.

    `planned_at` is the offset of the last plan that named it. `load` is the smoothed load of all
    its owners together, kept when it moves. `moved_log_ms` is when its owners last changed; None if
    they never have since it was first planned.
    """

    targets: tuple[Target, ...] = ()
    planned_at: int = -1
    grants: tuple[Grant, ...] = ()
    rate: RateState | None = None
    load: TaskLoad | None = None
    moved_log_ms: int | None = None


class Move(Struct, frozen=True, array_like=True, gc=False):
    """A plan's change of a subscription's owners. `before` and `after` are node names; `at_ms` is
    the plan's timestamp (Unix epoch).
    """

    subscription: str
    reasons: tuple[Reason, ...]
    term: int
    offset: int
    at_ms: int
    before: tuple[str, ...]
    after: tuple[str, ...]


class Changed(Struct, frozen=True, gc=False):
    """The changes by one record: the subscriptions whose targets, grants or usable shares changed
    (sorted), and whether the members or the leader changed.
    """

    subscriptions: tuple[str, ...] = ()
    members: bool = False
    leader: bool = False

    def __bool__(self) -> bool:
        return bool(self.subscriptions) or self.members or self.leader


NOTHING = Changed()
