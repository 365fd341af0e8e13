"""What an embedded log lost while nobody had it open is told at its start, and nothing else is."""

import random
import shutil
import sqlite3
from contextlib import closing

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_actors.errors import DamageFound, StartupError
from hermes_actors.log.base import LogUnavailable, Stored, TopicSettings, UnavailableRecord
from hermes_actors.log.cursor import Room
from hermes_actors.log.embedded.acknowledged import ACKNOWLEDGED_NAME
from hermes_actors.log.embedded.damage import find_damage
from hermes_actors.log.embedded.log import open_embedded_log
from hermes_actors.log.embedded.opening import open_store
from hermes_actors.log.embedded.schema import FILE_NAME, read_batch
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack

WAL_NAME = f"{FILE_NAME}-wal"
TOPICS = ("shop.orders", "shop.clicks")
SECTOR_BYTES = 512


def append(store, topic, *values, partition=0):
    store.begin()
    store.append(topic, partition, [Record(None, value, (), 1) for value in values], 0, 0.0)
    store.flush()
    store.commit()


def create(store, topic, partitions=1):
    store.begin()
    store.create_topic(topic, TopicSettings(partitions=partitions))
    store.commit()


class Image(dict):
    """The files of a log by their names."""

    def __repr__(self):
        return f"Image({', '.join(self)})"


def image_of(directory):
    """What a process that is killed now would leave. SQLite makes its -shm file anew."""
    names = (FILE_NAME, WAL_NAME, ACKNOWLEDGED_NAME)
    there = [name for name in names if (directory / name).exists()]
    return Image({name: (directory / name).read_bytes() for name in there})


def lay(directory, image):
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name, content in image.items():
        (directory / name).write_bytes(content)


def values_in(store):
    """All that can be read, by topic."""
    return {
        name: {
            record.value
            for row in topic.partitions
            for record in read_batch(store.connection, row, row.start, Room(10_000, 10**9))
        }
        for name, topic in store.topics.items()
    }


def fill(directory, appends=200, checkpoint_at=None):
    """A log of two topics; (what was acknowledged by topic, what a kill -9 leaves of it)."""
    store = open_store(directory)
    kept = {topic: set() for topic in TOPICS}
    for topic in TOPICS:
        create(store, topic)
    for number in range(appends):
        topic = TOPICS[number % 2]
        value = b"%s %d " % (topic.encode(), number) + random.Random(number).randbytes(300)
        append(store, topic, value)
        kept[topic].add(value)
        if number == checkpoint_at:
            store.let_go()
            store.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    image = image_of(directory)
    store.close()
    return kept, image


def test_many_small_transactions_do_not_keep_the_write_ahead_log_from_shrinking(tmp_path):
    store = open_store(tmp_path)
    create(store, TOPICS[0])
    store.connection.execute("PRAGMA wal_autocheckpoint = 20")
    for number in range(300):
        append(store, TOPICS[0], b"%d" % number)
    wal = tmp_path / f"{FILE_NAME}-wal"
    assert wal.stat().st_size < 100 * 16_384
    store.close()
    assert not wal.exists()


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """(what was acknowledged, the files) of a log of 200 messages whose process was killed."""
    return fill(tmp_path_factory.mktemp("killed"))


@pytest.fixture(scope="module")
def killed_log(tmp_path_factory):
    """The same of a smaller log, in a form that is short to print."""
    small = fill(tmp_path_factory.mktemp("killed"), appends=16, checkpoint_at=9)
    return lambda: small


def refusal(directory):
    with pytest.raises(DamageFound) as caught:
        open_store(directory).close()
    assert "\n" not in caught.value.message
    assert "--accept-damage" in caught.value.message
    return caught.value.message


def accept(directory):
    store = open_store(directory, accepts_damage=True)
    found = values_in(store)
    store.close()
    # It was a single act: the next start finds a log in good order.
    open_store(directory).close()
    return found, store.accepted_missing


def test_flipped_bytes_in_the_middle_of_the_write_ahead_log_are_damage(tmp_path, killed):
    kept, image = killed
    wal = bytearray(image[WAL_NAME])
    for at in range(len(wal) // 2, len(wal) // 2 + 64):
        wal[at] ^= 0xFF
    lay(tmp_path, image | {WAL_NAME: bytes(wal)})
    message = refusal(tmp_path)
    found, missing = accept(tmp_path)
    assert missing == sum(map(len, kept.values())) - sum(map(len, found.values()))
    assert 80 < missing < 120
    assert f"{missing} acknowledged records are missing" in message
    # What was damaged is kept for people.
    assert (tmp_path / f"{WAL_NAME}.damaged-1").read_bytes() == wal


def test_a_deleted_write_ahead_log_is_damage(tmp_path, killed):
    _kept, image = killed
    lay(tmp_path, {name: content for name, content in image.items() if name != WAL_NAME})
    message = refusal(tmp_path)
    assert "200 acknowledged records are missing" in message
    assert refusal(tmp_path) == message
    assert accept(tmp_path) == ({}, 200)


@pytest.mark.parametrize("left", [0, 0.3, 0.7])
def test_a_cut_write_ahead_log_is_damage_by_what_was_acknowledged(tmp_path, killed, left):
    kept, image = killed
    wal = image[WAL_NAME]
    lay(tmp_path, image | {WAL_NAME: wal[: int(len(wal) * left)]})
    message = refusal(tmp_path)
    found, missing = accept(tmp_path)
    assert f"{missing} acknowledged records are missing" in message
    assert missing == sum(map(len, kept.values())) - sum(map(len, found.values())) > 0
    if left:
        assert "of shop.clicks, " in message


@pytest.mark.parametrize("how", ["gone", "empty", "unreadable"])
def test_a_log_without_a_usable_database_begins_anew_only_if_that_is_accepted(
    tmp_path, killed, how
):
    _kept, image = killed
    lay(tmp_path, image)
    database = tmp_path / FILE_NAME
    if how == "gone":
        database.unlink()
    else:
        database.write_bytes(b"" if how == "empty" else b"no database" * 1_000)
    message = refusal(tmp_path)
    assert "200 acknowledged records are missing (200 of topics that are not known)" in message
    assert "once with --accept-damage to begin an empty log" in message
    assert accept(tmp_path) == ({}, 200)


@pytest.mark.parametrize("how", ["gone", "empty", "torn"])
def test_a_log_without_the_file_of_what_was_acknowledged_is_opened(tmp_path, killed, how):
    kept, image = killed
    content = {"gone": None, "empty": b"", "torn": image[ACKNOWLEDGED_NAME][:30]}[how]
    lay(tmp_path, {name: each for name, each in image.items() if name != ACKNOWLEDGED_NAME})
    if content is not None:
        (tmp_path / ACKNOWLEDGED_NAME).write_bytes(content)
    with closing(open_store(tmp_path)) as store:
        assert values_in(store) == kept


def test_a_log_that_has_lost_messages_by_damage_takes_new_ones(tmp_path, killed):
    _kept, image = killed
    lay(tmp_path, image | {WAL_NAME: image[WAL_NAME][:400_000]})
    store = open_store(tmp_path, accepts_damage=True)
    append(store, "shop.orders", b"new")
    assert b"new" in values_in(store)["shop.orders"]
    store.close()


def test_damaged_records_in_the_database_are_passed_over_when_that_is_accepted(tmp_path):
    kept, _image = fill(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection, connection:
        connection.execute("UPDATE chunk SET content = randomblob(50) WHERE rowid % 64 = 3")
        damaged = connection.execute("SELECT total(records) FROM chunk WHERE id % 64 = 3")
        count = int(damaged.fetchone()[0])
        connection.execute("DELETE FROM chunk WHERE id % 64 = 9")
        count += connection.total_changes - count
    message = refusal(tmp_path)
    found, missing = accept(tmp_path)
    assert f"{missing} acknowledged records are missing" in message
    assert missing == count == sum(len(kept[name] - found[name]) for name in TOPICS) > 4


def test_a_partition_ends_before_records_that_were_lost_at_its_end(tmp_path):
    kept, _image = fill(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection, connection:
        connection.execute("UPDATE chunk SET content = randomblob(50)")
    _found, missing = accept(tmp_path)
    assert missing == sum(len(values) for values in kept.values())
    store = open_store(tmp_path)
    (partition,) = store.topics[TOPICS[0]].partitions
    assert (partition.start, partition.end) == (0, 0)
    append(store, TOPICS[0], b"new")
    assert values_in(store)[TOPICS[0]] == {b"new"}
    store.close()


def test_a_start_on_a_full_disk_says_first_that_it_needs_room(tmp_path):
    (tmp_path / f"{ACKNOWLEDGED_NAME}.new").symlink_to("/dev/full")
    with pytest.raises(StartupError, match=r"No space left on device; make room if .* full"):
        open_store(tmp_path)


def test_a_log_that_cannot_be_read_just_now_is_not_called_damaged(tmp_path, killed):
    kept, image = killed
    lay(tmp_path, image)
    path = tmp_path / FILE_NAME
    away = path.rename(tmp_path / "away")
    path.mkdir()
    (path / "file").write_text("so that it has a size")
    with pytest.raises(StartupError, match="disk I/O error; make room") as caught:
        open_store(tmp_path, accepts_damage=True)
    assert not isinstance(caught.value, DamageFound)
    (path / "file").unlink()
    path.rmdir()
    away.rename(path)
    store = open_store(tmp_path)
    assert values_in(store) == kept
    store.close()


def test_what_was_deleted_on_purpose_is_not_missed(tmp_path):
    store = open_store(tmp_path)
    for topic in TOPICS:
        create(store, topic, partitions=3)
        append(store, topic, b"1", b"2", partition=2)
    store.begin()
    store.delete_topic("shop.clicks")
    store.commit()
    images = [image_of(tmp_path)]
    while store.has_chores:
        store.begin()
        store.keep_house()
        store.commit()
        images.append(image_of(tmp_path))
    store.close()
    for image in [*images, image_of(tmp_path)]:
        lay(tmp_path, image)
        store = open_store(tmp_path)
        assert values_in(store) == {"shop.orders": {b"1", b"2"}}
        store.close()


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_acknowledged_is_there_or_its_loss_is_told_in_numbers(
    tmp_path_factory, killed_log, seed
):
    (kept, image), rng = killed_log(), random.Random(seed)
    directory = tmp_path_factory.mktemp("log")
    lay(directory, damaged(rng, image, rng.choice([WAL_NAME, WAL_NAME, FILE_NAME])))
    if find_damage(directory / FILE_NAME) is None:
        store = open_store(directory)
        assert values_in(store) == kept
        store.close()
    else:
        message = refusal(directory)
        found, missing = accept(directory)
        assert f"{missing} acknowledged record" in message
        assert sum(len(kept[topic] - found.get(topic, set())) for topic in TOPICS) <= missing
    shutil.rmtree(directory)


def damaged(rng, image, name):
    """The files, one of which is flipped, cut, zeroed or deleted somewhere."""
    content = bytearray(image[name])
    how = rng.choice(["flip", "flip", "zero", "cut", "delete"])
    if how == "delete":
        return {other: image[other] for other in image if other != name}
    at = rng.randrange(len(content))
    if how == "cut":
        del content[at:]
    for place in range(at, min(at + rng.choice([1, 8, 64, 512, 4_096, 20_000]), len(content))):
        content[place] = 0 if how == "zero" else content[place] ^ 0x55
    return image | {name: bytes(content)}


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_a_power_cut_in_the_middle_of_a_commit_is_never_called_damage(tmp_path_factory, cuts, seed):
    rng = random.Random(seed)
    directory = tmp_path_factory.mktemp("log")
    states = cuts()
    at = rng.randrange(len(states) - 1)
    (kept, before), (_, after) = states[at], states[at + 1]
    # A commit after which frames were moved into the database is looked at without that.
    after = after | {FILE_NAME: before[FILE_NAME]}
    lay(directory, torn(rng, before, after, states[rng.randint(0, at)][1]))
    store = open_store(directory)
    found = values_in(store)
    for topic, values in kept.items():
        assert values <= found[topic]
    store.close()
    shutil.rmtree(directory)


def torn(rng, before, after, earlier):
    """Of what the last commit wrote, any sectors may have reached the disk; the file beside, which
    is not synced, may be of any earlier time. SQLite syncs a new header before the frames.
    """
    old, new = before[WAL_NAME], after[WAL_NAME]
    wal = bytearray(old)
    if old[:32] != new[:32]:
        if rng.random() < 0.1:
            return before
        wal[:32] = new[:32]
        old = bytes(wal)
    for at in range(0, len(new), SECTOR_BYTES):
        if new[at : at + SECTOR_BYTES] != old[at : at + SECTOR_BYTES] and rng.random() < 0.5:
            wal += bytes(max(at + SECTOR_BYTES - len(wal), 0))
            wal[at : at + SECTOR_BYTES] = new[at : at + SECTOR_BYTES]
    is_old = rng.random() < 0.5
    beside = (earlier if is_old else before)[ACKNOWLEDGED_NAME]
    return before | {WAL_NAME: bytes(wal), ACKNOWLEDGED_NAME: beside}


@pytest.fixture(scope="module")
def cuts(tmp_path_factory):
    """(acknowledged, files) after each commit of a log whose write-ahead log begins anew."""
    directory = tmp_path_factory.mktemp("cuts")
    store = open_store(directory)
    kept = {"shop.orders": set()}
    create(store, "shop.orders")
    store.connection.execute("PRAGMA wal_autocheckpoint = 40")
    states = []
    for number in range(60):
        value = b"%d " % number + random.Random(number).randbytes(number % 7 * 900)
        append(store, "shop.orders", value)
        kept["shop.orders"].add(value)
        states.append(({"shop.orders": set(kept["shop.orders"])}, image_of(directory)))
    store.close()
    return lambda: states


class TickingClock:
    """Each look at it is a quarter of a second after the last."""

    def __init__(self):
        self.at_s = 0.0

    def now_ms(self):
        return 1_000_000

    def monotonic_s(self):
        self.at_s += 0.25
        return self.at_s

    def boottime_s(self):
        return self.monotonic_s()


@pytest.mark.parametrize("how", ["delete", "move", "replace", "delete all"])
@pytest.mark.parametrize("name", [FILE_NAME, WAL_NAME, ACKNOWLEDGED_NAME])
async def test_a_log_whose_files_go_away_while_it_is_open_acknowledges_nothing_more(
    tmp_path, caplog, name, how
):
    directory = tmp_path / "log"
    async with open_embedded_log(directory, "dc1", TickingClock()) as log:
        await log.topics.create("t", TopicSettings())
        batch = [Record(None, b"x", (), 1)]
        assert await log.append("t", 0, batch, Ack.ALL) == [Stored(0)]
        assert log.trouble == ""
        if how == "delete all":
            shutil.rmtree(directory)
        elif how == "delete":
            (directory / name).unlink()
        else:
            (directory / name).rename(directory / "moved")
            if how == "replace":
                shutil.copyfile(directory / "moved", directory / name)
        outcomes = []
        with trio.fail_after(5):
            while not log.trouble:
                outcomes = await log.append("t", 0, batch, Ack.ALL)
        assert all(isinstance(each, UnavailableRecord) for each in outcomes)
        outcomes = await log.append("t", 0, batch, Ack.ALL)
        assert isinstance(outcomes[0], UnavailableRecord)
        assert "was deleted, moved or replaced while the node ran" in outcomes[0].reason
        with pytest.raises(LogUnavailable, match="start it again"):
            await log.topics.create("u", TopicSettings())
        assert len([record for record in caplog.records if "deleted" in record.message]) == 1
