"""What the machines leave their nodes, from the waiting of each to what moves for it."""

import random
from itertools import pairwise

import pytest
from msgspec.structs import replace

from hermes_actors.balancer.workload.planner import plan
from hermes_actors.balancer.workload.speeds import NodeCost, Speeds
from hermes_actors.coordination.owning import mixed
from hermes_actors.runtime.cpu_share import CpuSample, CpuShare
from tests.balancer.workload.planned_clusters import after, heavy_tailed, loads

LOADS_S = 10.0
IN_A_ROUND = 6
BUSY = 0.4


class Host:
    """A node's machine, of one core: what the node counts there, and how the log smooths it."""

    def __init__(self) -> None:
        self.share = CpuShare(1.0)
        self.at_s = self.ran_s = self.waited_s = 0.0
        self.cpu = self.available = self.undone = 0.0

    def run(self, wanted: float, part: float) -> None:
        """For the time between two loads; it gets that part of what it wants, the rest later."""
        ran = min(wanted + self.undone, part)
        self.undone += wanted - ran
        waited = min(ran / part - ran, 1 - ran)
        self.at_s += LOADS_S
        self.ran_s += ran * LOADS_S
        self.waited_s += waited * LOADS_S
        left = self.share.update(CpuSample(self.at_s, self.ran_s, self.waited_s))
        if not self.cpu:
            self.cpu, self.available = ran, left
        interval_ms = round(LOADS_S * 1_000)
        self.cpu = mixed(self.cpu, ran, interval_ms)
        self.available = mixed(self.available, left, interval_ms)


class Machines:
    """A cluster in which all tasks' weights are known, and what its machines leave is not."""

    def __init__(self, seed: int, nodes: int, works: int) -> None:
        problem = heavy_tailed(seed, nodes, works, sigma=1.0)
        self.problem = after(problem, plan(problem))
        self.rng = random.Random(seed)
        self.speeds = Speeds()
        self.hosts = {node.boot: Host() for node in problem.nodes}
        self.rivals: dict[str, float] = {}
        self.moves: list[int] = []

    def run(self, minutes: int) -> None:
        for _ in range(minutes):
            weights = loads(self.problem)
            scale = BUSY * len(weights) / sum(weights.values())
            for boot, host in self.hosts.items():
                for _ in range(IN_A_ROUND):
                    self._work(host, weights[boot] * scale, self.rivals.get(boot, 1.0))
            now_s = self.problem.now_s + 60
            costs = {
                boot: NodeCost(1.0, host.cpu, host.available, weights[boot])
                for boot, host in self.hosts.items()
            }
            speeds = self.speeds.update(now_s, costs)
            nodes = tuple(replace(node, speed=speeds[node.boot]) for node in self.problem.nodes)
            before = replace(self.problem, now_s=now_s, nodes=nodes)
            planned = plan(before)
            self.moves.append(planned.moves)
            self.problem = after(before, planned)

    def _work(self, host: Host, wanted: float, part: float) -> None:
        """With noise, and now and then with something else that wants the core for ten seconds."""
        rng = self.rng
        disturbed = 0.5 if rng.random() < 0.01 else rng.uniform(0.93, 1.0)
        host.run(wanted * rng.uniform(0.95, 1.05), part * disturbed)

    def busy(self) -> dict[str, float]:
        return {boot: host.cpu / host.available for boot, host in self.hosts.items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_nothing_moves_on_a_steady_day_whatever_noise_there_is(seed: int) -> None:
    machines = Machines(seed, 4, 40)
    # It begins with what the first minute of each node looks like.
    machines.run(2)
    machines.moves.clear()
    machines.run(24 * 60)
    assert sum(machines.moves) == 0


@pytest.mark.parametrize("part", [0.5, 0.6])
def test_a_node_whose_core_is_half_anothers_is_given_less_though_nobody_told(part: float) -> None:
    machines = Machines(7, 5, 60)
    machines.run(10)
    assert sum(machines.moves[2:]) == 0
    before = loads(machines.problem)
    machines.rivals["boot-0"] = part
    machines.run(20)
    now = loads(machines.problem)
    mean = sum(now.values()) / (len(now) - 1 + part)
    assert now["boot-0"] == pytest.approx(part * mean, rel=0.2)
    assert now["boot-0"] < 0.75 * before["boot-0"]
    busy = machines.busy()
    assert max(busy.values()) < 1.2 * sum(busy.values()) / len(busy)


@pytest.mark.slow
def test_what_was_taken_is_given_back_when_the_rival_ends_and_then_it_is_calm() -> None:
    machines = Machines(3, 5, 60)
    machines.rivals["boot-0"] = 0.5
    machines.run(40)
    slow = loads(machines.problem)["boot-0"]
    del machines.rivals["boot-0"]
    machines.run(60)
    even = loads(machines.problem)
    assert even["boot-0"] > 1.5 * slow
    assert max(even.values()) < 1.1 * sum(even.values()) / len(even)
    machines.run(300)
    assert sum(machines.moves[-240:]) <= 2
    # It takes several rounds, and does not swing back.
    steps = [count for count in machines.moves if count]
    assert all(later <= 3 * max(1, earlier) for earlier, later in pairwise(steps))
