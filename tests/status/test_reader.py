import random

import pytest
import trio

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.status.collector import Collector, Sources
from hermes_actors.status.fold import GONE_AFTER_S, StatusFold
from hermes_actors.status.reader import StatusReader
from hermes_actors.status.record import SETTINGS, STATUS_TOPIC, Published
from hermes_actors.status.reporter import StatusReporter


class Cluster:
    """Two datacentres' logs, nodes that report, and one management node that reads both."""

    def __init__(self, clock, identity, supervisor):
        self.logs = {dc: MemoryLog(dc, clock) for dc in ("dc1", "dc2")}
        self.fold = StatusFold()
        self.clock = clock
        self.supervisor = supervisor
        self._identity = identity
        self._boots = 0

    def start(self, dc, node, as_=None):
        self._boots += 1
        collector = Collector(
            self._identity(node, dc, f"boot{self._boots}"),
            Sources(topics=lambda: ["a.b"], published=lambda _name: Published(3)),
        )
        self.supervisor.start_task(
            f"{dc} {as_ or node}",
            lambda stop: StatusReporter(self.logs[dc], collector, clock=self.clock).run(stop),
        )

    async def kill(self, dc, node):
        await self.supervisor.stop(f"{dc} {node}", grace_s=0)

    def read(self, clock=None):
        for dc, log in self.logs.items():
            self.supervisor.start_task(
                f"reader {dc}",
                lambda stop, log=log: StatusReader(
                    log, self.fold, clock=clock or self.clock, rng=random.Random(3)
                ).run(stop),
            )

    def there(self):
        return [
            (view.header.dc, view.header.node)
            for view in self.fold.nodes(trio.current_time())
            if view.is_there
        ]

    def states(self):
        return {
            view.header.node: (view.is_gone, view.is_unknown)
            for view in self.fold.nodes(trio.current_time())
        }


@pytest.fixture
async def cluster(clock, identity):
    async with open_supervisor(random.Random(1)) as supervisor:
        yield Cluster(clock, identity, supervisor)


async def test_all_nodes_of_all_datacentres_are_seen_within_two_seconds(autojump_clock, cluster):
    cluster.read()
    cluster.start("dc1", "n1")
    cluster.start("dc1", "n2")
    cluster.start("dc2", "n3")
    # A reader that starts before there is a topic comes back within its back-off.
    await trio.sleep(4)
    assert cluster.there() == [("dc1", "n1"), ("dc1", "n2"), ("dc2", "n3")]
    cluster.start("dc1", "n4")
    await trio.sleep(1)
    assert ("dc1", "n4") in cluster.there()
    assert [view.age_s for view in cluster.fold.nodes(trio.current_time())] <= [1.1] * 4


async def test_a_killed_node_is_gone_after_the_time_that_is_stated_and_its_successor_is_seen(
    autojump_clock, cluster
):
    cluster.read()
    cluster.start("dc1", "n1")
    cluster.start("dc1", "n2")
    await trio.sleep(10)
    await cluster.kill("dc1", "n1")
    await trio.sleep(GONE_AFTER_S - 2)
    assert ("dc1", "n1") in cluster.there()
    await trio.sleep(3)
    assert cluster.states()["n1"] == (True, False)
    cluster.start("dc1", "n1")
    await trio.sleep(1)
    assert ("dc1", "n1") in cluster.there()


async def test_a_log_that_fails_is_unknown_since_then_and_known_again_after(
    autojump_clock, cluster
):
    cluster.read()
    cluster.start("dc1", "n1")
    cluster.start("dc2", "n2")
    await trio.sleep(10)
    cluster.logs["dc2"].faults.cut()
    await trio.sleep(60)
    assert cluster.states() == {"n1": (False, False), "n2": (False, True)}
    reading = cluster.fold.readings["dc2"]
    assert reading.since_s == pytest.approx(10, abs=5)
    assert "unavailable" in reading.trouble
    assert cluster.fold.readings["dc1"].trouble == ""
    cluster.logs["dc2"].faults.heal()
    await trio.sleep(4)
    assert cluster.there() == [("dc1", "n1"), ("dc2", "n2")]


async def test_a_log_that_does_not_answer_is_unknown_before_its_nodes_would_be_gone(
    autojump_clock, cluster
):
    cluster.read()
    cluster.start("dc1", "n1")
    await trio.sleep(10)
    cluster.logs["dc1"].faults.silent = True
    cluster.logs["dc1"].faults.reads_silent = True
    for _ in range(60):
        await trio.sleep(0.5)
        is_gone, is_unknown = cluster.states()["n1"]
        assert not is_gone or is_unknown
    assert cluster.fold.unknown == ["dc1", "dc2"]
    cluster.logs["dc1"].faults.heal()
    await trio.sleep(6)
    assert cluster.there() == [("dc1", "n1")]


async def test_a_reader_begins_half_a_minute_ago_not_at_the_beginning(autojump_clock, cluster):
    cluster.start("dc1", "old")
    await trio.sleep(10)
    await cluster.kill("dc1", "old")
    cluster.start("dc1", "n1")
    await trio.sleep(25)
    cluster.read()
    await trio.sleep(1)
    assert cluster.states() == {"n1": (False, False), "old": (False, False)}
    await trio.sleep(GONE_AFTER_S)
    assert cluster.states() == {"n1": (False, False), "old": (True, False)}
    await trio.sleep(20)
    late = StatusFold()
    cluster.fold = late
    cluster.supervisor.start_task(
        "late",
        lambda stop: StatusReader(
            cluster.logs["dc1"], late, clock=cluster.clock, rng=random.Random(1)
        ).run(stop),
    )
    await trio.sleep(1)
    assert cluster.states() == {"n1": (False, False)}


@pytest.mark.parametrize("skew_ms", [-3_600_000, 3_600_000])
async def test_a_wrong_wall_clock_of_the_reader_changes_nothing(
    autojump_clock, cluster, skewed_clock, skew_ms
):
    cluster.start("dc1", "n1")
    await trio.sleep(40)
    cluster.read(skewed_clock(skew_ms))
    await trio.sleep(3)
    assert cluster.there() == [("dc1", "n1")]


async def test_what_is_no_status_record_is_passed_over(autojump_clock, cluster):
    log = cluster.logs["dc1"]
    await log.topics.create(STATUS_TOPIC, SETTINGS)
    await log.append(STATUS_TOPIC, 0, [Record(b"x", b"\xc1", (), 0)], Ack.LEADER)
    cluster.read()
    cluster.start("dc1", "n1")
    await trio.sleep(3)
    assert cluster.there() == [("dc1", "n1")]
