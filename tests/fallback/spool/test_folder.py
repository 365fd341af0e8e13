"""A spool in a folder of a real disk: who has it, who may read it, and what a kill leaves there."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes_actors.errors import StartupError
from hermes_actors.fallback.spool.disk import SpoolDisk, open_folder
from hermes_actors.fallback.spool.format import encode_entry
from hermes_actors.fallback.spool.opening import open_segment_store
from hermes_actors.fallback.spool.reading import read_spool
from hermes_actors.fallback.spool.store import SpoolUnavailable
from hermes_chaos.sim.environment.disk import SimulatedDisk

SCRIPT = Path(__file__).with_name("spooling_process.py")
MIB = 1024 * 1024

NAMES = st.sampled_from(["1.spool", "set-aside.jsonl"])
AT = st.integers(0, 12)
CONTENT = st.binary(min_size=1, max_size=8)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.booleans(), CONTENT),
        st.tuples(st.just("mark"), NAMES, st.lists(AT, max_size=3), st.just(b"D")),
        st.tuples(st.just("truncate"), NAMES, AT),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("read"), NAMES, AT, AT),
    ),
    max_size=20,
)


def change(disk, what, name, *values):
    """What it returns, or the kind of error."""
    size = disk.sizes().get(name, 0)
    if what == "write":
        # A file grows at its end, and is begun anew at its start.
        values = (size if values[0] else 0, values[1] if values[0] else values[1].ljust(size))
    elif (what == "truncate" and values[0] > size) or (
        what == "mark" and any(at >= size for at in values[0])
    ):
        return None
    try:
        return getattr(disk, what)(name, *values)
    except OSError as error:
        return type(error)


@settings(deadline=None)
@given(CHANGES)
def test_the_same_changes_leave_the_same_files_on_the_simulations_disk(
    tmp_path_factory, changes
) -> None:
    folder = open_folder(tmp_path_factory.mktemp("spool"))
    memory = SimulatedDisk()
    for each in changes:
        assert change(folder, *each) == change(memory, *each), each
        found = {name: size for name, size in folder.sizes().items() if name != "lock"}
        assert found == memory.sizes()
        assert [folder.read(name) for name in found] == [memory.read(name) for name in found]
    folder.close()


def test_what_the_system_writes_in_pieces_is_written_whole(tmp_path, monkeypatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, data[:3], at))
    disk = SpoolDisk(tmp_path, None)
    disk.write("1.spool", 0, b"0123456789")
    assert disk.read("1.spool") == b"0123456789"


async def test_only_the_owner_may_read_the_files(tmp_path, entry):
    folder = tmp_path / "spool"
    async with open_segment_store(folder, MIB) as store:
        await store.load()
        await store.append([encode_entry(entry(b"secret"))])
        await store.set_aside(b"{}\n")
        files = list(folder.iterdir())
        assert len(files) == 3
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_a_folder_that_another_process_has_is_an_error_with_its_way_out(
    tmp_path, autojump_clock
):
    async with open_segment_store(tmp_path, MIB):
        with pytest.raises(StartupError, match=rf"spool\.directory: .*pid {os.getpid()}.*enabled"):
            async with open_segment_store(tmp_path, MIB):
                pytest.fail("two have it")
    async with open_segment_store(tmp_path, MIB) as store:
        assert await store.load() == ([], 0)


async def test_a_folder_that_cannot_be_made_is_an_error_with_its_way_out(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupError, match=r"spool\.directory: .*enabled = false"):
        async with open_segment_store(tmp_path / "file" / "spool", MIB):
            pytest.fail("a file is no folder")


async def test_a_segment_that_somebody_deletes_is_no_place_for_more(tmp_path, entry):
    async with open_segment_store(tmp_path, MIB) as store:
        await store.load()
        (place,) = await store.append([encode_entry(entry(b"1"))])
        (tmp_path / place.segment.name).unlink()
        with pytest.raises(SpoolUnavailable):
            await store.append([encode_entry(entry(b"2"))])
        (other,) = await store.append([encode_entry(entry(b"3"))])
        found = await store.read([place, other])
        assert [each and each.message.body for each in found] == [None, b"3"]


async def test_a_message_that_only_a_newer_version_can_decode_stays_for_it(tmp_path, entry):
    """A node of an older version was put back before the spool was empty."""
    newer = encode_entry(replace(entry(b"2"), ack="QUORUM"))
    async with open_segment_store(tmp_path, MIB) as store:
        await store.load()
        await store.append([encode_entry(entry(b"1")), newer])
    async with open_segment_store(tmp_path, MIB) as store:
        ((place, known),), damaged = await store.load()
        assert (known.message.id, damaged) == (entry(b"1").message.id, 0)
        store.settle(place)
        await store.tidy(at_end=True)
    content = read_spool(tmp_path)
    assert (content.entries, content.unknown, content.damaged) == (0, 1, 0)


async def load(folder: Path) -> list[int]:
    async with open_segment_store(folder, MIB) as store:
        entries, damaged = await store.load()
        assert damaged == 0
        assert None not in await store.read([place for place, _entry in entries])
        return [int(entry.message.id) for _place, entry in entries]


@pytest.mark.live
@pytest.mark.parametrize("kill_after_s", [0.05, 0.15, 0.3])
def test_after_kill_9_everything_acknowledged_is_there(tmp_path, kill_after_s):
    kept: set[int] = set()
    for _life in range(2):
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        threading.Event().wait(kill_after_s)
        process.kill()
        output, _ = process.communicate(timeout=10)
        # A line that was cut short was not told to anybody.
        lines = output.splitlines() if output.endswith("\n") else output.splitlines()[:-1]
        kept.update(map(int, lines))
        assert kept <= set(trio.run(load, tmp_path))
    assert len(kept) > 10
