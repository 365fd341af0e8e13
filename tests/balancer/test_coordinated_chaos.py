"""Whatever happens to nodes and log: no partition is pushed by two, in the end all are pushed."""

import random

import pytest
import trio
import trio.testing

from tests.balancer.coordinated import open_cluster

NAMES = ("a", "b", "c", "d")


class Nemesis:
    def __init__(self, cluster, seed):
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.lives = 0

    async def strike(self):
        """One thing that goes wrong, for a while, and is mended."""
        rng, cluster = self.rng, self.cluster
        node = rng.choice(cluster.nodes)
        faults = cluster.log.faults
        kind = rng.choice(["kill", "stop", "pause", "cut", "deaf", "log away", "log slow", "join"])
        for_s = rng.choice([0.3, 1.5, 2.5, 3.5, 8.0])
        if kind in ("kill", "stop") and len(cluster.nodes) > 1:
            if kind == "kill":
                node.kill()
            else:
                await node.stop()
            cluster.nodes.remove(node)
            await cluster.sleep(for_s)
            self.start()
        elif kind == "join" and len(cluster.nodes) < 6:
            self.start()
        elif kind == "pause":
            with node.paused():
                await cluster.sleep(for_s)
        elif kind in ("cut", "deaf"):
            name = f"is_{kind}"
            setattr(node.log, name, True)
            await cluster.sleep(for_s)
            setattr(node.log, name, False)
        elif kind == "log away":
            rng.choice([faults.cut, lambda: setattr(faults, "silent", True)])()
            await cluster.sleep(for_s)
            faults.heal()
        elif kind == "log slow":
            faults.delay_s = faults.read_delay_s = (0.0, 0.6)
            faults.acknowledgement_lost_rate = 0.2
            await cluster.sleep(for_s)
            faults.heal()

    def start(self):
        self.lives += 1
        self.cluster.start(f"n{self.lives}")


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 30))]
)
async def test_no_partition_is_pushed_by_two_and_in_the_end_all_are(seed, autojump_clock):
    async with open_cluster(seed) as cluster:
        cluster.start(*NAMES)
        nemesis = Nemesis(cluster, seed)
        for _ in range(12):
            await cluster.sleep(nemesis.rng.uniform(0, 4))
            await nemesis.strike()
        await cluster.until(lambda: cluster.all_is_pushed_by(cluster.nodes), within_s=15)
        # Who heard nothing for a while reads what it missed.
        await cluster.sleep(8)
        states = [node.state for node in cluster.nodes]
        await trio.testing.wait_all_tasks_blocked()
        assert all(state == states[0] for state in states)
