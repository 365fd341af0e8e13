"""The spool is emptied when a log works: all of it, in order for each key, nobody held up."""

import json
import random

import pytest
import trio

from hermes_actors.log.base import TopicSettings
from hermes_actors.model.message import Via, from_record
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.environment.disk import SimulatedDisk

ORDERS = "shop.orders"


def set_aside(disk, reason):
    file = disk.files.get(f"set-aside/{reason}.jsonl")
    return [json.loads(line) for line in bytes(file).splitlines()] if file else []


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
        assert list(disk.files) == ["acknowledged"]


async def test_a_record_says_that_it_came_by_the_spool_and_is_as_it_was(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log(partitions=1)
    appended = []
    log.on_append.append(lambda _topic, record: appended.append(record))
    async with open_spooling(SimulatedDisk()) as spooling:
        original = entry(b'{"a":1}', b"k")
        assert spooling.offer(original)
        await trio.sleep(60)
        spooling.replay(log)
        await spooling.wait_empty()
    (record,) = appended
    assert from_record(record, str) == original.message
    assert original.message.via == Via.SPOOL


async def test_a_crash_sends_again_what_was_not_marked_and_loses_nothing(
    open_spooling, entry, memory_log, autojump_clock
):
    disk, log = SimulatedDisk(write_s=(0.002, 0.002)), await memory_log()
    acknowledged = set()
    for life in range(8):
        async with open_spooling(disk, seed=life, segment_bytes_max=2_000) as spooling:
            spooling.replay(log)
            with trio.move_on_after(0.1):
                for number in range(1_000):
                    spooling.offer(entry(b"%d-%d" % (life, number), b"%d" % (number % 3)))
                    await trio.sleep(0.001)
            acknowledged |= {name.encode() for name, answer in spooling.answers}
    async with open_spooling(disk, seed=99) as spooling:
        spooling.replay(log)
        await spooling.wait_empty()
        bodies = await spooling.bodies(log)
    assert len(acknowledged) > 400
    assert acknowledged <= set(bodies)


async def test_a_log_that_is_down_is_tried_until_it_is_back(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log()
    log.faults.unavailable_rate = 1.0
    async with open_spooling(SimulatedDisk()) as spooling:
        for number in range(50):
            assert spooling.offer(entry(b"%d" % number, b"k"))
        spooling.replay(log)
        await trio.sleep(600)
        assert spooling.shown("entries") == 50
        assert spooling.spool.measures.replay_failures["unavailable"].value > 0
        log.faults.unavailable_rate = 0.0
        await trio.sleep(31)
        await spooling.wait_empty()
        assert sorted(map(int, await spooling.bodies(log))) == list(range(50))


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
        (left,) = spooling.spool.index.queues
        assert (left.topic, left.count) == (names[0], 20)


async def test_one_partition_that_stays_away_holds_up_no_other(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log(partitions=2)
    append = log.append

    async def append_but_to_the_first(topic, partition, batch, ack):
        if partition == 0:
            await trio.sleep_forever()
        return await append(topic, partition, batch, ack)

    log.append = append_but_to_the_first
    async with open_spooling(SimulatedDisk()) as spooling:
        for number in range(100):
            assert spooling.offer(entry(b"%d" % number, b"key%d" % number))
        spooling.replay(log)
        await trio.sleep(1)
        stored = await spooling.stored(log)
        assert len(stored[1]) > 30
        assert spooling.spool.index.entries == 100 - len(stored[1])


async def test_what_may_still_be_stored_is_not_sent_before_its_append_has_ended(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log(partitions=1)
    async with open_spooling(SimulatedDisk(), late_acknowledgement_wait_ms=10_000) as spooling:
        assert spooling.offer(entry(b"stored", b"a"), sent_as="stored")
        assert spooling.offer(entry(b"refused", b"b"), sent_as="refused")
        assert spooling.offer(entry(b"behind", b"b"))
        assert spooling.offer(entry(b"silent", b"c"), sent_as="silent")
        spooling.replay(log)
        await trio.sleep(2)
        assert await spooling.bodies(log) == []
        spooling.spool.concluded("stored", [True])
        spooling.spool.concluded("refused", [False])
        await trio.sleep(1)
        assert await spooling.bodies(log) == [b"refused", b"behind"]
        await trio.sleep(8)
        assert await spooling.bodies(log) == [b"refused", b"behind", b"silent"]


async def test_an_append_that_ends_late_still_tells_of_the_messages_that_were_not_sent_meanwhile(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log(partitions=1)
    async with open_spooling(SimulatedDisk(), late_acknowledgement_wait_ms=1_000) as spooling:
        bodies = [b"%d" % number for number in range(1_000)]
        assert spooling.offer(*[entry(body) for body in bodies], sent_as="late")
        await trio.sleep(2)
        append, calls = log.append, []

        async def append_slowly(*arguments):
            calls.append(len(arguments[2]))
            if len(calls) == 2:
                # The first few were sent; the append of all of them ends now.
                spooling.spool.concluded("late", [True] * 1_000)
            return await append(*arguments)

        log.append = append_slowly
        spooling.replay(log)
        await spooling.wait_empty()
        sent = calls[0] + calls[1]
        assert len(await spooling.bodies(log)) == sent < 1_000
        assert spooling.spool.measures.late_acknowledgements.value == 1_000 - calls[0]


async def test_what_turns_out_to_be_stored_while_it_is_read_back_is_not_sent(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log(partitions=1)
    async with open_spooling(SimulatedDisk(), late_acknowledgement_wait_ms=1_000) as spooling:
        spool = spooling.spool
        read = spool.read

        async def read_slowly(batch):
            found = await read(batch)
            spool.concluded("late", [True])
            return found

        spool.read = read_slowly
        assert spooling.offer(entry(b"late", b"a"), sent_as="late")
        assert spooling.offer(entry(b"behind", b"a"))
        # Its wait is over before its append has ended.
        await trio.sleep(2)
        spooling.replay(log)
        await spooling.wait_empty()
        assert await spooling.bodies(log) == [b"behind"]


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
    (line,) = set_aside(disk, "topic_gone")
    assert (line["topic"], line["reason"]) == ("shop.gone", "topic_gone")
    assert line["message"]["id"] == "id-b'gone'"


async def test_a_topic_that_is_only_not_known_yet_is_waited_for(
    open_spooling, entry, live, memory_log, autojump_clock
):
    disk, log = SimulatedDisk(), await memory_log(topics=["shop.new"])
    async with open_spooling(disk) as spooling:
        assert spooling.offer(entry(b"1", topic="shop.new"))
        spooling.replay(log)
        await trio.sleep(60)
        assert spooling.shown("entries") == 1
        spooling.live["shop.new"] = live("shop.new")
        await trio.sleep(1.5)
        assert await spooling.bodies(log, "shop.new") == [b"1"]
    assert set_aside(disk, "topic_gone") == []


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
    assert len(set_aside(disk, "topic_gone")) == 1


async def test_a_topic_that_this_node_knows_an_older_life_of_is_waited_for(
    open_spooling, entry, live, memory_log, autojump_clock
):
    again = f"{ORDERS}_.7"
    log = await memory_log(topics=[ORDERS, again])
    async with open_spooling(SimulatedDisk()) as spooling:
        assert spooling.offer(entry(b"new", incarnation=7))
        spooling.replay(log)
        await trio.sleep(60)
        assert spooling.shown("entries") == 1
        spooling.live[ORDERS] = live(ORDERS, incarnation=7)
        await trio.sleep(1.5)
        assert await spooling.bodies(log, again) == [b"new"]


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
    assert len(set_aside(disk, "refused")) == 1


async def test_what_cannot_be_read_back_is_set_aside_and_the_rest_is_sent(
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
        assert spooling.spool.measures.set_aside["unreadable"].value == 1
    assert [name for name in disk.files if name.startswith("set-aside/unreadable")] != []


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
        await trio.sleep(31)
        assert spooling.shown("entries") == 0
    # Behind what was written of it while the disk was full, on a line of its own.
    lines = bytes(disk.files["set-aside/topic_gone.jsonl"]).splitlines()
    assert json.loads(lines[-1])["message"]["id"] == "id-b'gone'"


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


async def test_what_falls_back_does_not_wait_for_a_log_that_hangs_but_once(
    open_spooling, entry, live, memory_log, autojump_clock
):
    own, other = await memory_log("dc1"), await memory_log("dc2", partitions=5)
    own.faults.silent = own.faults.reads_silent = True
    async with open_spooling(SimulatedDisk()) as spooling:
        spooling.live = {ORDERS: live(ORDERS, fallback=True)}
        for number in range(200):
            assert spooling.offer(entry(b"%03d" % number, b"k"))
        spooling.replay(own, other)
        await trio.sleep(1.5)
        assert await spooling.bodies(other) == [b"%03d" % number for number in range(200)]
        assert spooling.shown("entries") == 0


async def test_a_log_that_was_away_is_used_again_soon(
    open_spooling, entry, live, memory_log, autojump_clock
):
    own, other = await memory_log("dc1"), await memory_log("dc2")
    own.faults.unavailable_rate = 1.0
    async with open_spooling(SimulatedDisk()) as spooling:
        spooling.live = {ORDERS: live(ORDERS, fallback=True)}
        spooling.replay(own, other)
        for number in range(600):
            if number == 100:
                own.faults.unavailable_rate = 0.0
            assert spooling.offer(entry(b"%03d" % number, b"%d" % (number % 7)))
            await trio.sleep(0.01)
        await spooling.wait_empty()
        assert len(await spooling.bodies(own)) > 100
        # What comes as the log comes back may go to either.
        assert len(await spooling.bodies(other)) >= 98


async def test_a_topic_that_got_more_partitions_gets_everything(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log(partitions=2)
    log.faults.unavailable_rate = 1.0
    async with open_spooling(SimulatedDisk()) as spooling:
        for number in range(50):
            assert spooling.offer(entry(b"%d" % number, b"key%d" % number))
        spooling.replay(log)
        await trio.sleep(5)
        log.faults.unavailable_rate = 0.0
        await log.alter_topic(ORDERS, TopicSettings(partitions=9))
        await spooling.wait_empty()
        assert sorted(map(int, await spooling.bodies(log))) == list(range(50))


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


async def test_a_replayer_that_fails_goes_on_after_its_restart(
    open_spooling, entry, memory_log, autojump_clock
):
    log = await memory_log()
    log.faults.delay_s = (0.05, 0.2)
    async with open_spooling(SimulatedDisk()) as spooling:
        for number in range(500):
            assert spooling.offer(entry(b"%d" % number, b"%d" % (number % 5)))
        spooling.replay(log)
        for _ in range(4):
            await trio.sleep(0.4)
            spooling.supervisor.crash("replayer")
        await spooling.wait_empty()
        assert {int(body) for body in await spooling.bodies(log)} == set(range(500))


@pytest.mark.parametrize("seed", range(5))
async def test_new_messages_come_while_old_ones_go_and_keys_stay_in_order(
    open_spooling, entry, memory_log, autojump_clock, seed
):
    rng = random.Random(seed)
    disk, log = SimulatedDisk(write_s=(0.003, 0.003)), await memory_log()
    log.faults.delay_s = (0.0, 0.02)
    log.faults.unavailable_rate = 0.3
    async with open_spooling(disk, segment_bytes_max=3_000) as spooling:
        spooling.replay(log)
        for number in range(300):
            assert spooling.offer(entry(b"%03d" % number, b"%d" % (number % 4)))
            await trio.sleep(rng.random() * 0.01)
        await spooling.wait_empty()
        bodies = [int(body) for body in await spooling.bodies(log)]
        assert sorted(bodies) == list(range(300))
        for key in range(4):
            mine = [number for number in bodies if number % 4 == key]
            assert mine == sorted(mine)
