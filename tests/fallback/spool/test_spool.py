"""A yes of the spool is on the disk; a no is at once; nothing it has said yes to is forgotten."""

import pytest
import trio
import trio.testing

from hermes_actors.fallback.spool.format import decode_entry
from hermes_actors.fallback.spool.index import Place
from hermes_actors.fallback.spool.measures import SpoolMeasures
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.telemetry.metrics import Metrics, render
from hermes_chaos.sim.environment.disk import SimulatedDisk


async def bodies_waiting(spool: Spool) -> list[bytes]:
    waiting = [each for queue in spool.index.queues for each in everything(queue)]
    return [entry.message.body for _, entry in await spool.read(waiting) if entry is not None]


def everything(queue):
    chosen = [
        w
        for lane in queue.lanes
        for w in queue.select(lane, 1e9, records_max=10**6, bytes_max=10**9)[0]
    ]
    return sorted(chosen, key=lambda each: each.sequence)


async def test_an_offer_is_answered_when_it_is_on_the_disk_and_survives_a_crash(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk(write_s=(0.01, 0.01))
    async with open_spooling(disk) as spooling:
        assert spooling.offer(entry(b"1", b"k"))
        assert spooling.answers == []
        assert spooling.spool.index.holds("shop.orders", b"k")
        await trio.sleep(0.02)
        assert spooling.answers == [("1", "kept")]
    async with open_spooling(disk, seed=2) as spooling:
        assert await bodies_waiting(spooling.spool) == [b"1"]
        assert spooling.spool.index.holds("shop.orders", b"k")
        assert spooling.shown("entries") == 1


async def test_what_waits_while_a_write_is_under_way_is_one_write(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk(write_s=(0.01, 0.01))
    async with open_spooling(disk) as spooling:
        assert spooling.offer(entry(b"first"))
        await trio.sleep(0.005)
        for number in range(100):
            assert spooling.offer(entry(b"%d" % number))
        await trio.sleep(0.016)
        assert len(spooling.answers) == 101
        assert spooling.spool.measures.write.count == 2


async def test_a_killed_node_has_what_it_had_acknowledged_and_perhaps_more(
    open_spooling, entry, autojump_clock
):
    for kill_at_ms in range(1, 40, 3):
        disk = SimulatedDisk(write_s=(0.004, 0.004))
        async with open_spooling(disk, seed=kill_at_ms, segment_bytes_max=600) as spooling:
            with trio.move_on_after(kill_at_ms / 1_000):
                for number in range(100):
                    spooling.offer(entry(b"%d" % number))
                    await trio.sleep(0.001)
            acknowledged = [name.encode() for name, _ in spooling.answers]
        async with open_spooling(disk, seed=99) as spooling:
            found = await bodies_waiting(spooling.spool)
            assert found[: len(acknowledged)] == acknowledged
            assert len(found) >= len(acknowledged)


async def test_a_full_disk_refuses_and_loses_nothing_and_is_used_again_when_there_is_room(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk()
    async with open_spooling(disk) as spooling:
        assert spooling.offer(entry(b"1"))
        await trio.sleep(0.1)
        disk.is_full = True
        assert spooling.offer(entry(b"2", b"k"))
        await trio.sleep(0.1)
        assert spooling.answers == [("1", "kept"), ("2", "full")]
        assert not spooling.spool.index.holds("shop.orders", b"k")
        assert not spooling.offer(entry(b"3")), "what cannot be written is refused at once"
        assert "no space left" in spooling.spool.trouble
        disk.is_full = False
        await trio.sleep(6)
        assert spooling.offer(entry(b"4"))
        await trio.sleep(0.1)
        assert spooling.answers[-1] == ("4", "kept")
        assert spooling.spool.trouble == ""
        assert await bodies_waiting(spooling.spool) == [b"1", b"4"]
        assert spooling.spool.measures.refused["full"].value == 1
        assert spooling.spool.measures.refused["disk"].value == 1
    async with open_spooling(disk, seed=2) as spooling:
        assert await bodies_waiting(spooling.spool) == [b"1", b"4"]


async def test_a_disk_that_does_not_answer_is_a_refusal_within_the_write_time_out(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk()
    async with open_spooling(disk, write_timeout_ms=500) as spooling:
        disk.slow_s = 60.0
        assert spooling.offer(entry(b"1"))
        await trio.sleep(0.6)
        assert spooling.answers == [("1", "slow")]


async def test_a_process_that_stood_still_does_not_take_its_disk_for_slow(
    open_spooling, entry, autojump_clock
):
    async with open_spooling(SimulatedDisk(write_s=(0.3, 0.3))) as spooling:
        assert spooling.offer(entry(b"1", b"k"))
        await trio.testing.wait_all_tasks_blocked()
        autojump_clock.jump(60)
        await trio.sleep(0.01)
        assert spooling.answers == [("1", "kept")]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"disk_bytes_max": 2_000}, "full"),
        ({"entries_max": 5}, "full"),
        ({"queued_bytes_max": 2_000}, "queue"),
    ],
)
async def test_each_bound_refuses_at_once(open_spooling, entry, autojump_clock, settings, reason):
    async with open_spooling(SimulatedDisk(), **settings) as spooling:
        accepted = 0
        while spooling.offer(entry(b"x" * 100)):
            accepted += 1
        assert 3 <= accepted <= 6
        assert spooling.spool.measures.refused[reason].value == 1
        await trio.sleep(0.1)
        assert [outcome for _, outcome in spooling.answers] == ["kept"] * accepted


async def test_several_entries_are_kept_together_or_not_at_all(
    open_spooling, entry, autojump_clock
):
    async with open_spooling(SimulatedDisk(), entries_max=3) as spooling:
        assert spooling.offer(entry(b"1"), entry(b"2"))
        assert not spooling.offer(entry(b"3"), entry(b"4"))
        assert spooling.offer(entry(b"5"))
        await trio.sleep(0.1)
        assert await bodies_waiting(spooling.spool) == [b"1", b"2", b"5"]


async def test_a_late_acknowledgement_settles_it_whether_it_is_written_already_or_not(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk(write_s=(0.01, 0.01))
    async with open_spooling(disk) as spooling:
        spool = spooling.spool
        assert spooling.offer(entry(b"1", b"a"), sent_as="one")
        spool.concluded("one", [True])
        assert spooling.offer(entry(b"2", b"b"), sent_as="two")
        await trio.sleep(0.1)
        spool.concluded("two", [True])
        spool.concluded("never seen", [True])
        assert spooling.answers == [("1", "kept"), ("2", "kept")]
        assert spool.index.entries == 0
        assert not spool.index.holds("shop.orders", b"a")
        assert not spool.index.holds("shop.orders", b"b")
        assert spool.measures.late_acknowledgements.value == 2


async def test_an_emptied_spool_leaves_no_segment_when_it_is_stopped(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk()
    async with open_spooling(disk) as spooling:
        for number in range(10):
            assert spooling.offer(entry(b"%d" % number), sent_as=str(number))
        await trio.sleep(0.1)
        for number in range(10):
            spooling.spool.concluded(str(number), [True])
        await spooling.supervisor.stop("spool writer")
        assert list(disk.files) == ["acknowledged"]
        assert not spooling.offer(entry(b"late"))


async def test_what_waits_when_the_spool_is_stopped_is_written_first(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk(write_s=(0.01, 0.01))
    async with open_spooling(disk) as spooling:
        for number in range(5):
            assert spooling.offer(entry(b"%d" % number))
        await spooling.supervisor.stop("spool writer")
        assert spooling.answers == [(str(number), "kept") for number in range(5)]
    async with open_spooling(disk, seed=2) as spooling:
        assert len(await bodies_waiting(spooling.spool)) == 5


async def test_a_writer_that_fails_answers_what_it_had_and_goes_on(
    open_spooling, entry, autojump_clock
):
    disk = SimulatedDisk(write_s=(0.01, 0.01))
    async with open_spooling(disk) as spooling:
        assert spooling.offer(entry(b"1", b"k"))
        await trio.sleep(0.005)
        assert spooling.offer(entry(b"2"))
        spooling.supervisor.crash("spool writer")
        await trio.sleep(0.001)
        assert sorted(spooling.answers) == [("1", "closed"), ("2", "closed")]
        assert not spooling.offer(entry(b"3"))
        assert not spooling.spool.index.holds("shop.orders", b"k")
        await trio.sleep(2)
        assert spooling.offer(entry(b"4"))
        await trio.sleep(0.1)
        assert spooling.answers[-1] == ("4", "kept")


async def test_little_that_waits_long_does_not_keep_the_space_of_much(
    open_spooling, entry, autojump_clock
):
    settings = {"segment_bytes_max": 2_000, "disk_bytes_max": 20_000}
    disk = SimulatedDisk()
    async with open_spooling(disk, **settings) as spooling:
        spool = spooling.spool
        for number in range(400):
            is_old = number % 20 == 0
            assert spooling.offer(
                entry(b"%d" % number, b"old" if is_old else None),
                sent_as=None if is_old else str(number),
            ), f"full at {number}"
            await trio.sleep(0.01)
            spool.concluded(str(number), [True])
        assert spool.index.entries == 20
        expected = [b"%d" % number for number in range(0, 400, 20)]
        assert await bodies_waiting(spool) == expected
    async with open_spooling(disk, seed=2, **settings) as spooling:
        found = await bodies_waiting(spooling.spool)
        # In their order, though they were copied behind younger ones.
        assert [body for body in found if body in expected] == expected


async def test_what_is_stored_while_it_is_copied_does_not_wait_in_the_copy(
    open_spooling, entry, autojump_clock, monkeypatch
):
    settings = {"segment_bytes_max": 2_000, "disk_bytes_max": 20_000}
    disk = SimulatedDisk()
    async with open_spooling(disk, **settings) as spooling:
        spool = spooling.spool
        stored: list[bytes] = []
        append = spool.store.append

        async def append_and_conclude(payloads: list[bytes]) -> list[Place]:
            places = await append(payloads)
            if not spool.index.being_written and not stored:
                stored.append(decode_entry(payloads[0])[1].message.body)
                spool.concluded(stored[0].decode(), [True])
            return places

        monkeypatch.setattr(spool.store, "append", append_and_conclude)
        for number in range(400):
            assert spooling.offer(entry(b"%d" % number), sent_as=str(number))
            await trio.sleep(0.01)
            if stored:
                break
            if number % 20:
                spool.concluded(str(number), [True])
        (copied,) = stored
        await spooling.supervisor.stop("spool writer")
        waiting = await bodies_waiting(spool)
        assert waiting
        assert copied not in waiting
        async with open_spooling(disk, seed=2, **settings) as restarted:
            assert await bodies_waiting(restarted.spool) == waiting


async def test_the_age_of_the_oldest_is_shown(open_spooling, entry, autojump_clock):
    async with open_spooling(SimulatedDisk()) as spooling:
        assert spooling.shown("oldest_age_s") == 0
        assert spooling.offer(entry(b"1"))
        await trio.sleep(30)
        assert spooling.shown("oldest_age_s") == pytest.approx(30, abs=0.1)
        assert spooling.shown("bytes") > 0
        assert spooling.shown("disk_bytes") > spooling.shown("bytes")
        assert spooling.shown("written_total") == 1


def test_what_may_go_wrong_is_counted_as_zero_from_the_start() -> None:
    metrics = Metrics("hermes_frontend")
    SpoolMeasures(metrics)
    shown = render([metrics]).decode()
    for series in ('refused_total{reason="full"}', 'set_aside_total{reason="expired"}'):
        assert f"hermes_frontend_spool_{series} 0" in shown
