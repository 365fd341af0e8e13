"""The planner's question and its answer: frozen values, equal for equal clusters."""

from msgspec import Struct

from hermes_actors.coordination.commands import Assignment
from hermes_actors.coordination.weights import IDLE_WEIGHT


class PlannedNode(Struct, frozen=True):
    """A living node. `capacity` is in cores, `speed` what the CPU controller made of it. A draining
    node is to own nothing; one that `is_stopping` drains for that.
    """

    boot: str
    name: str
    capacity: float = 1.0
    speed: float = 1.0
    is_draining: bool = False
    is_stopping: bool = False


class PlannedOwner(Struct, frozen=True):
    """An owner of these partitions by the last plan, and its part of the maximum rate."""

    boot: str
    partitions: tuple[int, ...]
    share: float = 1.0


class Work(Struct, frozen=True):
    """A subscription as the planner sees it.

    `weight` is what all of it costs, in thousandths of a core; each owner's task has the part of
    it that it has of the partitions. `constraint` is how many owners an administrator asked for, of
    the subscription or else of its topic. `moved_s` is the log time of its last move, if known.
    """

    name: str
    partitions: int
    weight: float = 0.0
    owners: tuple[PlannedOwner, ...] = ()
    constraint: int | None = None
    moved_s: float | None = None
    is_suspended: bool = False


class PlannerSettings(Struct, frozen=True):
    """How the planner plans; weights are in thousandths of a core."""

    owners_default: int = 2
    tasks_max: int = 1_000
    """How many tasks a node may have."""
    moves_max: int | None = None
    """Tasks that a round moves for balance alone; None: a fiftieth of all, and at least 20."""
    stable_s: float = 1_800.0
    """A subscription that has moved stays as long, unless something forces it."""
    idle_weight: float = IDLE_WEIGHT
    """The least that a task costs."""
    uneven: float = 0.02
    """A node that is above its target by more than this part is relieved."""
    starved: float = 0.10
    """A node that is below its target by more than this part is given tasks."""
    gain_min: float = 0.01
    """The least that all moves of a round together must improve, as a part of one node's target."""


class Problem(Struct, frozen=True):
    """A cluster at a log time. The order of nodes and works does not matter. `gone` has the names
    of nodes that live no more, by boot id.
    """

    nodes: tuple[PlannedNode, ...]
    works: tuple[Work, ...]
    now_s: float = 0.0
    settings: PlannerSettings = PlannerSettings()
    gone: dict[str, str] = {}


class Planned(Struct, frozen=True):
    """A round's outcome. `assignments` names the subscriptions whose owners change, by name.

    `moves` counts tasks that leave a node which could have kept them; `forced` those whose node
    could not, and the new ones. `unplaced` is how many owners were wanted for which no node had
    room. `worst` is the greatest load of a node as a part of its target.
    """

    assignments: tuple[Assignment, ...]
    moves: int = 0
    forced: int = 0
    unplaced: int = 0
    worst: float = 0.0
    has_more: bool = False
    """The budget ended the round; the next one goes on."""
