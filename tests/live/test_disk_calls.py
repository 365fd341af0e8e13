"""What only the disk shows: which system calls lie between a message and its acknowledgement.

Real processes under strace; without it there is nothing to count them by.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STRACE = shutil.which("strace")
CALLS = "fsync,fdatasync,pwrite64,write,openat,close,unlink,rename"
LINE = re.compile(r"^(?:\d+ +)?(?P<call>\w+)\((?P<arguments>.*)\) += +(?P<result>-?\d+)")

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(STRACE is None, reason="strace is not installed: apt-get install strace"),
]

LOG = """
import sys, trio
from hermes_actors.log.base import Stored, TopicSettings
from hermes_actors.log.embedded.log import open_embedded_log
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import SystemClock

async def main():
    async with open_embedded_log(sys.argv[1], "dc1", SystemClock()) as log:
        await log.topics.create("t", TopicSettings())
        for number in range(20):
            batch = [Record(None, b"x" * 100, (), 1)]
            assert await log.append("t", 0, batch, Ack.ALL) == [Stored(number)]
            print("acknowledged", flush=True)

trio.run(main)
"""

SPOOL = """
import sys, trio
from pathlib import Path
from hermes_actors.fallback.spool.format import SpoolEntry, encode_entry
from hermes_actors.fallback.spool.opening import open_segment_store
from hermes_actors.model.message import Message
from hermes_actors.model.topic import Ack

def encoded(number):
    message = Message(str(number), b"x" * 100, 1, None)
    return encode_entry(SpoolEntry("t", "t", 0, Ack.LEADER, 1, message))

async def main():
    async with open_segment_store(Path(sys.argv[1]), 10**9) as store:
        await store.load()
        for number in range(20):
            await store.append([encoded(number)])
            print("acknowledged", flush=True)

trio.run(main)
"""


def traced(program: str, folder: Path, tmp_path: Path) -> list[tuple[str, str]]:
    """(call, file) of each call that succeeded, in order; an acknowledgement is "acknowledged"."""
    out = tmp_path / "calls"
    strace = [str(STRACE), "-f", "-y", "-s", "16", "-e", f"trace={CALLS}", "-o", str(out)]
    subprocess.run(
        [*strace, sys.executable, "-c", program, str(folder)],
        check=True,
        capture_output=True,
        cwd=ROOT.parent,
        timeout=60,
    )
    found = []
    for line in _joined(out.read_text(errors="replace").splitlines()):
        match = LINE.match(line)
        if match is None or int(match["result"]) < 0:
            continue
        if '"acknowledged' in match["arguments"]:
            found.append(("acknowledged", ""))
        elif str(folder) in match["arguments"]:
            path = re.search(rf"{re.escape(str(folder))}(?:/([\w.-]+))?", match["arguments"])
            found.append((match["call"], path[1] or "" if path else ""))
    return found


def _joined(lines: list[str]) -> list[str]:
    """strace cuts a call in two when another thread calls meanwhile: put it together again."""
    begun: dict[str, str] = {}
    whole = []
    for line in lines:
        thread = line.split(" ", 1)[0]
        if line.endswith("<unfinished ...>"):
            begun[thread] = line.removesuffix("<unfinished ...>")
        elif "resumed>" in line and thread in begun:
            whole.append(begun.pop(thread) + line.partition("resumed>")[2])
        else:
            whole.append(line)
    return whole


def between_acknowledgements(calls: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """The calls before each acknowledgement but the first, back to the one before."""
    spans: list[list[tuple[str, str]]] = [[]]
    for call in calls:
        if call[0] == "acknowledged":
            spans.append([])
        else:
            spans[-1].append(call)
    return spans[1:-1]


def test_the_embedded_log_syncs_its_write_ahead_log_before_each_acknowledgement(tmp_path):
    calls = traced(LOG, tmp_path / "log", tmp_path)
    spans = between_acknowledgements(calls)
    assert len(spans) == 19
    wal, beside = "log.sqlite-wal", "log.acknowledged"
    for span in spans:
        synced = [call for call in span if call[0] in ("fsync", "fdatasync")]
        assert [name for _call, name in synced] == [wal], "one sync for a commit, of the right file"
        written = [number for number, call in enumerate(span) if call == ("pwrite64", wal)]
        assert written
        assert written[-1] < span.index(synced[0]), "what is written is synced"
        # How far it goes is written behind that, once, and not synced.
        assert [call for call in span if call[1] == beside] == [("pwrite64", beside)]
        assert span.index(("pwrite64", beside)) > span.index(synced[0])
    before = calls[: calls.index(("acknowledged", ""))]
    assert ("fsync", "") in before, "the names of new files are on the disk too"
    assert ("fsync", f"{beside}.new") in before


def test_the_spool_syncs_its_segment_before_each_acknowledgement_and_its_folder_once(tmp_path):
    calls = traced(SPOOL, tmp_path / "spool", tmp_path)
    spans = between_acknowledgements(calls)
    assert len(spans) == 19
    for span in spans:
        (segment,) = {name for _call, name in span if name.endswith(".spool")}
        assert span == [(call, segment) for call in ("openat", "pwrite64", "fdatasync", "close")]
    before = calls[: calls.index(("acknowledged", ""))]
    made = before.index(("fdatasync", segment))
    assert ("fsync", "") in before[made:], "the segment's name is on the disk before the first 202"
