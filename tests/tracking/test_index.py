"""The index finds what the logs hold, within its bounds, whatever happens to its files."""

import resource
import signal
from contextlib import contextmanager

import pytest

from hermes_actors.tracking import index as index_module
from hermes_actors.tracking.buffer import TrackingBuffer
from hermes_actors.tracking.events import EventKind, TrackingBatch, TrackingEvent, UntoldEvents
from hermes_actors.tracking.index import (
    IndexedBatch,
    IndexRestarted,
    IndexUnavailable,
    TrackingIndex,
)

DAY_MS = 86_400_000
NOTHING_LOST = UntoldEvents()


def batch(sequence, *ids, boot="boot", node="one", at_ms=7, losses=NOTHING_LOST, **fields):
    events = tuple(
        TrackingEvent(EventKind.PUBLISHED, each, "shop.orders", at_ms, "dc1") for each in ids
    )
    return IndexedBatch(
        at_ms, TrackingBatch("dc1", node, boot, sequence, 0, losses, events, **fields)
    )


def opened(directory, bytes_max=100_000_000, days_max=3):
    return TrackingIndex(directory, bytes_max=bytes_max, days_max=days_max)


def take(index, batches, position):
    reading, _ = index.begin("dc1")
    index.take(reading, "dc1", batches, position)


def ids(index, message_id):
    return [(each.event.message_id, each.node) for each in index.find(message_id).events]


@pytest.mark.parametrize(
    "message_id", ["€" * 255, "a/b c?#%00", "\x00\n\t'\";--", "ᴀ\u202e💥" * 60]
)
def test_odd_ids_are_found_again(message_id, tmp_path):
    waits = TrackingBuffer("dc1", "one", "boot", events_max=5)
    waits.add(TrackingEvent(EventKind.DELIVERED, message_id, "shop.orders", 7, "dc1"))
    index = opened(tmp_path)
    take(index, [IndexedBatch(7, waits.farewell())], 1)
    assert ids(index, message_id) == [(message_id, "one")]


def test_it_goes_on_after_a_restart_where_it_was(tmp_path):
    index = opened(tmp_path)
    take(index, [batch(0, "m1")], 5)
    index.close()
    index = opened(tmp_path)
    assert index.begin("dc1") == (0, 5)
    assert index.begin("dc2") == (0, None)
    assert ids(index, "m1") == [("m1", "one")]


def test_files_of_another_version_are_removed_and_the_logs_read_again(tmp_path):
    for name in ("tracking-00000001.sqlite", "tracking-1-00000002.sqlite-wal"):
        (tmp_path / name).write_bytes(b"tables that this program does not know")
    index = opened(tmp_path)
    assert index.begin("dc1") == (0, None)
    take(index, [batch(0, "m1")], 5)
    assert ids(index, "m1") == [("m1", "one")]
    assert {each.name[:11] for each in tmp_path.iterdir()} == {"tracking-2-"}


def test_a_batch_that_was_appended_twice_is_taken_in_once_and_a_missing_one_is_a_gap():
    index = opened(None)
    take(index, [batch(0, "m1"), batch(0, "m1"), batch(3, "m1", is_last=True)], 3)
    found = index.find("m1")
    assert len(found.events) == 2
    (gap,) = found.gaps
    assert (gap.missing, gap.dropped) == (2, 0)


def test_a_gap_is_named_for_the_messages_that_it_may_concern():
    index = opened(None)
    minute_ms = 60_000
    lost = [UntoldEvents(), UntoldEvents(3, 1), UntoldEvents(3, 1), UntoldEvents(5, 1)]
    # The second one waited half an hour for the log: that is when the three were dropped.
    batches = [
        batch(number, f"m{number}", at_ms=at_ms, losses=lost[number])
        for number, at_ms in enumerate([10 * minute_ms, 40 * minute_ms, 90 * minute_ms])
    ]
    last = batch(3, "m3", at_ms=95 * minute_ms, losses=lost[3])
    take(index, [*batches, last], 4)
    for message_id, expected in (("m0", 5), ("m1", 5), ("m2", 2), ("m3", 2), ("nobody's", 5)):
        (gap,) = index.find(message_id).gaps
        assert gap.dropped == expected, message_id
    assert (gap.since_ms, gap.until_ms, gap.dropped_terminal) == (
        10 * minute_ms,
        95 * minute_ms,
        1,
    )
    take(index, [batch(4, "m4", at_ms=200 * minute_ms, losses=lost[3])], 5)
    assert index.find("m4").gaps == []


@pytest.mark.parametrize(
    "told",
    [
        {"kind": EventKind.DELIVERED, "subscription": "billing"},
        {"kind": EventKind.PUBLISHED, "via": "spool"},
    ],
)
def test_all_gaps_are_named_where_nobody_knows_when_the_message_began(told):
    index = opened(None)
    event = TrackingEvent(message_id="m", topic="shop.orders", at_ms=9_000_000, dc="dc1", **told)
    lost = UntoldEvents(1)
    later = TrackingBatch("dc1", "one", "boot", 1, 0, lost, (event,))
    take(index, [batch(0, losses=lost), IndexedBatch(9_000_000, later)], 2)
    assert [each.dropped for each in index.find("m").gaps] == [1]


def test_two_nodes_of_one_name_are_two_lives():
    index = opened(None)
    take(index, [batch(0, "m1"), batch(0, "m1", boot="other"), batch(1, boot="other")], 3)
    found = index.find("m1")
    assert len(found.events) == 2
    assert found.gaps == []


def test_old_days_go_and_a_clock_that_was_set_back_makes_no_files(tmp_path):
    index = opened(tmp_path)
    for day in (0, 1, 0, 1, 2, 1, 5):
        take(index, [batch(day, f"m{day}", boot=f"b{day}", at_ms=day * DAY_MS + 7)], day)
    assert len(list(tmp_path.glob("*.sqlite"))) == 2
    assert ids(index, "m0") == []
    assert ids(index, "m5") == [("m5", "one")]


def test_it_takes_no_more_than_its_bytes(tmp_path):
    index = opened(tmp_path, bytes_max=2_000_000)
    for number in range(60):
        names = [f"m{number}-{each}" for each in range(1_000)]
        take(index, [batch(number, *names)], number)
    taken = sum(each.stat().st_size for each in tmp_path.glob("*.sqlite"))
    assert taken <= 2_500_000
    assert ids(index, "m0-0") == []
    assert ids(index, "m59-0") == [("m59-0", "one")]
    # What one file said is carried on.
    assert index.find("m59-0").gaps == []


def test_a_damaged_file_is_set_aside_and_the_log_is_read_again(tmp_path):
    index = opened(tmp_path)
    take(index, [batch(0, "m1")], 5)
    index.close()
    (path,) = tmp_path.glob("tracking-*.sqlite")
    path.write_bytes(b"no database at all " * 1_000)
    index = opened(tmp_path)
    with pytest.raises(IndexRestarted):
        index.find("m1")
    assert index.set_aside == 1
    assert [each.name[:8] for each in tmp_path.glob("damaged-*.sqlite")] == ["damaged-"]
    reading, position = index.begin("dc1")
    assert position is None
    with pytest.raises(IndexRestarted):
        index.take(reading - 1, "dc1", [batch(0, "m1")], 1)
    index.take(reading, "dc1", [batch(0, "m1")], 1)
    assert ids(index, "m1") == [("m1", "one")]


def test_a_full_disk_loses_nothing(tmp_path):
    index = opened(tmp_path)
    take(index, [batch(0, "m1")], 1)
    connection = index._segments[-1].connection
    (pages,) = connection.execute("pragma page_count").fetchone()
    connection.execute(f"pragma max_page_count={pages}")
    names = [f"n{each}" for each in range(2_000)]
    with pytest.raises(IndexUnavailable, match="full"):
        take(index, [batch(1, *names)], 2)
    assert index.begin("dc1") == (0, 1)
    connection.execute("pragma max_page_count=1000000")
    take(index, [batch(1, *names)], 2)
    assert ids(index, "n1999") == [("n1999", "one")]


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(IndexUnavailable):
        opened(tmp_path / "file" / "index").begin("dc1")


def of_attempts(sequence, subscription, begun_ms, count, *, end=None):
    kinds = [EventKind.INFLIGHT, EventKind.FAILED] * count + ([end] if end else [])
    events = tuple(
        TrackingEvent(kind, "m", "shop.orders", begun_ms + at, "dc1", subscription)
        for at, kind in enumerate(kinds)
    )
    return IndexedBatch(
        begun_ms, TrackingBatch("dc1", "one", "boot", sequence, 0, NOTHING_LOST, events)
    )


def test_of_a_message_that_failed_for_long_the_ends_the_first_and_the_last_are_found():
    index = opened(None)
    batches = [
        of_attempts(0, "mail", 50, 1, end=EventKind.DELIVERED),
        of_attempts(1, "billing", 100, 2_000),
        of_attempts(2, "billing", 9_000, 300, end=EventKind.DEAD),
    ]
    take(index, batches, 3)
    found = index.find("m")
    ends = [
        (each.event.subscription, each.event.kind)
        for each in found.events
        if each.event.is_terminal
    ]
    assert ends == [("mail", EventKind.DELIVERED), ("billing", EventKind.DEAD)]
    told = [each.event.at_ms for each in found.events if each.event.subscription == "billing"]
    assert told == [*range(100, 200), *range(9_500, 9_601)]
    assert found.left_out == {("shop.orders", "billing"): 4_600 - 200}
    assert not found.is_cut


def test_what_is_looked_at_for_one_message_is_bounded_and_that_is_said(monkeypatch):
    monkeypatch.setattr(index_module, "LOOKED_AT_MAX", 50)
    index = opened(None)
    take(index, [of_attempts(0, "billing", 100, 25)], 1)
    assert not index.find("m").is_cut
    take(index, [of_attempts(1, "billing", 200, 1)], 2)
    assert index.find("m").is_cut


def test_a_disk_that_is_full_at_midnight_leaves_no_file_for_each_try(tmp_path):
    index = opened(tmp_path)
    take(index, [batch(0, "m1", at_ms=DAY_MS)], 1)
    with no_room_for_more():
        for _ in range(3):
            with pytest.raises(IndexUnavailable):
                take(index, [batch(1, "m2", at_ms=2 * DAY_MS)], 2)
        assert len(list(tmp_path.glob("*.sqlite"))) == 1
    take(index, [batch(1, "m2", at_ms=2 * DAY_MS)], 2)
    index.close()
    assert len(list(tmp_path.glob("*.sqlite"))) == 2
    index = opened(tmp_path)
    assert index.begin("dc1") == (0, 2)
    assert ids(index, "m1") == [("m1", "one")]
    assert ids(index, "m2") == [("m2", "one")]


def test_a_log_that_was_made_anew_is_read_on_from_where_it_was_read_to(tmp_path):
    index = opened(tmp_path)
    take(index, [batch(0, "m1", at_ms=DAY_MS)], 1_000)
    take(index, [batch(1, "m2", at_ms=2 * DAY_MS)], 1_001)
    take(index, [batch(0, "m3", boot="other", at_ms=2 * DAY_MS)], 10)
    index.close()
    assert opened(tmp_path).begin("dc1") == (0, 10)


@contextmanager
def no_room_for_more():
    """Files may be made and not grow, as on a full disk."""
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
