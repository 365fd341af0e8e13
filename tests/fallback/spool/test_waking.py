"""Who rests goes on when a log is back or a topic known: soon, a few at a time."""

from collections import Counter

import pytest
import trio

from hermes_actors.fallback.spool.replay import Returns
from hermes_chaos.sim.environment.disk import SimulatedDisk


async def test_who_rests_goes_on_a_few_at_a_time_when_a_log_is_back(memory_log, autojump_clock):
    log = await memory_log()
    returns = Returns(lambda: {"dc1": (log, "shop.orders")})
    woken: Counter[float] = Counter()

    async def rest() -> None:
        await returns.rest(600)
        woken[trio.current_time()] += 1

    async with trio.open_nursery() as nursery:
        for _ in range(5_000):
            nursery.start_soon(rest)
        nursery.start_soon(returns.watch)
        log.faults.cut()
        await trio.sleep(30)
        assert not woken
        log.faults.heal()
        await trio.sleep(3)
        assert woken.total() == 5_000
        # Each does something then, and the node has other things to do.
        assert max(woken.values()) <= 100
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_silent", [False, True])
async def test_when_a_log_is_back_all_its_topics_go_on_within_two_seconds(
    open_spooling, entry, live, memory_log, autojump_clock, is_silent
):
    names = [f"shop.t{number}" for number in range(20)]
    log = await memory_log(topics=names)
    log.faults.silent = log.faults.reads_silent = is_silent
    if not is_silent:
        log.faults.cut()
    async with open_spooling(SimulatedDisk()) as spooling:
        spooling.live = {name: live(name) for name in names}
        for name in names:
            assert spooling.offer(entry(b"1", b"k", topic=name))
        spooling.replay(log)
        await trio.sleep(600)
        assert spooling.shown("entries") == 20
        log.faults.heal()
        await trio.sleep(2.5)
        assert spooling.shown("entries") == 0


async def test_a_log_that_answers_and_takes_nothing_is_tried_less_and_less_often(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log(partitions=1)
    log.faults.unavailable_rate = 1.0
    async with open_spooling(SimulatedDisk()) as spooling:
        assert spooling.offer(entry(b"1", b"k"))
        spooling.replay(log)
        await trio.sleep(60)
        failures = spooling.spool.measures.replay_failures["unavailable"]
        tried = failures.value
        await trio.sleep(300)
        assert 10 <= failures.value - tried <= 20


@pytest.mark.slow
@pytest.mark.parametrize("is_silent", [False, True])
async def test_a_node_that_started_while_its_log_was_away_goes_on_when_it_knows_its_topics(
    open_spooling, entry, live, memory_log, autojump_clock, is_silent
):
    """What it knows of topics comes from that log: until then it has no log to ask."""
    names = [f"shop.t{number}" for number in range(20)]
    log = await memory_log(topics=names)
    log.faults.silent = log.faults.reads_silent = is_silent
    if not is_silent:
        log.faults.cut()
    async with open_spooling(SimulatedDisk()) as spooling:
        spooling.live = {}
        for name in names:
            assert spooling.offer(entry(b"1", b"k", topic=name))
        spooling.replay(log)
        await trio.sleep(600)
        assert spooling.shown("entries") == 20
        log.faults.heal()
        await trio.sleep(600)
        assert spooling.shown("entries") == 20
        spooling.live = {name: live(name) for name in names}
        await trio.sleep(1.5)
        assert spooling.shown("entries") == 0


async def test_what_is_not_known_any_more_while_it_is_sent_goes_on_when_it_is_known_again(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log()
    log.faults.unavailable_rate = 1.0
    async with open_spooling(SimulatedDisk()) as spooling:
        for number in range(30):
            assert spooling.offer(entry(b"%d" % number, b"%d" % number))
        spooling.replay(log)
        await trio.sleep(60)
        known = spooling.live
        spooling.live = {}
        log.faults.heal()
        await trio.sleep(600)
        assert spooling.shown("entries") == 30
        spooling.live = known
        await trio.sleep(1.5)
        assert spooling.shown("entries") == 0


@pytest.mark.parametrize("is_silent", [False, True])
async def test_a_log_that_answers_before_it_takes_anything_is_tried_again_soon(
    open_spooling, entry, live, memory_log, autojump_clock, is_silent
):
    """As Kafka does: brokers tell of topics before partitions have leaders again."""
    names = [f"shop.t{number}" for number in range(20)]
    log = await memory_log(topics=names)
    async with open_spooling(SimulatedDisk()) as spooling:
        spooling.live = {name: live(name) for name in names}
        for name in names:
            assert spooling.offer(entry(b"1", b"k", topic=name))
        log.faults.unavailable_rate = 1.0
        spooling.replay(log)
        # All know how many partitions there are.
        await trio.sleep(5)
        log.faults.heal()
        log.faults.reads_silent = log.faults.silent = is_silent
        if not is_silent:
            log.faults.cut()
        await trio.sleep(600)
        log.faults.reads_silent = log.faults.reads_failing = False
        await trio.sleep(6)
        assert spooling.shown("entries") == 20
        log.faults.heal()
        await trio.sleep(9)
        assert spooling.shown("entries") == 0


@pytest.mark.parametrize(
    "after_s",
    [pytest.param(step / 2, marks=[pytest.mark.slow] if step % 7 else []) for step in range(60)],
)
async def test_the_return_of_a_log_is_noticed_whatever_its_only_topic_is_doing(
    open_spooling, entry, memory_log, autojump_clock, after_s
):
    log = await memory_log()
    log.faults.silent = log.faults.reads_silent = True
    async with open_spooling(SimulatedDisk()) as spooling:
        assert spooling.offer(entry(b"1", b"k"))
        spooling.replay(log)
        await trio.sleep(300 + after_s)
        log.faults.heal()
        await trio.sleep(4)
        assert spooling.shown("entries") == 0


async def test_a_log_that_comes_and_goes_and_takes_nothing_is_not_tried_each_time(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log(partitions=1)
    async with open_spooling(SimulatedDisk()) as spooling:
        assert spooling.offer(entry(b"1", b"k"))
        log.faults.unavailable_rate = 1.0
        spooling.replay(log)
        await trio.sleep(60)
        failures = spooling.spool.measures.replay_failures["unavailable"]
        tried = failures.value
        for _ in range(100):
            log.faults.reads_failing = True
            await trio.sleep(1.5)
            log.faults.reads_failing = False
            await trio.sleep(1.5)
        # As often as its own waits would have it that begin anew each half a minute.
        assert 10 <= failures.value - tried <= 60


@pytest.mark.slow
async def test_who_waits_for_its_topic_goes_on_a_few_at_a_time_when_it_is_known(
    open_spooling, entry, live, memory_log, autojump_clock
):
    names = [f"shop.t{number}" for number in range(300)]
    log = await memory_log(topics=names)
    stored: Counter[float] = Counter()
    log.on_append.append(lambda _topic, _record: stored.update([trio.current_time()]))
    async with open_spooling(SimulatedDisk()) as spooling:
        spooling.live = {}
        for name in names:
            assert spooling.offer(entry(b"1", b"k", topic=name))
        spooling.replay(log)
        await trio.sleep(600)
        assert not stored
        spooling.live = {name: live(name) for name in names[:-10]}
        await trio.sleep(2)
        assert stored.total() == 290
        # Each does something then, and the node has other things to do.
        assert max(stored.values()) <= 64
