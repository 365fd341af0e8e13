"""Open dead letters are counted from their log alone: whoever owns the subscription knows them."""

from contextlib import asynccontextmanager

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.consumer.letters import open_counts
from hermes_actors.consumer.letters.open_counts import UNKNOWN, OpenCounts, OpenFold
from hermes_actors.log.base import TopicSettings
from hermes_actors.model.dead_letter import (
    Letter,
    Mark,
    MarkKind,
    OpenLetters,
    letter_record,
    mark_record,
    read_entry,
)
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.topic import Ack
from tests.consumer.redrive_scene import DLQ, NAME, PARTITION, Scene


def letter(number, at_ms=1, incarnation=7):
    return Letter(
        *("dc1", NAME, incarnation, "shop.orders", 0, number, 1, None, b"x", ()),
        *(f"id-{number}", "client-error", "HTTP 400", 1, 400, at_ms),
    )


def stored(offset, record):
    return StoredRecord(PARTITION, offset, 1, record.key, record.value, record.headers)


entries = st.one_of(
    st.builds(letter, st.integers(0, 5), st.integers(1, 9), st.sampled_from([6, 7])),
    st.builds(
        lambda ids, up_to_ms: Mark(
            MarkKind.REDRIVEN, tuple(f"dc1:7:0:{each}" for each in ids), 1, (up_to_ms,) * len(ids)
        ),
        st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True),
        st.integers(1, 9),
    ),
)


def record_of(entry):
    return letter_record(entry) if isinstance(entry, Letter) else mark_record(NAME, entry)


@given(st.lists(entries, max_size=30), st.integers(0, 30))
def test_read_forwards_they_are_those_that_reading_backwards_finds(history, start):
    records = [stored(offset, record_of(entry)) for offset, entry in enumerate(history)]
    fold = OpenFold(0)
    for record in records:
        fold.take(record)
    fold.expire_below(start)
    known = OpenLetters()
    left = [read_entry(record) for record in reversed(records[start:])]
    found = [each for each in left if known.take(each)]
    assert fold.counts[NAME.encode(), 7] == sum(each.incarnation == 7 for each in found)
    assert fold.counts[b"shop.orders$other", 7] == 0


def test_of_too_many_the_newest_are_known(monkeypatch):
    monkeypatch.setattr(open_counts, "OPEN_MAX", 3)
    fold = OpenFold(0)
    for number in range(10):
        fold.take(stored(number, letter_record(letter(number))))
    assert fold.counts[NAME.encode(), 7] == 3
    fold.take(stored(10, mark_record(NAME, Mark(MarkKind.EXPIRED, ("dc1:7:0:9", "dc1:7:0:1"), 1))))
    assert fold.counts[NAME.encode(), 7] == 2


@asynccontextmanager
async def counting(world, *lives):
    counts = OpenCounts(world.log, lambda: lives or [world.live()])
    async with open_supervisor(world.parts.rng) as supervisor:
        supervisor.start_task("counts", counts.run)
        yield counts
        await supervisor.stop("counts")


async def test_a_letter_is_open_until_a_redrive_has_delivered_it(world, autojump_clock):
    scene, live = Scene(world), world.live()
    async with counting(world) as counts:
        assert counts.of(live) == UNKNOWN
        await trio.sleep(1)
        # There is no topic of dead letters yet.
        assert counts.of(live) == 0
        await scene.with_letters(b"a", b"b", b"c")
        await trio.sleep(11)
        assert counts.of(live) == 3
        scene.bad = {b"c"}
        async with world.consuming(keeps_letters=True):
            await scene.ask()
            await trio.sleep(20)
        assert counts.of(live) == 1
    # A restart, or another owner.
    async with counting(world) as counts:
        await trio.sleep(1)
        assert counts.of(live) == 1


async def test_it_is_not_known_until_the_log_has_been_read_to_its_end(
    world, autojump_clock, monkeypatch
):
    monkeypatch.setattr(open_counts, "_IN_A_LOOK", 2)
    scene = Scene(world)
    await scene.with_letters(b"a", b"b", b"c", b"d", b"e")
    async with counting(world) as counts:
        await trio.sleep(0.5)
        assert counts.of(world.live()) == UNKNOWN
        await trio.sleep(5)
        assert counts.of(world.live()) == 5


async def test_what_was_known_stays_so_while_the_log_is_away(world, autojump_clock):
    await Scene(world).with_letters(b"a")
    async with counting(world) as counts:
        await trio.sleep(1)
        world.log.faults.reads_failing = True
        await trio.sleep(60)
        assert counts.of(world.live()) == 1
        world.log.faults.reads_failing = False
        mark = mark_record(NAME, Mark(MarkKind.EXPIRED, (next(iter(await ids(world))),), 1))
        await world.log.append(DLQ, PARTITION, [mark], Ack.ALL)
        await trio.sleep(15)
        assert counts.of(world.live()) == 0


async def ids(world):
    return [each.id for each in (await Scene(world).open()).values()]


async def test_the_first_look_goes_back_no_further_than_its_bound(
    world, autojump_clock, monkeypatch
):
    monkeypatch.setattr(open_counts, "RECORDS_MAX", 4)
    await world.log.topics.create(DLQ, TopicSettings(partitions=4))
    records = [letter_record(letter(number)) for number in range(10)]
    await world.log.append(DLQ, PARTITION, records, Ack.ALL)
    async with counting(world) as counts:
        await trio.sleep(1)
        assert counts.of(world.live()) == 4


@pytest.mark.parametrize("incarnation", [6, 8])
async def test_letters_of_another_life_are_not_its_own(world, autojump_clock, incarnation):
    await world.log.topics.create(DLQ, TopicSettings(partitions=4))
    record = letter_record(letter(1, incarnation=incarnation))
    await world.log.append(DLQ, PARTITION, [record], Ack.ALL)
    async with counting(world) as counts:
        await trio.sleep(1)
        assert counts.of(world.live()) == 0
