"""A damaged record of an embedded log: what it stops, and how it is accepted."""

import sqlite3
from contextlib import closing

import pytest
import trio

from hermes_actors.errors import DamageFound
from hermes_actors.log.base import LogUnavailable, TopicSettings
from hermes_actors.log.cursor import Room
from hermes_actors.log.embedded import damage
from hermes_actors.log.embedded.log import open_embedded_log
from hermes_actors.log.embedded.opening import open_store
from hermes_actors.log.embedded.schema import FILE_NAME, read_batch
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from tests.hand_clock import HandClock


def append(store, *records):
    store.begin()
    store.append("t", 0, [Record(None, value, (), at_ms) for value, at_ms in records], 0, 0.0)
    store.flush()
    store.commit()


def damage_chunk(directory, which):
    with closing(sqlite3.connect(directory / FILE_NAME)) as connection, connection:
        (chunk,) = connection.execute(
            "SELECT id FROM chunk ORDER BY id LIMIT 1 OFFSET ?", (which,)
        ).fetchone()
        connection.execute("UPDATE chunk SET checksum = checksum + 1 WHERE id = ?", (chunk,))


@pytest.mark.parametrize("is_followed", [True, False])
def test_damage_in_a_chunk_of_which_retention_took_a_part_is_accepted_once(tmp_path, is_followed):
    store = open_store(tmp_path)
    store.begin()
    store.create_topic("t", TopicSettings(retention_ms=1_000))
    store.commit()
    append(store, (b"old", 0), (b"young", 10_000))
    if is_followed:
        append(store, (b"next", 10_001))
    store.begin()
    store.plan_expiry(10_500)
    assert store.expire(None) == [("t", 0, 1)]
    store.commit()
    store.close()
    damage_chunk(tmp_path, 0)
    with pytest.raises(DamageFound):
        open_store(tmp_path)
    open_store(tmp_path, accepts_damage=True).close()
    store = open_store(tmp_path)
    row = store.topics["t"].partitions[0]
    found = []
    if row.start < row.end:
        found = read_batch(store.connection, row, row.start, Room(10, 1_000))
    store.close()
    assert [each.value for each in found] == ([b"next"] if is_followed else [])


def opened(directory, **options):
    return open_embedded_log(directory, "dc1", HandClock(1_000_000), **options)


async def test_it_stops_its_partition_where_it_lies_and_no_other(tmp_path, monkeypatch):
    # As in a large database, of which no record is looked at when it is opened.
    monkeypatch.setattr(damage, "READ_BYTES_MAX", 0)
    async with opened(tmp_path) as log:
        await log.topics.create("t", TopicSettings(partitions=2))
        for value in (b"before", b"damaged", b"behind"):
            await log.append("t", 0, [Record(None, value, (), 1)], Ack.ALL)
        await log.append("t", 1, [Record(None, b"other", (), 1)], Ack.ALL)
    damage_chunk(tmp_path, 1)
    found = []
    async with opened(tmp_path) as log, log.reader("t", {0: 0, 1: 0}) as reader:
        await log.append("t", 1, [Record(None, b"new", (), 1)], Ack.ALL)
        with pytest.raises(LogUnavailable, match="offset 1 is damaged"), trio.fail_after(5):
            while True:
                found += [record.value for record in await reader.next_batch(10, 1_000)]
        await log.append("t", 1, [Record(None, b"newer", (), 1)], Ack.ALL)
        found += [record.value for record in await reader.next_batch(10, 1_000)]
    assert sorted(found) == [b"before", b"new", b"newer", b"other"]


async def test_it_is_found_and_accepted_in_a_large_database_too(tmp_path, monkeypatch):
    monkeypatch.setattr(damage, "READ_BYTES_MAX", 0)
    store = open_store(tmp_path)
    store.begin()
    store.create_topic("t", TopicSettings())
    store.commit()
    append(store, (b"damaged", 1))
    append(store, (b"sound", 1))
    store.close()
    damage_chunk(tmp_path, 0)
    open_store(tmp_path).close()
    open_store(tmp_path, accepts_damage=True).close()
    async with opened(tmp_path) as log, log.reader("t", {0: 0}) as reader:
        assert [each.value for each in await reader.next_batch(10, 1_000)] == [b"sound"]
