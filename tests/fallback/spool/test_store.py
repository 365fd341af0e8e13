"""What the store has returned for is there at the next start, whatever the disk does."""

import errno
import os
import random
import stat
import zlib
from contextlib import asynccontextmanager

import pytest
import trio

from hermes_actors.errors import DamageFound, StartupError
from hermes_actors.fallback.spool.format import (
    HEADER_BYTES,
    SegmentName,
    decode_entry,
    encode_entry,
    header,
)
from hermes_actors.fallback.spool.store import SpoolUnavailable, open_segment_store
from hermes_actors.runtime.clock import IdSource, seeded_ids
from hermes_chaos.sim.environment.disk import Mount, SimulatedDisk, open_store_on

SEGMENT_BYTES = 1_000


@pytest.fixture(params=["folder", "memory"])
def open_store(request, tmp_path):
    """`open_store()`: the store of one process after another, on one disk."""
    disk = SimulatedDisk()
    lives = iter(range(1_000))

    @asynccontextmanager
    async def open_one():
        if request.param == "folder":
            async with open_segment_store(
                tmp_path / "spool", IdSource(), segment_bytes_max=SEGMENT_BYTES
            ) as store:
                yield store
        else:
            rng = random.Random(next(lives))
            mounted = Mount(disk)
            async with open_store_on(
                mounted, seeded_ids(rng), segment_bytes_max=SEGMENT_BYTES
            ) as store:
                yield store
            mounted.die()

    return open_one


def payloads(entry, *bodies, first=1):
    return [encode_entry(number, entry(body, b"k")) for number, body in enumerate(bodies, first)]


async def test_what_was_appended_is_found_by_the_next_process_in_order(open_store, entry):
    async with open_store() as store:
        assert (await store.load()).entries == []
        first = await store.append(payloads(entry, b"1", b"2"))
        await store.append(payloads(entry, b"3", first=3))
        assert [decode_entry(p)[1].message.body for p in await store.read(first)] == [b"1", b"2"]
    async with open_store() as store:
        found = (await store.load()).entries
        assert [each.sequence for each in found] == [1, 2, 3]
        assert {each.key for each in found} == {b"k"}
        read = await store.read([each.place for each in found])
        assert [decode_entry(p)[1].message.body for p in read] == [b"1", b"2", b"3"]


async def test_what_is_done_is_not_found_again(open_store, entry):
    async with open_store() as store:
        await store.load()
        places = await store.append(payloads(entry, b"1", b"2", b"3"))
        await store.mark_done(places[:1])
        await store.mark_done(places[2:])
    async with open_store() as store:
        sequences = {each.sequence for each in (await store.load()).entries}
        # A crash of the machine may undo marks, never an entry.
        assert 2 in sequences
        assert sequences <= {1, 2, 3}


async def test_segments_end_at_their_size_and_are_deleted_with_their_marks(open_store, entry):
    async with open_store() as store:
        await store.load()
        places = []
        for number in range(8):
            places += await store.append(payloads(entry, b"x" * 300, first=number))
        assert len({place.segment for place in places}) >= 3
        assert store.size_bytes > 8 * 300
        await store.mark_done(places[:1])
        for number, _size in store.sealed():
            await store.delete(number)
        await store.seal()
        for number, _size in store.sealed():
            await store.delete(number)
        assert store.size_bytes == 0
        assert await store.read(places[:1]) == [None]
    async with open_store() as store:
        assert (await store.load()).entries == []


async def test_a_process_that_starts_writes_to_a_segment_of_its_own(open_store, entry):
    async with open_store() as store:
        await store.load()
        (before,) = await store.append(payloads(entry, b"1"))
    async with open_store() as store:
        await store.load()
        (after,) = await store.append(payloads(entry, b"2", first=2))
        assert after.segment > before.segment


async def test_an_entry_that_lies_in_two_segments_is_found_once(open_store, entry):
    async with open_store() as store:
        await store.load()
        await store.append(payloads(entry, b"1", b"2"))
        await store.seal()
        await store.append(payloads(entry, b"1"))
    async with open_store() as store:
        assert [each.sequence for each in (await store.load()).entries] == [1, 2]


@pytest.fixture
def open_folder_store(tmp_path):
    def open_one(**settings):
        settings = {"segment_bytes_max": SEGMENT_BYTES, **settings}
        return open_segment_store(tmp_path / "spool", IdSource(), **settings)

    return open_one


async def test_only_the_owner_may_read_the_files(open_folder_store, tmp_path, entry):
    async with open_folder_store() as store:
        await store.load()
        (place,) = await store.append(payloads(entry, b"secret"))
        await store.mark_done([place])
        await store.set_aside("expired", b"{}\n")
    folder = tmp_path / "spool"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_a_folder_that_another_process_has_is_an_error_with_its_way_out(
    open_folder_store, tmp_path, autojump_clock
):
    async with open_folder_store():
        with pytest.raises(StartupError, match=rf"spool\.directory: .*pid {os.getpid()}.*enabled"):
            async with open_folder_store():
                pytest.fail("two have it")
    async with open_folder_store() as store:
        assert (await store.load()).entries == []


async def test_a_folder_that_cannot_be_made_is_an_error_with_its_way_out(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match=r"spool\.directory: .*enabled = false"):
        async with open_segment_store(
            tmp_path / "file" / "spool", IdSource(), segment_bytes_max=SEGMENT_BYTES
        ):
            pytest.fail("a file is no folder")


async def test_a_damaged_entry_is_set_aside_once_when_its_loss_is_accepted(
    open_folder_store, tmp_path, entry
):
    async with open_folder_store() as store:
        await store.load()
        places = await store.append(payloads(entry, b"1", b"2", b"3", b"4"))
    (segment,) = (tmp_path / "spool").glob("*.spool")
    data = bytearray(segment.read_bytes())
    data[places[1].at + 40] ^= 1
    segment.write_bytes(bytes(data[:-3]))
    async with open_folder_store() as store:
        with pytest.raises(DamageFound, match="2 acknowledged messages are missing"):
            await store.load()
    assert not (tmp_path / "spool" / "set-aside").exists(), "looking changes nothing"
    for is_first in (True, False):
        async with open_folder_store(accepts_damage=is_first) as store:
            loaded = await store.load()
            assert [each.sequence for each in loaded.entries] == [1, 3]
            assert (loaded.set_aside["corrupt"], loaded.torn) == (int(is_first), 1)
    (kept,) = (tmp_path / "spool" / "set-aside").iterdir()
    assert kept.read_bytes() == bytes(data[places[1].at : places[2].at])


async def test_a_segment_whose_header_is_damaged_gives_its_entries(
    open_folder_store, tmp_path, entry
):
    async with open_folder_store() as store:
        await store.load()
        await store.append(payloads(entry, b"1"))
    (segment,) = (tmp_path / "spool").glob("*.spool")
    segment.write_bytes(bytes(HEADER_BYTES) + segment.read_bytes()[HEADER_BYTES:])
    async with open_folder_store() as store:
        loaded = await store.load()
        assert [each.sequence for each in loaded.entries] == [1]
        assert loaded.set_aside["corrupt"] == 1


async def test_a_segment_of_a_newer_version_stops_the_start(open_folder_store, tmp_path):
    name = SegmentName(1, "00112233445566ff")
    start = bytearray(header(name.salt)[:-4])
    start[8] = 9
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / name.entries).write_bytes(
        bytes(start) + zlib.crc32(start).to_bytes(4, "little")
    )
    async with open_folder_store() as store:
        with pytest.raises(StartupError, match="newer version"):
            await store.load()


async def test_what_is_whole_but_no_entry_is_set_aside(open_folder_store, tmp_path):
    async with open_folder_store() as store:
        await store.load()
        await store.append([b"no entry"])
    async with open_folder_store() as store:
        loaded = await store.load()
        assert (loaded.entries, loaded.set_aside["undecodable"]) == ([], 1)
    (kept,) = (tmp_path / "spool" / "set-aside").iterdir()
    assert kept.read_bytes() == b"no entry"


async def test_marks_left_without_their_segment_are_deleted(open_folder_store, tmp_path, entry):
    async with open_folder_store() as store:
        await store.load()
        (place,) = await store.append(payloads(entry, b"1"))
        await store.mark_done([place])
    (segment,) = (tmp_path / "spool").glob("*.spool")
    segment.unlink()
    async with open_folder_store() as store:
        assert (await store.load()).entries == []
    assert list((tmp_path / "spool").glob("*.done")) == []


async def test_after_a_failed_write_the_next_goes_to_another_segment(entry):
    disk = SimulatedDisk()
    mounted = Mount(disk)
    async with open_store_on(
        mounted, seeded_ids(random.Random(1)), segment_bytes_max=10_000
    ) as store:
        await store.load()
        (before,) = await store.append(payloads(entry, b"1"))
        disk.is_full = True
        with pytest.raises(SpoolUnavailable) as caught:
            await store.append(payloads(entry, b"2", first=2))
        assert caught.value.reason == "full"
        disk.is_full = False
        (after,) = await store.append(payloads(entry, b"3", first=3))
        assert after.segment > before.segment
        mounted.die()
    async with open_store_on(
        Mount(disk), seeded_ids(random.Random(2)), segment_bytes_max=10_000
    ) as store:
        # Cut off again, what was refused is not there.
        assert [each.sequence for each in (await store.load()).entries] == [1, 3]


async def test_an_input_output_error_is_said_to_be_the_disks(entry):
    disk = SimulatedDisk()
    async with open_store_on(
        Mount(disk), seeded_ids(random.Random(1)), segment_bytes_max=10_000
    ) as store:
        await store.load()
        disk.is_failing = True
        with pytest.raises(SpoolUnavailable) as caught:
            await store.append(payloads(entry, b"1"))
        assert caught.value.reason == "disk"


async def test_marks_behind_a_header_that_was_cut_short_count(open_folder_store, tmp_path, entry):
    async with open_folder_store() as store:
        await store.load()
        places = await store.append(payloads(entry, b"1", b"2"))
        await store.mark_done(places)
    (marks,) = (tmp_path / "spool").glob("*.done")
    # As a disk leaves it that was full in the middle of the first marks.
    marks.write_bytes(marks.read_bytes()[:10])
    async with open_folder_store() as store:
        assert len((await store.load()).entries) == 2
        await store.mark_done(places)
    async with open_folder_store() as store:
        assert (await store.load()).entries == []


async def test_a_write_that_was_given_up_is_never_followed_in_its_segment(entry, autojump_clock):
    disk = SimulatedDisk(write_s=(1.0, 1.0))
    async with open_store_on(
        Mount(disk), seeded_ids(random.Random(1)), segment_bytes_max=10_000
    ) as store:
        await store.load()
        (before,) = await store.append(payloads(entry, b"0", first=0))
        with trio.move_on_after(0.5):
            await store.append(payloads(entry, b"1"))
        (after,) = await store.append(payloads(entry, b"2", first=2))
        assert after.segment > before.segment


def test_a_crash_leaves_what_was_synced_and_a_part_of_the_rest():
    lengths = set()
    for seed in range(50):
        disk = SimulatedDisk(random.Random(seed))
        disk.append("f", b"synced", syncs=True)
        disk.append("f", b"not yet", syncs=False)
        Mount(disk).die()
        content = disk.read("f")
        assert b"syncednot yet".startswith(content)
        assert content.startswith(b"synced")
        lengths.add(len(content))
    assert len(lengths) > 4


async def test_a_dead_process_changes_nothing():
    mount = Mount(SimulatedDisk())
    mount.die()
    with pytest.raises(OSError, match="dead"):
        await mount.write(lambda: mount.disk.append("f", b"x", syncs=True))
    assert mount.disk.names() == []


def test_a_full_disk_takes_a_part_and_refuses():
    disk = SimulatedDisk()
    disk.is_full = True
    with pytest.raises(OSError, match="no space left") as caught:
        disk.append("f", b"content", syncs=True)
    assert caught.value.errno == errno.ENOSPC
    assert b"content".startswith(disk.read("f"))


async def test_places_are_read_in_any_order_near_or_far_and_damage_hides_no_other(
    open_folder_store, tmp_path, entry
):
    bodies = [b"%d" % number + b"x" * (number % 5 * 9_000) for number in range(60)]
    async with open_folder_store(segment_bytes_max=200_000) as store:
        await store.load()
        places = []
        for number, body in enumerate(bodies):
            places += await store.append(payloads(entry, body, first=number))
        assert len({place.segment for place in places}) > 3
        chosen = [0, 1, 2, 7, 9, 59, 58, 30, 31, 30, 12, 45, 46, 47]
        (segment,) = (tmp_path / "spool").glob(f"{places[1].segment:010}-*.spool")
        data = bytearray(segment.read_bytes())
        data[places[1].at + 30] ^= 1
        segment.write_bytes(data)
        read = await store.read([places[number] for number in chosen])
        assert [None if p is None else decode_entry(p)[1].message.body for p in read] == [
            None if number == 1 else bodies[number] for number in chosen
        ]


async def test_a_read_that_fails_for_want_of_something_else_is_tried_again(entry):
    disk = SimulatedDisk()
    mounted = Mount(disk)
    read, failures = disk.read, [errno.EMFILE, errno.EIO]

    def failing(name, at=0, size_bytes=-1):
        if failures:
            raise OSError(failures.pop(0), "no")
        return read(name, at, size_bytes)

    async with open_store_on(
        mounted, seeded_ids(random.Random(1)), segment_bytes_max=10_000
    ) as store:
        await store.load()
        places = await store.append(payloads(entry, b"1", b"2"))
        disk.read = failing
        with pytest.raises(SpoolUnavailable):
            await store.read(places)
        # A bad sector below one entry is not one below its neighbours.
        assert None not in await store.read(places)


async def test_damage_that_cannot_be_set_aside_stays_where_it_is_until_the_next_start(entry):
    disk = SimulatedDisk()

    def open_one(seed):
        return open_store_on(
            Mount(disk),
            seeded_ids(random.Random(seed)),
            segment_bytes_max=10_000,
            accepts_damage=True,
        )

    async with open_one(1) as store:
        await store.load()
        places = await store.append(payloads(entry, b"1", b"2"))
    (file,) = (file for name, file in disk.files.items() if name.endswith(".spool"))
    file[places[0].at + 40] ^= 1
    disk.is_full = True
    async with open_one(2) as store:
        loaded = await store.load()
        assert [each.sequence for each in loaded.entries] == [2]
        assert loaded.set_aside["corrupt"] == 0
        assert store.sealed() == []
    disk.is_full = False
    async with open_one(3) as store:
        loaded = await store.load()
        assert loaded.set_aside["corrupt"] == 1
        assert len(store.sealed()) == 1
