"""The spool is emptied when a log works: all of it, in order for each key, nobody held up."""

import json

import pytest
import trio

from hermes_actors.model.topic import Ack
from hermes_chaos.sim.environment.disk import SimulatedDisk

ORDERS = "shop.orders"
WEEK_MS = 604_800_000


def set_aside(disk):
    lines = bytes(disk.files.get("set-aside.jsonl", b"")).splitlines()
    return [json.loads(line) for line in lines if line]


async def test_all_is_sent_once_in_order_for_each_key_and_the_disk_is_empty_then(
    open_spooling, entry, memory_log, autojump_clock
):
    disk, log = SimulatedDisk(), await memory_log()
    async with open_spooling(disk) as spooling:
        for number in range(300):
            assert spooling.offer(entry(b"%d" % number, b"key%d" % (number % 7)))
        spooling.replay(log)
        await spooling.wait_empty()
        stored = await spooling.stored(log)
        for bodies in stored.values():
            for key in range(7):
                numbers = [int(body) for body in bodies if int(body) % 7 == key]
                assert numbers in ([], [n for n in range(300) if n % 7 == key])
        assert sum(map(len, stored.values())) == 300
        assert spooling.shown("replayed_total") == 300
        await spooling.supervisor.stop("spool writer")
        assert not disk.files


async def test_a_lost_acknowledgement_means_twice_and_not_never_and_not_out_of_order(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log()
    async with open_spooling(SimulatedDisk()) as spooling:
        for number in range(40):
            assert spooling.offer(entry(b"%02d" % number, b"k"))
        log.faults.acknowledgement_lost_rate = 1.0
        spooling.replay(log)
        await trio.sleep(1)
        assert spooling.shown("entries") == 40
        log.faults.acknowledgement_lost_rate = 0.3
        log.faults.partial_rate = 0.3
        await spooling.wait_empty()
        bodies = await spooling.bodies(log)
        firsts = list(dict.fromkeys(bodies))
        assert firsts == [b"%02d" % number for number in range(40)]
        assert len(bodies) > 40


async def test_one_topic_that_stays_away_holds_up_no_other(
    open_spooling, entry, live, memory_log, autojump_clock
):
    names = [f"shop.t{number}" for number in range(5)]
    # The first topic is not in the log, so that nothing can be sent for it.
    log = await memory_log(topics=names[1:])
    async with open_spooling(SimulatedDisk()) as spooling:
        spooling.live = {name: live(name) for name in names}
        for name in names:
            for number in range(20):
                assert spooling.offer(entry(b"%d" % number, topic=name))
        spooling.replay(log)
        await trio.sleep(1)
        for name in names[1:]:
            assert len(await spooling.bodies(log, name)) == 20
        (left,) = spooling.spool.index.queues.values()
        assert (left.topic, left.count) == (names[0], 20)


async def test_what_may_still_be_stored_is_not_sent_before_its_append_has_ended(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log(partitions=1)
    async with open_spooling(SimulatedDisk()) as spooling:
        stored = spooling.offer(entry(b"stored", b"a"), is_sent=True)
        refused = spooling.offer(entry(b"refused", b"b"), is_sent=True)
        assert spooling.offer(entry(b"behind", b"b"))
        assert spooling.offer(entry(b"silent", b"c"), is_sent=True)
        spooling.replay(log)
        await trio.sleep(2)
        assert await spooling.bodies(log) == []
        spooling.spool.concluded(stored, [True])
        spooling.spool.concluded(refused, [False])
        await trio.sleep(1)
        assert await spooling.bodies(log) == [b"refused", b"behind"]
        await trio.sleep(8)
        assert await spooling.bodies(log) == [b"refused", b"behind", b"silent"]


async def test_the_messages_of_a_topic_that_is_gone_are_set_aside_and_counted(
    open_spooling, entry, memory_log, autojump_clock
):
    disk, log = SimulatedDisk(), await memory_log()
    async with open_spooling(disk) as spooling:
        spooling.gone.add(("shop.gone", 0))
        assert spooling.offer(entry(b"gone", b"k", topic="shop.gone"))
        assert spooling.offer(entry(b"here"))
        spooling.replay(log)
        await spooling.wait_empty()
        assert spooling.spool.measures.set_aside["topic_gone"].value == 1
    (line,) = set_aside(disk)
    assert (line["topic"], line["reason"]) == ("shop.gone", "topic_gone")
    assert line["message"]["id"] == "id-b'gone'"


async def test_a_topic_made_anew_does_not_get_its_predecessors_messages(
    open_spooling, entry, live, memory_log, autojump_clock
):
    again = f"{ORDERS}_.7"
    disk, log = SimulatedDisk(), await memory_log(topics=[ORDERS, again])
    async with open_spooling(disk) as spooling:
        assert spooling.offer(entry(b"old"))
        assert spooling.offer(entry(b"new", incarnation=7))
        spooling.gone.add((ORDERS, 0))
        spooling.live[ORDERS] = live(ORDERS, incarnation=7)
        spooling.replay(log)
        await spooling.wait_empty()
        assert await spooling.bodies(log) == []
        assert await spooling.bodies(log, again) == [b"new"]
    assert len(set_aside(disk)) == 1


async def test_what_a_log_refuses_is_set_aside_and_the_rest_is_sent(
    open_spooling, entry, memory_log, autojump_clock
):
    disk, log = SimulatedDisk(), await memory_log()
    async with open_spooling(disk) as spooling:
        assert spooling.offer(entry(b"1", b"k"))
        assert spooling.offer(entry(b"x" * 2_000_000, b"k"))
        assert spooling.offer(entry(b"3", b"k"))
        spooling.replay(log)
        await spooling.wait_empty()
        assert await spooling.bodies(log) == [b"1", b"3"]
    assert len(set_aside(disk)) == 1


async def test_what_cannot_be_read_back_is_counted_and_the_rest_is_sent(
    open_spooling, entry, memory_log, autojump_clock
):
    disk, log = SimulatedDisk(), await memory_log()
    async with open_spooling(disk) as spooling:
        for number in range(3):
            assert spooling.offer(entry(b"%d" % number, b"k"))
        await trio.sleep(0.1)
        (file,) = (file for name, file in disk.files.items() if name.endswith(".spool"))
        file[file.index(b"id-b'1'")] ^= 1
        spooling.replay(log)
        await spooling.wait_empty()
        assert await spooling.bodies(log) == [b"0", b"2"]
        assert spooling.spool.measures.set_aside["damaged"].value == 1


async def test_while_it_cannot_be_set_aside_it_waits(
    open_spooling, entry, memory_log, autojump_clock
):
    disk, log = SimulatedDisk(), await memory_log()
    async with open_spooling(disk) as spooling:
        spooling.gone.add(("shop.gone", 0))
        assert spooling.offer(entry(b"gone", topic="shop.gone"))
        await trio.sleep(0.1)
        disk.is_full = True
        spooling.replay(log)
        await trio.sleep(60)
        assert spooling.shown("entries") == 1
        disk.is_full = False
        await trio.sleep(11)
        assert spooling.shown("entries") == 0
    (line,) = set_aside(disk)
    assert line["message"]["id"] == "id-b'gone'"


async def test_with_several_datacentres_the_next_one_is_tried_when_the_first_does_not_take_it(
    open_spooling, entry, live, memory_log, autojump_clock
):
    home, away = await memory_log(), await memory_log("dc2", partitions=5)
    home.faults.unavailable_rate = 1.0
    async with open_spooling(SimulatedDisk()) as spooling:
        spooling.live[ORDERS] = live(ORDERS, fallback=True)
        for number in range(30):
            assert spooling.offer(entry(b"%02d" % number, b"k"))
        spooling.replay(home, away)
        await spooling.wait_empty()
        assert await spooling.bodies(home) == []
        assert await spooling.bodies(away) == [b"%02d" % number for number in range(30)]


async def test_the_strictest_acknowledgement_that_was_asked_for_is_kept(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log(partitions=1)
    asked = []
    append = log.append

    async def recorded(topic, partition, batch, ack):
        asked.append(ack)
        return await append(topic, partition, batch, ack)

    log.append = recorded
    async with open_spooling(SimulatedDisk()) as spooling:
        assert spooling.offer(entry(b"1", ack=Ack.LEADER))
        assert spooling.offer(entry(b"2", ack=Ack.ALL))
        await trio.sleep(0.1)
        spooling.replay(log)
        await spooling.wait_empty()
    assert asked == [Ack.ALL]


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
        assert 100 <= failures.value - tried <= 200


@pytest.mark.parametrize("is_known", [True, False])
async def test_what_no_log_has_taken_in_its_time_is_set_aside(
    open_spooling, entry, memory_log, autojump_clock, is_known
):
    disk, log = SimulatedDisk(), await memory_log()
    log.faults.unavailable_rate = 1.0
    async with open_spooling(disk, age_max_ms=600_000) as spooling:
        assert spooling.offer(entry(b"old", b"k"))
        spooling.live = spooling.live if is_known else {}
        spooling.clock.skew_ms = WEEK_MS  # It has waited as long, whatever the wall clock says.
        spooling.replay(log)
        await trio.sleep(595)
        assert spooling.shown("entries") == 1
        await trio.sleep(16)
        assert spooling.shown("entries") == 0
    (line,) = set_aside(disk)
    assert (line["reason"], line["message"]["id"]) == ("expired", "id-b'old'")


async def test_what_seems_old_at_the_start_is_tried_for_a_minute_before_it_is_set_aside(
    open_spooling, entry, memory_log, autojump_clock
):
    """The clock may be wrong, then or now; that the log takes the message is certain."""
    disk, log = SimulatedDisk(), await memory_log()
    async with open_spooling(disk) as spooling:
        for number in range(3):
            assert spooling.offer(entry(b"%d" % number, b"k"))
        await trio.sleep(1)
    log.faults.unavailable_rate = 1.0
    async with open_spooling(disk, ahead_ms=2 * WEEK_MS) as spooling:
        spooling.replay(log)
        await trio.sleep(50)
        log.faults.heal()
        await spooling.wait_empty()
        assert await spooling.bodies(log) == [b"0", b"1", b"2"]
    assert set_aside(disk) == []
