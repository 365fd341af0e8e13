"""The faults of coordination do what they say, and the ledger follows them."""

import random
from collections import Counter

import pytest
import trio

from hermes_actors.coordination.commands import (
    COORDINATION_TOPIC,
    SETTINGS,
    Assignment,
    Join,
    Plan,
    Target,
    TermClaim,
)
from hermes_actors.log.base import (
    EARLIEST,
    LATEST,
    Commit,
    OffsetOutOfRange,
    Stored,
    TopicSettings,
    UnavailableRecord,
    UnknownRecord,
)
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.checkers.owning import Ledgers, OwnersAreFound
from hermes_chaos.sim.environment.coordination_way import CoordinationWay
from hermes_chaos.sim.environment.mortal import MortalLog
from hermes_chaos.sim.environment.watched_log import WatchedLog, calm, watched_log
from hermes_chaos.sim.history.events import Event, Forgotten, Healed, History, Overtaken
from hermes_chaos.sim.history.standing import Coordinated
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.settling import are_members
from hermes_chaos.sim.workload.subject import Audience, Subject

RECORD = Record(None, b"{}", (), 0)


@pytest.fixture
def log(autojump_clock) -> WatchedLog:
    return watched_log("dc1", 1, {"sim.ledger_1": "sim.ledger"}, History(), Trace())


async def test_a_way_that_fails_refuses_or_stores_without_a_word(log: WatchedLog) -> None:
    await log.topics.create(COORDINATION_TOPIC, SETTINGS)
    way = CoordinationWay(random.Random(1))
    way.failing_rate = 0.6
    outcomes = Counter[type]()
    for _ in range(200):
        (outcome,) = await way.append(log, COORDINATION_TOPIC, 0, [RECORD], Ack.ALL)
        outcomes[type(outcome)] += 1
    assert set(outcomes) == {Stored, UnavailableRecord, UnknownRecord}
    assert all(count > 30 for count in outcomes.values())
    ends = await log.positions(COORDINATION_TOPIC, LATEST)
    assert ends == {0: outcomes[Stored] + outcomes[UnknownRecord]}
    way.calm()
    (outcome,) = await way.append(log, COORDINATION_TOPIC, 0, [RECORD], Ack.ALL)
    assert type(outcome) is Stored


async def test_a_forgotten_coordination_goes_on_at_its_end(log: WatchedLog) -> None:
    assert not log.forget_coordination()
    await log.topics.create(COORDINATION_TOPIC, SETTINGS)
    await log.append(COORDINATION_TOPIC, 0, [RECORD, RECORD], Ack.ALL)
    assert log.forget_coordination()
    assert await log.positions(COORDINATION_TOPIC, EARLIEST) == {0: 2}
    assert await log.positions(COORDINATION_TOPIC, LATEST) == {0: 2}
    assert await log.append(COORDINATION_TOPIC, 0, [RECORD], Ack.ALL) == [Stored(2)]
    log.faults.replication_stopped = True
    assert not log.forget_coordination()


async def test_what_is_under_way_to_a_log_does_not_outlive_what_it_forgets(log: WatchedLog) -> None:
    """It would come after hours, and say what was before."""
    await log.topics.create(COORDINATION_TOPIC, SETTINGS)
    log.faults.silent = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.append, COORDINATION_TOPIC, 0, [RECORD], Ack.ALL)
        await trio.sleep(1)
        assert not log.forget_coordination()
        log.faults.heal()
    await trio.sleep(1)
    assert log.forget_coordination()
    way = CoordinationWay(random.Random(1))
    way.append_s = 2.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(way.append, log, COORDINATION_TOPIC, 0, [RECORD], Ack.ALL)
        await trio.sleep(1)
        assert not way.is_idle
    assert way.is_idle


async def test_a_log_loses_only_what_all_have_read(log: WatchedLog) -> None:
    await log.topics.create("sim.ledger_1", TopicSettings(partitions=1))
    await log.append("sim.ledger_1", 0, [RECORD, RECORD, RECORD], Ack.LEADER)
    await log.commit("group", "sim.ledger_1", {0: Commit(2)})
    assert not log.lose_end({"sim.ledger"}, 2)
    await log.commit("group", "sim.ledger_1", {0: Commit(3)})
    assert not log.lose_end({"sim.orders"}, 2)
    log.faults.reads_failing = True
    assert not log.lose_end({"sim.ledger"}, 2)
    calm(log)
    assert log.lose_end({"sim.ledger"}, 2)
    assert await log.positions("sim.ledger_1", LATEST) == {0: 1}
    with pytest.raises(OffsetOutOfRange):
        async with log.reader("sim.ledger_1", {0: 3}) as reader:
            await reader.next_batch(1, 1_000)


async def test_a_killed_node_s_last_commit_comes_late_and_over_others(log: WatchedLog) -> None:
    await log.topics.create("sim.ledger_1", TopicSettings(partitions=1))
    history = History()
    late: list[Event] = []
    history.watchers.append(late.append)
    way = CoordinationWay(random.Random(1))
    mortal = MortalLog(log, "dc1-n1#1", {}, history, way)
    # It has handed this one over long ago.
    await mortal.commit("other", "sim.ledger_1", {0: Commit(1)})
    await trio.sleep(2.1)
    await mortal.commit("group", "sim.ledger_1", {0: Commit(2)})
    mortal.die(commits_after_s=4.0)
    for group in ("group", "other"):
        await log.commit(group, "sim.ledger_1", {0: Commit(3)})
    await trio.sleep(3.9)
    assert await log.committed("group", "sim.ledger_1") == {0: Commit(3)}
    await trio.sleep(0.2)
    assert await log.committed("group", "sim.ledger_1") == {0: Commit(2)}
    assert await log.committed("other", "sim.ledger_1") == {0: Commit(3)}
    assert late[-1] == Overtaken(("dc1", "sim.ledger_1", 0), "group", Commit(2))


async def test_a_topic_grows_while_it_is_read_to_its_bound(log: WatchedLog) -> None:
    await log.topics.create("sim.ledger_1", TopicSettings(partitions=1))
    async with log.reader("sim.ledger_1", {0: 0}) as reader:
        assert log.grow("sim.ledger", 2)
        assert not log.grow("sim.ledger", 2)
        assert not log.grow("sim.orders", 2)
        with trio.move_on_after(1) as scope:
            await reader.next_batch(1, 1_000)
        assert scope.cancelled_caught
    assert await log.positions("sim.ledger_1", LATEST) == {0: 0, 1: 0}
    settings = await log.topics.describe("sim.ledger_1")
    assert settings is not None
    assert settings.partitions == 2


def test_the_ledger_counts_terms_from_one_again_when_all_is_forgotten() -> None:
    ledgers = Ledgers()
    plan = Plan("new", 1, -1, (Assignment("g.t$s", (Target("new", (0,)),)),))
    said = [Join("old", "n1"), TermClaim("old", 1), Join("new", "n2"), TermClaim("new", 1), plan]
    events = [Coordinated("dc1", at, 1_000 * at, each, at) for at, each in enumerate(said)]
    for event in events[:2]:
        ledgers.watch(event)
    ledgers.watch(Forgotten("dc1", 2.0))
    for event in events[2:]:
        ledgers.watch(event)
    ledger = ledgers.of["dc1"]
    assert list(ledger.members) == ["new"]
    assert ledger.clock_ms == 3_000
    holding = ledger.holding("g.t$s", 0)
    assert holding is not None
    assert (holding.boot, holding.epoch) == ("new", 4)


def test_all_are_members_when_each_node_has_joined_under_some_boot() -> None:
    ledgers = Ledgers()
    for number, dc in enumerate(("dc1", "dc2")):
        assert not are_members(["dc1-n1", "dc2-n1"], ledgers)
        ledgers.watch(Coordinated(dc, 0, 0, Join(f"boot {number}", f"{dc}-n1"), 0.0))
    assert are_members(["dc1-n1", "dc2-n1"], ledgers)


@pytest.mark.parametrize(("at_s", "is_late"), [(24.9, False), (25.0, True)])
def test_owners_may_be_found_later_where_all_was_forgotten(at_s: float, is_late: bool) -> None:
    ledgers = Ledgers()
    subject = Subject({"g.t": Ack.ALL}, [Audience("g.t$s", "g.t", "s")])
    checker = OwnersAreFound(subject, ledgers, partitions=1)
    join = Coordinated("dc1", 0, 0, Join("boot", "dc1-n1"), at_s)
    for event in (Forgotten("dc1", 0.0), Healed(0.0), join):
        ledgers.watch(event)
        checker.watch(event)
    assert bool(checker.violations) is is_late
