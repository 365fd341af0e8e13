"""The index finds what the logs hold, within its bounds, whatever happens to its files."""

import pytest

from hermes_actors.tracking.buffer import TrackingBuffer
from hermes_actors.tracking.events import EventKind, TrackingBatch, TrackingEvent
from hermes_actors.tracking.index import (
    SHOWN_MAX,
    IndexedBatch,
    IndexUnavailable,
    TrackingIndex,
)


def batch(sequence, *ids, boot="boot", node="one", at_ms=7, dropped=0):
    events = tuple(
        TrackingEvent(EventKind.PUBLISHED, each, "shop.orders", at_ms, "dc1") for each in ids
    )
    return IndexedBatch(at_ms, TrackingBatch("dc1", node, boot, sequence, dropped, events))


def opened(directory, bytes_max=100_000_000):
    return TrackingIndex(directory, bytes_max=bytes_max)


def take(index, batches, position):
    index.take("dc1", batches, index.begin("dc1"), position)


def ids(index, message_id):
    return [(each.event.message_id, each.node) for each in index.find(message_id).events]


@pytest.mark.parametrize("message_id", ["€" * 255, "\x00\n\t'\";--", "ᴀ\u202e💥" * 60])
def test_odd_ids_are_found_again(message_id, tmp_path):
    waits = TrackingBuffer("dc1", "one", "boot", events_max=5)
    waits.add(TrackingEvent(EventKind.DELIVERED, message_id, "shop.orders", 7, "dc1"))
    index = opened(tmp_path)
    take(index, [IndexedBatch(7, waits.next_batch())], 1)
    assert ids(index, message_id) == [(message_id, "one")]


def test_it_goes_on_after_a_restart_where_it_was(tmp_path):
    index = opened(tmp_path)
    take(index, [batch(0, "m1")], 5)
    index.close()
    index = opened(tmp_path)
    assert index.begin("dc1") == 5
    assert index.begin("dc2") is None
    assert index.begin("dc1", is_changed=True) is None
    assert ids(index, "m1") == [("m1", "one")]


def test_a_batch_that_was_appended_twice_is_taken_in_once_and_a_missing_one_is_a_gap():
    index = opened(None)
    take(index, [batch(0, "m1"), batch(0, "m1"), batch(3, "m1")], 3)
    found = index.find("m1")
    assert len(found.events) == 2
    (gap,) = found.gaps
    assert (gap.missing, gap.dropped) == (2, 0)


def test_a_gap_is_named_for_the_messages_that_it_may_concern():
    index = opened(None)
    minute_ms = 60_000
    lost = [0, 3, 3, 5]
    # The second one waited half an hour for the log: that is when the three were dropped.
    batches = [
        batch(number, f"m{number}", at_ms=at_ms, dropped=lost[number])
        for number, at_ms in enumerate([10 * minute_ms, 40 * minute_ms, 90 * minute_ms])
    ]
    last = batch(3, "m3", at_ms=95 * minute_ms, dropped=lost[3])
    take(index, [*batches, last], 4)
    for message_id, expected in (("m0", 5), ("m3", 5), ("nobody's", 5)):
        (gap,) = index.find(message_id).gaps
        assert gap.dropped == expected, message_id
    assert (gap.since_ms, gap.until_ms) == (10 * minute_ms, 95 * minute_ms)
    take(index, [batch(4, "m4", at_ms=200 * minute_ms, dropped=lost[3])], 5)
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
    later = TrackingBatch("dc1", "one", "boot", 1, 1, (event,))
    take(index, [batch(0, dropped=1), IndexedBatch(9_000_000, later)], 2)
    assert [each.dropped for each in index.find("m").gaps] == [1]


def test_two_nodes_of_one_name_are_two_lives():
    index = opened(None)
    take(index, [batch(0, "m1"), batch(0, "m1", boot="other"), batch(1, boot="other")], 3)
    found = index.find("m1")
    assert len(found.events) == 2
    assert found.gaps == []


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


def test_a_damaged_file_is_deleted_and_the_log_is_read_again(tmp_path):
    index = opened(tmp_path)
    take(index, [batch(0, "m1")], 5)
    index.close()
    (path,) = tmp_path.glob("tracking-*.sqlite")
    path.write_bytes(b"no database at all " * 1_000)
    index = opened(tmp_path)
    with pytest.raises(IndexUnavailable, match="damaged"):
        index.find("m1")
    with pytest.raises(IndexUnavailable, match="anew"):
        index.take("dc1", [batch(1, "m2")], 5, 6)
    take(index, [batch(0, "m1")], 1)
    assert ids(index, "m1") == [("m1", "one")]


def test_a_full_disk_loses_nothing(tmp_path):
    index = opened(tmp_path)
    take(index, [batch(0, "m1")], 1)
    connection = index._connection
    (pages,) = connection.execute("pragma page_count").fetchone()
    connection.execute(f"pragma max_page_count={pages}")
    names = [f"n{each}" for each in range(2_000)]
    with pytest.raises(IndexUnavailable, match="full"):
        take(index, [batch(1, *names)], 2)
    assert index.begin("dc1") == 1
    connection.execute("pragma max_page_count=1000000")
    take(index, [batch(1, *names)], 2)
    assert ids(index, "n1999") == [("n1999", "one")]


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(IndexUnavailable):
        opened(tmp_path / "file" / "index").begin("dc1")


def test_of_a_message_with_many_events_the_first_the_last_and_all_ends_are_found():
    index = opened(None)
    kinds = [EventKind.INFLIGHT] * SHOWN_MAX + [EventKind.FAILED] * 50
    kinds += [EventKind.DEAD, EventKind.FAILED] + [EventKind.INFLIGHT] * SHOWN_MAX
    events = tuple(
        TrackingEvent(kind, "m", "shop.orders", at, "dc1", "billing")
        for at, kind in enumerate(kinds)
    )
    take(index, [IndexedBatch(7, TrackingBatch("dc1", "one", "boot", 0, 0, events))], 1)
    found = index.find("m")
    assert [each.event.kind for each in found.events] == [
        *kinds[:SHOWN_MAX],
        EventKind.DEAD,
        *kinds[-SHOWN_MAX:],
    ]
    assert found.left_out == 51
