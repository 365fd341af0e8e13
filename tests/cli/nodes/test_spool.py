"""`hermes spool`: what waits in a node's folder, told without touching it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from hermes_actors.fallback.spool.format import SpoolEntry, encode_entry
from hermes_actors.fallback.spool.opening import open_segment_store
from hermes_actors.model.message import Message
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import SystemClock
from tests.live.waiting import wait_until

NOW_MS = SystemClock().now_ms()


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HERMES_SPOOL_DIRECTORY", str(tmp_path / "spools"))
    monkeypatch.setenv("HERMES_NODE", "f1")
    return tmp_path / "spools" / "dc1.f1"


def entry(number: int, topic: str, age_ms: int) -> bytes:
    message = Message(f"id-{number}", b'{"id": %d}' % number, NOW_MS - age_ms)
    return encode_entry(SpoolEntry(topic, topic, 0, Ack.LEADER, NOW_MS - age_ms, message))


async def fill(folder: Path) -> None:
    folder.parent.mkdir()
    async with open_segment_store(folder, 1_000_000) as store:
        await store.load()
        places = await store.append(
            [
                entry(1, "shop.orders", 7_200_000),
                entry(2, "shop.orders", 90_000),
                entry(3, "shop.clicks", 3_000),
                entry(4, "shop.orders", 1_000),
            ]
        )
        store.settle(places[3])
        await store.tidy()
        await store.set_aside(b'{"reason":"expired"}\n{"reason":"expired"}\n{"reas')


def test_status_of_a_node_whose_spool_is_empty(hermes, folder):
    folder.mkdir(parents=True)
    result = hermes("spool", "status")
    assert result.exit_code == 0
    assert "the spool is empty" in result.stdout
    assert list(folder.iterdir()) == [], "looking makes nothing"


@pytest.mark.parametrize("command", ["status", "drain"])
def test_a_folder_that_is_not_there_is_no_empty_spool(hermes, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HERMES_NODE", "f1")
    result = hermes("spool", command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"there is no spool in {tmp_path}/hermes-spool/dc1.f1" in result.stderr
    assert "HERMES_SPOOL_DIRECTORY" in result.stderr
    assert "keeps nothing" not in result.stderr
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"


def test_status_lists_what_waits_by_topic_and_what_was_set_aside(hermes, folder):
    trio.run(fill, folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = hermes("spool", "status")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["Topic", "Messages", "Bytes", "Oldest"]
    assert lines[1][:2] == ["shop.clicks", "1"]
    assert lines[2][:2] == ["shop.orders", "2"]
    assert lines[2][3:5] == ["2", "h"]
    assert "its node does not run" in result.stdout
    assert "set aside: 2 expired" in result.stdout
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_status_as_json(hermes, folder):
    trio.run(fill, folder)
    found = json.loads(hermes("spool", "status", "--output", "json").stdout)
    assert (found["entries"], found["pid"], found["setAside"]) == (3, "", {"expired": 2})
    assert found["oldestMs"] == NOW_MS - 7_200_000
    assert [each["topic"] for each in found["topics"]] == ["shop.clicks", "shop.orders"]
    assert found["diskBytes"] > found["sizeBytes"] > 0
    assert found["damaged"] == 0


def test_status_tells_of_damage_and_of_the_process_that_has_the_folder(hermes, folder):
    trio.run(fill, folder)
    (segment,) = folder.glob("*.spool")
    data = bytearray(segment.read_bytes())
    data[60] ^= 1
    segment.write_bytes(data)

    async def look_while_open():
        async with open_segment_store(folder, 1_000_000):
            return hermes("spool", "status")

    result = trio.run(look_while_open)
    assert result.exit_code == 1
    assert "in use by process" in result.stdout
    assert "damaged: 1 place" in result.stdout
    assert "set aside: 2 expired" in result.stdout


def test_draining_a_folder_in_which_nothing_waits_needs_no_log(hermes, folder):
    folder.mkdir(parents=True)
    result = hermes("spool", "drain")
    assert (result.exit_code, result.stdout) == (0, "the spool is empty\n")


def test_a_spool_with_messages_of_a_newer_version_is_not_drained(hermes, folder):
    async def fill_with_newer() -> None:
        folder.parent.mkdir()
        message = Message("id-1", b"1", NOW_MS)
        known = SpoolEntry("shop.orders", "shop.orders", 0, Ack.LEADER, NOW_MS, message)
        async with open_segment_store(folder, 1_000_000) as store:
            await store.load()
            await store.append([encode_entry(replace(known, ack="QUORUM"))])

    trio.run(fill_with_newer)
    result = hermes("spool", "drain")
    assert result.exit_code == 1
    assert "1 message of a newer version" in result.stderr
    assert str(folder) in result.stderr


@pytest.mark.live
def test_a_second_drain_that_announces_a_stop_does_not_end_the_first(hermes, folder):
    trio.run(fill, folder)
    # A Kafka that is never there keeps the first one busy.
    kafka = {"HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    first = subprocess.Popen(
        [sys.executable, "-m", "hermes_actors", "spool", "drain"], env={**os.environ, **kafka}
    )
    try:

        def holder() -> str:
            return json.loads(hermes("spool", "status", "--output", "json").stdout)["pid"]

        wait_until(lambda: holder() == str(first.pid), "the first drain")
        assert hermes("spool", "drain", "--wait", "--timeout-s", "1").exit_code == 1
        assert first.poll() is None
    finally:
        first.kill()
        first.wait()
