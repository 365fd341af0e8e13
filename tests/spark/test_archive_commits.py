"""Whoever reads an archive's folder, at whatever instant, and whoever is killed: each row once.

A row is a line of a file here: what is renamed, and in which order, is the same as with Parquet.
"""

import errno
import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_local.failures import LaunchFailed
from hermes_spark.archive.commits import Move, load_manifest, open_archive
from hermes_spark.archive.disk import Disk
from hermes_spark.archive.layout import (
    INTENT,
    MANIFEST,
    RECORDS,
    STAGING,
    Hour,
    batch_file,
    compacted_file,
    files_of,
    hours_of,
)

MISSING = (
    b'{"version": 1, "manifest": {"version": 1, "sequence": 1},'
    b' "moves": [{"source": "_staging/a", "target": "records/a"}]}'
)
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A disk for thousands of small files, where there is one."""
HOURS = [Hour("a.x", "2030-01-01", f"{hour:02d}") for hour in range(3)]


class Killed(BaseException):
    pass


class WatchedDisk(Disk):
    """A disk that calls `step` before and after all that it changes; nothing is synced."""

    def __init__(self, folder, step, *, can_exchange=True):
        super().__init__(folder)
        self._step = step
        self._can_exchange = can_exchange

    def write(self, name, content):
        self._step()
        begun = self.folder / STAGING / name
        begun.parent.mkdir(exist_ok=True)
        begun.write_bytes(content[: len(content) // 2])
        self._step()
        begun.write_bytes(content)
        begun.replace(self.folder / name)
        self._step()

    def sync(self, name):
        assert self.exists(name)

    def sync_folders(self, names):
        pass

    def rename(self, source, target):
        self._step()
        super().rename(source, target)
        self._step()

    def exchange_at_once(self, one, other):
        if not self._can_exchange:
            raise OSError(errno.EINVAL, "no exchange")
        self._step()
        super().exchange_at_once(one, other)
        self._step()

    def remove(self, name):
        self._step()
        super().remove(name)
        self._step()

    def remove_tree(self, name):
        self._step()
        super().remove_tree(name)
        self._step()


def seen(folder):
    """All rows, as one sees them who knows of nothing but files in folders."""
    return Counter(
        line
        for place, _, names in os.walk(folder / RECORDS)
        for name in names
        if name.endswith(".parquet")
        for line in Path(place, name).read_text().splitlines()
    )


def append(archive, rows_of_hours):
    staged = archive.staging()
    sequence = archive.manifest.sequence + 1
    moves = []
    for hour, rows in rows_of_hours.items():
        path = f"{staged}/{hour.hour}/part.parquet"
        (archive.folder / path).parent.mkdir(parents=True)
        (archive.folder / path).write_text("".join(f"{row}\n" for row in rows))
        moves.append(Move(path, f"{hour.path}/{batch_file('dc1', sequence, 0)}"))
    archive.commit(moves, archive.manifest.next())


def compact(archive, hour):
    found = files_of(archive.folder, hour)
    staged = archive.staging()
    (archive.folder / staged).mkdir(parents=True)
    name = compacted_file("dc1", found[0][1].first, max(each.last for _, each in found))
    content = "".join(path.read_text() for path, _ in found)
    (archive.folder / staged / name).write_text(content)
    archive.commit([Move(staged, hour.path, name)], archive.manifest.next())


def expire(archive, hour):
    archive.commit([Move(hour.path, archive.staging())], archive.manifest.next())


class World:
    """An archive's folder, what it is to hold, and who looks at it all the time."""

    def __init__(self, folder, *, can_exchange=True):
        self.folder = folder
        self.can_exchange = can_exchange
        self.rows = {hour: set() for hour in HOURS}
        self.names = itertools.count()
        self.steps = 0
        self.dies_at = None
        self.is_watched = True
        self.before = self.after = set()
        with self.open():
            pass

    def open(self):
        self.steps = 0
        disk = WatchedDisk(self.folder, self.step, can_exchange=self.can_exchange)
        return open_archive(self.folder, 1, disk)

    def step(self):
        self.steps += 1
        if not self.is_watched:
            return
        visible = seen(self.folder)
        assert set(visible.values()) <= {1}, "a row is doubled"
        assert visible.keys() <= self.before | self.after
        if self.can_exchange:
            assert visible.keys() >= self.before & self.after, "a row is away"
        if self.steps == self.dies_at:
            raise Killed

    def all_rows(self):
        return set().union(*self.rows.values())

    def do(self, kind, at, dies_at=None):
        """One change, killed at that step; then somebody else opens the archive."""
        hour = HOURS[at % len(HOURS)]
        self.before = self.all_rows()
        sequence = load_manifest(self.folder).sequence
        after = {each: set(rows) for each, rows in self.rows.items()}
        change = None
        if kind == "append":
            touched = {each: [f"r{next(self.names)}"] for each in HOURS[: at % len(HOURS) + 1]}
            for each, rows in touched.items():
                after[each] |= set(rows)
            change = lambda archive: append(archive, touched)  # noqa: E731
        elif kind == "compact" and hour in hours_of(self.folder, "a.x"):
            if len(files_of(self.folder, hour)) > 1:
                change = lambda archive: compact(archive, hour)  # noqa: E731
        elif kind == "expire" and hour in hours_of(self.folder, "a.x"):
            after[hour] = set()
            change = lambda archive: expire(archive, hour)  # noqa: E731
        if change is None:
            return False
        self.after = set().union(*after.values())
        self.dies_at = dies_at
        try:
            with self.open() as archive:
                change(archive)
            died = False
        except Killed:
            died = True
        # Whoever comes next may be killed while it mends.
        for self.dies_at in (*([3, 7] if died else []), None):
            try:
                with self.open() as archive:
                    done = archive.manifest.sequence > sequence
            except Killed:
                continue
        assert done or died
        if done:
            self.rows = after
        assert seen(self.folder) == Counter(self.all_rows())
        assert sorted(path.name for path in self.folder.iterdir()) == ["_lock", MANIFEST, RECORDS]
        return died


changes = st.tuples(
    st.sampled_from(["append", "append", "compact", "expire"]),
    st.integers(0, 8),
    st.none() | st.integers(1, 30),
)


@settings(deadline=None)
@given(st.lists(changes, max_size=6), st.booleans())
def test_each_row_is_there_once_whatever_is_done_and_whoever_is_killed(some, can_exchange):
    with TemporaryDirectory(dir=MEMORY) as folder:
        world = World(Path(folder), can_exchange=can_exchange)
        for kind, at, dies_at in some:
            world.do(kind, at, dies_at)


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("kind", ["append", "compact", "expire"])
def test_killed_at_each_step_it_is_done_or_not_begun(kind, can_exchange):
    outcomes = []
    with TemporaryDirectory(dir=MEMORY) as folder:
        for dies_at in itertools.count(1):
            world = World(Path(folder) / str(dies_at), can_exchange=can_exchange)
            world.is_watched = False
            world.do("append", 2)
            world.do("append", 1)
            world.is_watched = True
            if not world.do(kind, 0, dies_at):
                break
            outcomes.append(load_manifest(world.folder).sequence)
    # First the steps after which it was never begun, then those after which it is always done.
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {2, 3}
    assert len(outcomes) > 10


def test_two_runs_at_once_refuse_and_a_killed_one_leaves_no_lock(tmp_path):
    code = (
        "import sys; from pathlib import Path; from hermes_spark.archive.commits import *\n"
        f"with open_archive(Path({str(tmp_path)!r}), 0): print('ready', flush=True); input()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout.readline() == "ready\n"
        said = rf"in use by process {other.pid} of \S+ since 1970-01-01T00:00:00"
        with pytest.raises(LaunchFailed, match=said), open_archive(tmp_path, 1):
            pass
        other.kill()
    with open_archive(tmp_path, 1) as archive:
        assert archive.manifest.sequence == 0
    assert f"process {os.getpid()} of" in (tmp_path / "_lock").read_text()


def test_records_without_a_manifest_are_not_archived_again(tmp_path):
    with open_archive(tmp_path, 1):
        pass
    (tmp_path / MANIFEST).unlink()
    said = r"has records but no _manifest\.json"
    with pytest.raises(LaunchFailed, match=said), open_archive(tmp_path, 1):
        pass
    with pytest.raises(LaunchFailed, match="there is no archive in"):
        load_manifest(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (MANIFEST, b'{"version": 2, "more": 1}', "has version 2, this program reads 1"),
        (MANIFEST, b'{"version": 1, "sequence": "x"}', "_manifest.json is damaged: Expected `int`"),
        (INTENT, b"", "_intent.json is damaged"),
        (
            INTENT,
            b'{"version": 1, "moves": [], "manifest": {"version": 1, "sequence": 7}}',
            "_intent.json belongs to commit 7, but _manifest.json to 0",
        ),
        (
            INTENT,
            MISSING,
            "a is missing, which an interrupted run had written",
        ),
    ],
)
def test_what_is_not_as_it_was_left_is_told_with_the_way_out(tmp_path, name, content, said):
    with open_archive(tmp_path, 1):
        pass
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LaunchFailed, match=said), open_archive(tmp_path, 1):
        pass


def test_the_real_disk_exchanges_folders_or_says_why_not(tmp_path):
    disk = Disk(tmp_path)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"was-{name}").touch()
    disk.exchange("one", "other")
    assert disk.exists("other/was-one")
    with pytest.raises(FileNotFoundError, match="absent"):
        disk.exchange_at_once("absent", "other")
    disk.exchange("other", "new")
    assert disk.exists("new/was-one")
    disk.sync("new")
    assert disk.read("absent") is None
