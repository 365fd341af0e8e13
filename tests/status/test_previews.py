"""Previews travel from the nodes of all datacentres to management, within their bounds."""

import random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.status.preview_reader import PreviewReader
from hermes_actors.status.preview_reporter import PreviewReporter
from hermes_actors.status.previews import (
    PREVIEW_TOPIC,
    Preview,
    PreviewRecord,
    PreviewRegister,
    UndecodablePreview,
    decode,
    encode,
)

contents = st.builds(Preview, st.binary(max_size=300), st.booleans())
records = st.builds(
    PreviewRecord,
    st.sampled_from(["n1", "n2"]),
    st.sampled_from(["dc1", "dc2"]),
    st.sampled_from(["a.x", "a.y", "a.z"]),
    st.lists(contents, max_size=3).map(tuple),
)


@given(records)
def test_a_record_survives_the_log(record: PreviewRecord) -> None:
    assert decode(encode(record)) == record


@given(st.binary(max_size=50))
def test_what_is_no_record_is_said_to_be_none(value: bytes) -> None:
    with pytest.raises(UndecodablePreview):
        decode(b"\xc1" + value)


@given(st.lists(records, max_size=30), st.integers(0, 3_000))
def test_the_register_holds_the_newest_within_its_bound(
    taken: list[PreviewRecord], bytes_max: int
) -> None:
    register, whole = PreviewRegister(bytes_max), PreviewRegister()
    newest = {}
    for record in taken:
        register.take(record)
        whole.take(record)
        newest[record.topic, record.dc, record.node] = record.previews
        assert register.held_bytes <= bytes_max
    for topic in ("a.x", "a.y", "a.z"):
        expected = [each for name in sorted(newest) if name[0] == topic for each in newest[name]]
        assert whole.of_topic(topic) == expected
        assert all(each in expected for each in register.of_topic(topic))
    if taken and sum(len(each.content) + 200 for each in taken[-1].previews) + 200 <= bytes_max:
        last = register.of_topic(taken[-1].topic)
        assert all(each in last for each in taken[-1].previews)


class Site:
    """Two datacentres' logs, one publishing node in each, and a register that reads both."""

    def __init__(self, clock, supervisor) -> None:
        self.logs = {dc: MemoryLog(dc, clock) for dc in ("dc1", "dc2")}
        self.gathered: dict[str, dict[str, list[Preview]]] = {"dc1": {}, "dc2": {}}
        self.register = PreviewRegister()
        for dc, log in self.logs.items():
            supervisor.start_task(f"reporter {dc}", self._reporter(dc, log, clock).run)
            supervisor.start_task(
                f"reader {dc}",
                lambda stop, log=log: PreviewReader(log, self.register, rng=random.Random(1)).run(
                    stop
                ),
            )

    def _reporter(self, dc: str, log: MemoryLog, clock):
        def take() -> dict[str, list[Preview]]:
            taken, self.gathered[dc] = self.gathered[dc], {}
            return taken

        return PreviewReporter(log, take, node="n1", clock=clock, interval_s=30)

    def contents(self, topic: str) -> list[bytes]:
        return [preview.content for preview in self.register.of_topic(topic)]


@pytest.fixture
async def site(clock):
    async with open_supervisor(random.Random(1)) as supervisor:
        yield Site(clock, supervisor)


async def test_previews_of_all_datacentres_are_joined_and_replaced(site, autojump_clock) -> None:
    site.gathered["dc2"] = {"a.x": [Preview(b"2")]}
    site.gathered["dc1"] = {"a.x": [Preview(b"1"), Preview(b"1b")], "a.y": [Preview(b"y")]}
    await trio.sleep(60)
    assert site.contents("a.x") == [b"1", b"1b", b"2"]
    assert site.contents("a.y") == [b"y"]
    site.gathered["dc1"] = {"a.x": [Preview(b"3")]}
    await trio.sleep(31)
    assert site.contents("a.x") == [b"3", b"2"]
    assert site.contents("a.y") == [b"y"]


async def test_without_messages_nothing_is_written(site, autojump_clock) -> None:
    await trio.sleep(300)
    assert await site.logs["dc1"].topics.names() == []


async def test_a_log_that_is_away_costs_its_previews_and_nothing_else(site, autojump_clock) -> None:
    site.logs["dc1"].faults.unavailable_rate = 1.0
    site.gathered["dc1"] = {"a.x": [Preview(b"lost")]}
    site.gathered["dc2"] = {"a.x": [Preview(b"2")]}
    await trio.sleep(60)
    assert site.contents("a.x") == [b"2"]
    site.logs["dc1"].faults.heal()
    site.gathered["dc1"] = {"a.x": [Preview(b"1")]}
    await trio.sleep(60)
    assert site.contents("a.x") == [b"1", b"2"]


async def test_a_record_that_cannot_be_read_is_passed_over(site, autojump_clock) -> None:
    site.gathered["dc1"] = {"a.x": [Preview(b"1")]}
    await trio.sleep(31)
    await site.logs["dc1"].append(PREVIEW_TOPIC, 0, [Record(None, b"?", (), 1)], Ack.LEADER)
    site.gathered["dc1"] = {"a.x": [Preview(b"2")]}
    await trio.sleep(60)
    assert site.contents("a.x") == [b"2"]
