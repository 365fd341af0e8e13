"""What a spool asks of a disk is the same in a folder and on the simulation's disk."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_actors.fallback.spool.disk import SpoolDisk, open_folder
from hermes_chaos.sim.environment.disk import SimulatedDisk

TABLE = st.just("acknowledged")
SEGMENTS = st.sampled_from(["1.spool", "1.done"])
NAMES = SEGMENTS | TABLE
CONTENT = st.binary(min_size=1, max_size=8)
AT = st.integers(0, 12)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("create"), SEGMENTS, CONTENT),
        st.tuples(st.just("append"), SEGMENTS, CONTENT, st.booleans()),
        st.tuples(st.just("write_at"), TABLE, AT, CONTENT, st.booleans()),
        st.tuples(st.just("truncate"), SEGMENTS, AT),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("release"), NAMES),
        st.tuples(st.just("read"), NAMES, AT, AT),
    ),
    max_size=20,
)


def change(disk, what, name, *values):
    """What it returns, or the kind of error."""
    try:
        if what in ("append", "write_at"):
            *values, syncs = values
            return getattr(disk, what)(name, *values, syncs=syncs)
        if what == "truncate" and values[0] > len(disk.read(name)):
            return None  # Files are only cut off.
        return getattr(disk, what)(name, *values)
    except OSError as error:
        return type(error)


@settings(deadline=None)
@given(CHANGES)
def test_the_same_changes_leave_the_same_files(tmp_path_factory, changes) -> None:
    folder = open_folder(tmp_path_factory.mktemp("spool"))
    memory = SimulatedDisk()
    for each in changes:
        assert change(folder, *each) == change(memory, *each), each
        found = [(name, size) for name, size in folder.names() if name != "lock"]
        assert found == memory.names()
        for name, _size in found:
            assert folder.read(name) == memory.read(name)
    folder.close()


def test_what_the_system_writes_in_pieces_is_written_whole(tmp_path, monkeypatch) -> None:
    disk = SpoolDisk(tmp_path, None)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, data[:3], at))
    disk.write_at("acknowledged", 2, b"0123456789", syncs=True)
    assert disk.read("acknowledged") == bytes(2) + b"0123456789"
    disk.close()


@pytest.mark.parametrize("syncs", [False, True])
def test_what_the_system_appends_in_pieces_is_written_whole(tmp_path, monkeypatch, syncs) -> None:
    disk = SpoolDisk(tmp_path, None)
    disk.create("a.spool", b"header")
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
    disk.append("a.spool", b"0123456789", syncs=syncs)
    assert disk.read("a.spool") == b"header0123456789"
    disk.close()
