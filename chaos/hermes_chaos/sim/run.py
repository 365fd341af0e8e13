"""Runs one seed and gives the verdict; a failing run says how to replay it."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hermes_actors.balancer import leader, membership, workloads
from hermes_actors.publisher import producer
from hermes_chaos.sim import determinism
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.mutants.all import MUTANTS
from hermes_chaos.sim.mutants.mutant import Mutant
from hermes_chaos.sim.world import Shape, World

_LOADS_INTERVAL_S = 1.0
_PARTITIONS_INTERVAL_S = 2.0
_SNAPSHOT_INTERVAL_S = 1.5
# Each part of a run takes at most 90 s; a longer wait is a deadlock.
_LASTS_MAX_S = 1_000.0


@dataclass(frozen=True)
class Verdict:
    """The result of one seed. `violations` is empty if every promise held."""

    seed: int
    mutant: str | None
    digest: str
    violations: tuple[str, ...]
    published: int
    acknowledged: int
    deliveries: int
    duplicates: int
    discarded: int
    examined: dict[str, int]
    virtual_s: float
    faults: Counter[str] = field(default_factory=Counter)
    last_lines: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """True if every promise held."""
        return not self.violations

    @property
    def catches(self) -> bool:
        """True if a promise was broken. A checker that had nothing to examine does not count."""
        return any("nothing was examined" not in each for each in self.violations)

    @property
    def replay(self) -> str:
        """The command that replays this history with all events."""
        mutant = f" --mutant {self.mutant}" if self.mutant else ""
        return f"hermes chaos sim --seeds {self.seed}:{self.seed} --trace{mutant}"

    def line(self) -> str:
        """The run in one line."""
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        return (
            f"seed {self.seed:<5} {'ok  ' if self.holds else 'FAIL'} {self.digest[:12]} "
            f"{self.virtual_s:5.1f} s  published {self.published} acknowledged "
            f"{self.acknowledged} delivered {self.deliveries} duplicates {self.duplicates} "
            f"discarded {self.discarded}  faults: {faults or 'none'}"
        )

    def report(self) -> str:
        """Everything that helps to find the cause of a violation, as text."""
        return "\n".join(
            [
                self.line(),
                *(f"  violated: {each}" for each in self.violations),
                f"  replay: {self.replay}",
                f"  the last {len(self.last_lines)} events:",
                *(f"    {line}" for line in self.last_lines),
            ]
        )


def run_seed(
    seed: int,
    *,
    shape: Shape | None = None,
    mutant: str | None = None,
    sink: Callable[[str], None] | None = None,
    is_hunt: bool = False,
) -> Verdict:
    """Run and judge the seed's history. `sink` gets every line of its trace. With `is_hunt` the run
    ends at the first violation. Without a `shape` it has the mutant's, or the usual one; every
    fourth seed has pull clients.

    Raises KeyError for a mutant that is not in `MUTANTS`.
    """
    trace = Trace(sink)
    usual = Shape(pull_clients=0 if seed % 4 else 3)
    shape = shape or (usual if mutant is None else MUTANTS[mutant].shape)
    world = World(seed, shape, trace, is_hunt=is_hunt)
    violations: list[str] = []
    if mutant is None:
        _run(world, violations, seed)
    else:
        with MUTANTS[mutant].planted():
            _run(world, violations, seed)
    checks = world.checks
    violations.extend(checks.finish())
    counts = world.counts
    return Verdict(
        seed=seed,
        mutant=mutant,
        digest=trace.digest,
        violations=tuple(violations),
        published=counts["published"],
        acknowledged=counts["acknowledged"],
        deliveries=counts["deliveries"],
        duplicates=sum(
            times - 1
            for endpoint in world.cluster.endpoints
            for times in endpoint.processed.values()
        ),
        discarded=checks.delivered.discarded,
        examined={checker.name: checker.examined for checker in checks.all},
        virtual_s=world.ended_s,
        faults=world.history.faults,
        last_lines=tuple(trace.last_lines()),
    )


def finding_seed(mutant: str, among: Iterable[int] = range(1, 41)) -> int | None:
    """The first seed that finds the bug, starting with the noted one; None if none does."""
    seeds = dict.fromkeys((MUTANTS[mutant].seed, *among))
    return next((s for s in seeds if run_seed(s, mutant=mutant, is_hunt=True).catches), None)


# In production, nodes report loads every ten seconds, and check for new partitions and take
# snapshots twice a minute. A run is too short for any of that to have an effect.
_OFTEN_MEASURED = Mutant(
    "measured often",
    "",
    (
        (membership, "LOADS_INTERVAL_S", _LOADS_INTERVAL_S),
        (leader, "SNAPSHOT_INTERVAL_S", _SNAPSHOT_INTERVAL_S),
        (workloads, "_ROUND_S", _PARTITIONS_INTERVAL_S),
        (producer, "_LOOK_AGAIN_S", _PARTITIONS_INTERVAL_S),
    ),
)


def _run(world: World, violations: list[str], seed: int) -> None:
    try:
        with _OFTEN_MEASURED.planted():
            determinism.run(world.run, seed=seed, lasts_max_s=_LASTS_MAX_S)
    except determinism.StandsStill as error:
        violations.append(f"the world stands still: {error}")
    # Any unexpected exception of the production code is a finding.
    except Exception as error:  # noqa: BLE001
        violations.append("the world broke: " + "".join(traceback.format_exception(error)))
