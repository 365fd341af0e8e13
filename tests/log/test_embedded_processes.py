import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio

from hermes_actors.errors import StartupError
from hermes_actors.log.base import LATEST
from hermes_actors.log.cursor import Room
from hermes_actors.log.embedded.log import open_embedded_log
from hermes_actors.log.embedded.schema import FILE_NAME, open_read_only, read_batch, read_topics
from hermes_actors.runtime.clock import SystemClock

pytestmark = pytest.mark.live

PROGRAM = Path(__file__).with_name("appending_process.py")


class Appender:
    """The other process, and what it said was acknowledged."""

    def __init__(self, directory):
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM, directory], stdout=subprocess.PIPE, text=True
        )
        self.acknowledged = {}

    def __enter__(self):
        assert self.process.stdout.readline() == "open\n"
        return self

    def __exit__(self, *_):
        self.kill()
        self.process.stdout.close()

    def read(self, lines):
        for _ in range(lines):
            self._take(self.process.stdout.readline())

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def read_rest(self):
        for line in self.process.stdout:
            if line.endswith("\n"):
                self._take(line)

    def _take(self, line):
        partition, offset, value = line.split()
        self.acknowledged[int(partition), int(offset)] = value.encode()


async def read_everything(directory):
    found = {}
    async with open_embedded_log(directory, "dc1", SystemClock()) as log:
        ends = await log.positions("t", LATEST)
        async with log.reader("t", dict.fromkeys(ends, 0)) as reader:
            while len(found) < sum(ends.values()):
                for record in await reader.next_batch(1_000, 1_000_000):
                    found[record.partition, record.offset] = record.value
    return found


async def test_kill_9_loses_nothing_acknowledged(tmp_path):
    acknowledged = {}
    for lines in (1, 300, 1_500):
        with Appender(tmp_path) as appender:
            appender.read(lines)
            appender.kill()
            appender.read_rest()
        assert len(appender.acknowledged) >= lines
        acknowledged |= appender.acknowledged
        found = await read_everything(tmp_path)
        lost = {at: value for at, value in acknowledged.items() if found.get(at) != value}
        assert lost == {}
    # Nothing in between is missing either, whoever appended it.
    for partition in range(3):
        offsets = sorted(offset for number, offset in found if number == partition)
        assert offsets == list(range(len(offsets)))


async def test_a_second_process_is_refused_and_told_who_has_the_log(tmp_path):
    with Appender(tmp_path) as appender:
        with pytest.raises(StartupError) as caught:
            async with open_embedded_log(tmp_path, "dc1", SystemClock()):
                pass
        assert str(tmp_path) in caught.value.message
        assert f"pid {appender.process.pid}" in caught.value.message
        # The refusal left the other one alone, and its end lets the next one in.
        appender.read(100)
    assert len(await read_everything(tmp_path)) >= 100


async def test_another_process_reads_what_is_acknowledged_while_it_is_written(tmp_path):
    with Appender(tmp_path) as appender:
        appender.read(200)
        with closing(open_read_only(tmp_path / FILE_NAME)) as connection:
            (topic,) = read_topics(connection)
            found = {
                (record.partition, record.offset): record.value
                for row in topic.partitions
                for record in read_batch(connection, row, 0, Room(100_000, 100_000_000))
            }
        missing = {at for at, value in appender.acknowledged.items() if found.get(at) != value}
        assert missing == set()


async def test_a_log_left_by_a_killed_process_can_be_read_without_opening_it(tmp_path):
    with Appender(tmp_path) as appender:
        appender.read(50)
        appender.kill()
        appender.read_rest()
    with closing(open_read_only(tmp_path / FILE_NAME)) as connection:
        (topic,) = read_topics(connection)
    assert sum(row.end for row in topic.partitions) >= len(appender.acknowledged)


async def test_a_torn_write_ahead_log_costs_only_what_was_not_acknowledged(tmp_path):
    with Appender(tmp_path) as appender:
        appender.read(100)
        appender.kill()
        appender.read_rest()
    wal = tmp_path / f"{FILE_NAME}-wal"
    with wal.open("ab") as file:
        # What a power cut in the middle of a commit leaves behind.
        file.write(random.Random(1).randbytes(10_000))
    found = await read_everything(tmp_path)
    assert {at: found.get(at) for at in appender.acknowledged} == appender.acknowledged


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_directory_without_write_permission_is_refused(tmp_path):
    directory = tmp_path / "log"
    directory.mkdir(mode=0o500)
    with pytest.raises(StartupError, match="cannot be written"):
        async with open_embedded_log(directory, "dc1", SystemClock()):
            pass


async def test_a_full_device_is_unavailable_not_a_crash(tmp_path):
    """RLIMIT_FSIZE makes the file system refuse writes for real, as a quota does."""
    program = """
import resource, signal, sys, trio
from hermes_actors.log.base import Stored, TopicSettings
from hermes_actors.log.embedded.log import open_embedded_log
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import SystemClock

async def main():
    async with open_embedded_log(sys.argv[1], "dc1", SystemClock()) as log:
        await log.topics.create("t", TopicSettings())
        batch = [Record(None, b"x" * 10_000, (), 1)]
        print(*await log.append("t", 0, batch, Ack.ALL))
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        print(*{type(o).__name__ for o in await log.append("t", 0, batch * 100, Ack.ALL)})
        async with log.reader("t", {0: 0}) as reader:
            print(len(await reader.next_batch(10, 100_000)))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        print(*await log.append("t", 0, batch, Ack.ALL))

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
trio.run(main)
"""
    done = await trio.run_process([sys.executable, "-c", program, tmp_path], capture_stdout=True)
    first, refused, read, healed = done.stdout.decode().splitlines()
    assert first == "Stored(offset=0)"
    assert refused in ("UnavailableRecord", "UnknownRecord")
    assert read == "1"
    assert healed == "Stored(offset=1)"
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
