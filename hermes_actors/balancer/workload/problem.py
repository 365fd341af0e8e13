"""The planner's input and output: frozen values, equal for equal clusters."""

from msgspec import Struct

from hermes_actors.coordination.commands import Assignment
from hermes_actors.coordination.weights import IDLE_WEIGHT


class PlannedNode(Struct, frozen=True):
    """A living node. `capacity` is in cores; `speed` is the factor from the CPU controller. A
    draining node must own nothing; `is_stopping` says that it drains because it stops.
    """

    boot: str
    name: str
    capacity: float = 1.0
    speed: float = 1.0
    is_draining: bool = False
    is_stopping: bool = False


class PlannedOwner(Struct, frozen=True):
    """An owner of these partitions in the last plan, and its share of the maximum rate."""

    boot: str
    partitions: tuple[int, ...]
    share: float = 1.0


class Work(Struct, frozen=True):
    """A subscription, as the planner sees it.

    `weight` is the cost of all of it, in thousandths of a core; each owner's task has a part in
    proportion to its partitions. `constraint` is the number of owners that an administrator has set
    for the subscription or its topic. `moved_s` is the log time of its last move, if known.
    """

    name: str
    partitions: int
    weight: float = 0.0
    owners: tuple[PlannedOwner, ...] = ()
    constraint: int | None = None
    moved_s: float | None = None
    is_suspended: bool = False
    is_pulled: bool = False


class PlannerSettings(Struct, frozen=True):
    """The planner's settings. Weights are in thousandths of a core."""

    owners_default: int = 2
    tasks_max: int = 1_000
    """Maximum number of tasks on a node."""
    moves_max: int | None = None
    """Maximum number of tasks that a round moves for balance alone; None: a fiftieth of all, at
    least 20.
    """
    stable_s: float = 1_800.0
    """How long a subscription that has moved stays, unless it is forced to move."""
    idle_weight: float = IDLE_WEIGHT
    """Minimum weight of a task."""
    uneven: float = 0.02
    """A node this far above its target is relieved."""
    starved: float = 0.10
    """A node this far below its target is given tasks."""
    gain_min: float = 0.01
    """Minimum improvement of a round, as a part of one node's target."""


class Problem(Struct, frozen=True):
    """A cluster at a log time. The order of nodes and works does not matter. `gone` has the names
    of departed nodes, by boot id.
    """

    nodes: tuple[PlannedNode, ...]
    works: tuple[Work, ...]
    now_s: float = 0.0
    settings: PlannerSettings = PlannerSettings()
    gone: dict[str, str] = {}


class Planned(Struct, frozen=True):
    """The result of a round. `assignments` has the subscriptions whose owners change, sorted by
    name.

    `moves` counts tasks that left a node which could have kept them; `forced` counts new tasks and
    those whose node could not keep them. `unplaced` is how many wanted owners no node had room for.
    `worst` is the greatest load of a node as a part of its target.
    """

    assignments: tuple[Assignment, ...]
    moves: int = 0
    forced: int = 0
    unplaced: int = 0
    worst: float = 0.0
    has_more: bool = False
    """True if the budget ended the round; the next one continues."""
