"""What a spool lost while nobody had it open is told at its start, and nothing else is."""

import errno
import random
import re
import shutil

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_actors.errors import DamageFound, StartupError
from hermes_actors.fallback.spool.format import TABLE_NAME, SpoolEntry, encode_entry, header
from hermes_actors.fallback.spool.store import SpoolUnavailable, open_segment_store
from hermes_actors.model.message import Message
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import IdSource, seeded_ids
from hermes_chaos.sim.environment.disk import Mount, SimulatedDisk, open_store_on

SEGMENT_BYTES = 1_000


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "spool"


def opened(folder, **settings):
    return open_segment_store(folder, IdSource(), segment_bytes_max=SEGMENT_BYTES, **settings)


def payload(number):
    message = Message(str(number), b"x" * (number % 7 * 20), 1, b"k")
    return encode_entry(number, SpoolEntry("t", "t", 0, Ack.LEADER, 1, message))


async def fill(folder, count=30):
    """Keep so many messages, each by a write of its own; a process that is killed leaves that."""
    async with opened(folder) as store:
        await store.load()
        return [(await store.append([payload(number)]))[0] for number in range(count)]


async def refusal(folder):
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    async with opened(folder) as store:
        with pytest.raises(DamageFound) as caught:
            await store.load()
    assert before == {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert "--accept-damage" in caught.value.message
    return caught.value.message


async def accept(folder):
    async with opened(folder, accepts_damage=True) as store:
        loaded = await store.load()
    async with opened(folder) as store:
        # It was a single act.
        assert len((await store.load()).entries) == len(loaded.entries)
    return [each.sequence for each in loaded.entries], loaded.missing


def segments(folder):
    return sorted(folder.glob("*.spool"))


@pytest.mark.parametrize("how", ["to nothing", "to its header", "in the middle", "away"])
async def test_segments_that_are_cut_or_gone_refuse_the_start(folder, how):
    await fill(folder)
    assert len(segments(folder)) > 3
    for file in segments(folder):
        if how == "away":
            file.unlink()
        else:
            left = {"to nothing": 0, "to its header": 24}.get(how, file.stat().st_size // 2)
            file.write_bytes(file.read_bytes()[:left])
    message = await refusal(folder)
    found, missing = await accept(folder)
    assert len(found) + missing == 30
    assert f"{missing} acknowledged messages are missing" in message
    assert found == [] or how == "in the middle"
    assert ("is gone, with" if how == "away" else "are there") in message


async def test_a_damaged_message_refuses_the_start_and_is_set_aside_when_that_is_accepted(folder):
    places = await fill(folder, 3)
    (file,) = segments(folder)
    data = bytearray(file.read_bytes())
    data[places[1].at + 40] ^= 1
    file.write_bytes(data)
    assert "1 message of" in await refusal(folder)
    assert await accept(folder) == ([0, 2], 1)
    assert len(list((folder / "set-aside").glob("corrupt-*"))) == 1


async def test_what_was_sent_already_is_not_missed(folder):
    places = await fill(folder)
    async with opened(folder) as store:
        await store.load()
        await store.mark_done([place for place in places if place.segment == 2])
        await store.delete(1)
    segments(folder)[0].unlink()
    async with opened(folder) as store:
        found = {each.sequence for each in (await store.load()).entries}
        kept = {number for number, place in enumerate(places) if place.segment > 2}
        assert found == kept


@pytest.mark.parametrize("how", ["gone", "flipped", "empty"])
async def test_without_knowing_which_segments_there_must_be_nothing_is_started(folder, how):
    await fill(folder, 3)
    table = folder / TABLE_NAME
    data = bytearray(table.read_bytes())
    data[5] ^= 1
    table.write_bytes(data) if how == "flipped" else table.unlink()
    if how == "empty":
        table.write_bytes(b"")
    assert TABLE_NAME in await refusal(folder)
    assert await accept(folder) == ([0, 1, 2], 0)


async def test_the_spool_of_an_earlier_version_is_opened(folder):
    await fill(folder)
    (folder / TABLE_NAME).unlink()
    for file in segments(folder):
        salt = file.stem.partition("-")[2]
        file.write_bytes(header(salt) + file.read_bytes()[24:])
    # As a crash of that version left it.
    segments(folder)[-1].write_bytes(segments(folder)[-1].read_bytes()[:-3])
    async with opened(folder) as store:
        loaded = await store.load()
        assert (len(loaded.entries), loaded.torn, loaded.missing) == (29, 1, 0)


async def test_what_lies_behind_what_was_acknowledged_is_torn_not_damaged(folder):
    await fill(folder)
    file = segments(folder)[-1]
    file.write_bytes(file.read_bytes() + file.read_bytes()[24:60])
    async with opened(folder) as store:
        assert len((await store.load()).entries) == 30


class MortalDisk(SimulatedDisk):
    """Loses its power before its `left`th change, and makes none from then on."""

    left = 0

    def __getattribute__(self, name):
        if name in ("create", "append", "write_at", "truncate", "delete"):
            self.left -= 1
            if self.left == 0:
                self.lose_power()
            if self.left <= 0:
                raise OSError(errno.EIO, "the process is dead")
        return super().__getattribute__(name)


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_a_power_cut_at_any_change_of_the_disk_is_never_called_damage(seed):
    trio.run(live_and_die, seed)


async def live_and_die(seed):
    rng = random.Random(seed)
    disk, kept, deleted = MortalDisk(rng), set(), set()
    number = 0
    for _life in range(rng.randint(1, 4)):
        mounted = Mount(disk)
        disk.left = rng.randint(5, 60)
        async with open_store_on(
            mounted, seeded_ids(rng), segment_bytes_max=SEGMENT_BYTES
        ) as store:
            try:
                found = {each.sequence: each.place for each in (await store.load()).entries}
                assert kept - deleted <= set(found)
                while True:
                    batch = range(number, number + rng.randint(1, 4))
                    number = batch.stop
                    places = await store.append([payload(each) for each in batch])
                    found.update(zip(batch, places, strict=True))
                    kept.update(batch)
                    await house_keeping(rng, store, found, deleted)
            except DamageFound:
                raise
            except (SpoolUnavailable, StartupError, OSError):
                mounted.die()
    disk.left = 10_000
    async with open_store_on(
        Mount(disk), seeded_ids(rng), segment_bytes_max=SEGMENT_BYTES
    ) as store:
        assert kept - deleted <= {each.sequence for each in (await store.load()).entries}


async def house_keeping(rng, store, found, deleted):
    if rng.random() < 0.3:
        done = rng.sample(sorted(found), min(len(found), 5))
        deleted.update(done)
        await store.mark_done([found[each] for each in done])
    for segment, _size in store.sealed():
        inside = {each for each, place in found.items() if place.segment == segment}
        if rng.random() < 0.3:
            deleted.update(inside)
            await store.delete(segment)
            for each in inside:
                del found[each]
    if rng.random() < 0.1:
        await store.seal()


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_acknowledged_is_there_or_its_loss_is_told_in_numbers(tmp_path_factory, seed):
    trio.run(damage_and_start, tmp_path_factory.mktemp("spool") / "s", seed)


async def damage_and_start(folder, seed):
    rng = random.Random(seed)
    places = await fill(folder, 20)
    done = set(rng.sample(range(20), rng.choice([0, 3, 12])))
    async with opened(folder) as store:
        await store.load()
        await store.mark_done([places[each] for each in done])
    for file in rng.sample(segments(folder), rng.randint(1, 2)):
        spoil(rng, file)
    wanted = set(range(20)) - done
    async with opened(folder, accepts_damage=True) as store:
        loaded = await store.load()
    found = {each.sequence for each in loaded.entries}
    assert len(wanted - found) <= loaded.missing
    async with opened(folder) as store:
        assert {each.sequence for each in (await store.load()).entries} == found
    shutil.rmtree(folder)


def spoil(rng, file):
    data = bytearray(file.read_bytes())
    how = rng.choice(["flip", "zero", "cut", "delete"])
    at = rng.randrange(len(data))
    if how == "delete":
        file.unlink()
        return
    if how == "cut":
        del data[at:]
    for place in range(at, min(at + rng.choice([1, 8, 64, 600]), len(data))):
        data[place] = 0 if how == "zero" else data[place] ^ 0x55
    file.write_bytes(data)


@pytest.mark.parametrize(
    "how", ["segment deleted", "table replaced", "folder moved", "all deleted"]
)
async def test_a_spool_whose_files_go_away_while_it_is_open_keeps_nothing_more(folder, how):
    async with opened(folder) as store:
        await store.load()
        await store.append([payload(1)])
        assert await store.lost() == ""
        if how == "segment deleted":
            segments(folder)[0].unlink()
        elif how == "table replaced":
            shutil.copyfile(folder / TABLE_NAME, folder / "copy")
            (folder / "copy").replace(folder / TABLE_NAME)
        elif how == "folder moved":
            folder.rename(folder.with_name("moved"))
        else:
            shutil.rmtree(folder)
        assert re.search("was deleted, moved or replaced while the node ran", await store.lost())
        with pytest.raises(SpoolUnavailable, match="start the node again"):
            await store.append([payload(2)])


async def test_within_a_second_a_spool_that_has_lost_a_file_refuses_and_says_so_once(
    open_spooling, entry, caplog, autojump_clock
):
    async with open_spooling(SimulatedDisk()) as spooling:
        assert spooling.offer(entry(b"before"))
        await trio.sleep(3)
        assert spooling.spool.lost == ""
        spooling.mounted.disk.lost_file = lambda: "0000000001-00.spool"
        await trio.sleep(1.1)
        assert not spooling.offer(entry(b"after"))
        await trio.sleep(5)
        assert "0000000001-00.spool was deleted" in spooling.spool.lost
        assert spooling.spool.trouble == spooling.spool.lost
        assert spooling.answers == [("before", "kept")]
        assert spooling.shown("is_failing") == 1
        assert len([each for each in caplog.records if "deleted" in each.message]) == 1
