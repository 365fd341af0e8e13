import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.status import fold as folding
from hermes_actors.status.fold import FORGET_AFTER_S, GONE_AFTER_S, LEFT_SHOWN_S, StatusFold
from hermes_actors.status.record import NodeHeader, Published, StatusRecord, TopicStatus


@pytest.fixture
def fold():
    made = StatusFold()
    made.report("dc1", "", 0, 0.0)
    return made


def only(fold, now_s):
    (view,) = fold.nodes(now_s)
    return view


def test_a_node_is_there_until_it_has_been_silent_for_long_and_forgotten_later(fold, record):
    fold.take("dc1", record(), 100.0)
    assert only(fold, 101.5).is_there
    assert only(fold, 101.5).age_s == 1.5
    assert only(fold, 100 + GONE_AFTER_S - 0.1).is_there
    assert only(fold, 100 + GONE_AFTER_S).is_gone
    fold.forget(100 + FORGET_AFTER_S)
    assert only(fold, 0).header.node == "n1"
    fold.forget(100 + FORGET_AFTER_S + 1)
    assert fold.nodes(0) == []


def test_a_node_that_left_is_not_there(fold, record):
    fold.take("dc1", record(is_leaving=True), 0.0)
    assert not only(fold, 0.0).is_there
    assert not only(fold, 0.0).is_gone


@pytest.mark.parametrize(("spooled", "shown_s"), [(0, LEFT_SHOWN_S), (12, FORGET_AFTER_S)])
def test_a_node_that_left_is_soon_forgotten_unless_it_left_messages(fold, record, spooled, shown_s):
    # A deployment's pods have new names at each start: a hundred of them would fill every screen.
    fold.take("dc1", record(is_leaving=True, spooled=spooled), 100.0)
    fold.forget(100 + shown_s)
    assert only(fold, 0).header.spooled == spooled
    fold.forget(100 + shown_s + 1)
    assert fold.nodes(0) == []


def test_while_a_datacentre_cannot_be_read_its_nodes_are_unknown_and_after_it_get_time(
    fold, record
):
    fold.take("dc1", record(), 0.0)
    fold.report("dc1", "the log does not answer", 5_000, 5.0)
    fold.report("dc1", "the log is unavailable", 9_000, 9.0)
    assert fold.unknown == ["dc1"]
    assert (fold.readings["dc1"].since_ms, fold.readings["dc1"].trouble) == (
        5_000,
        "the log is unavailable",
    )
    view = only(fold, 60.0)
    assert (view.is_unknown, view.is_there, view.age_s) == (True, False, 60.0)
    fold.report("dc1", "", 61_000, 61.0)
    assert only(fold, 62.0).is_there
    assert only(fold, 61 + GONE_AFTER_S).is_gone


def test_a_datacentre_that_nobody_reads_is_unknown(record):
    fold = StatusFold()
    fold.take("dc9", record(), 0.0)
    assert only(fold, 0.0).is_unknown


def test_a_new_process_replaces_the_old_one_and_its_entries(fold, record):
    fold.take("dc1", record(sequence=900, topics=["a.b"], subscriptions=["a.b$c"]), 0.0)
    assert fold.take("dc1", record(boot="b2", sequence=1, topics=["a.c"]), 0.1)
    assert only(fold, 1.0).header.boot_id == "b2"
    assert list(fold.topic("a.b", 1.0)) == []
    assert list(fold.subscription("a.b$c", 1.0)) == []
    assert len(list(fold.topic("a.c", 1.0))) == 1


def test_a_late_record_of_the_old_process_is_ignored_and_one_that_goes_on_is_a_rival(fold, record):
    fold.take("dc1", record(sequence=900), 0.0)
    fold.take("dc1", record(boot="b2"), 0.1)
    assert not fold.take("dc1", record(sequence=901), 0.2)
    assert (only(fold, 1.0).header.boot_id, only(fold, 1.0).has_rival) == ("b2", False)
    # A log that is read anew gives it once more.
    assert not fold.take("dc1", record(sequence=901), 0.2)
    assert not only(fold, 1.0).has_rival
    assert not fold.take("dc1", record(sequence=902), 0.3)
    assert only(fold, 1.0).has_rival
    assert not only(fold, 0.3 + GONE_AFTER_S).has_rival


def test_the_old_process_counts_again_when_the_new_one_has_gone(fold, record):
    fold.take("dc1", record(sequence=1), 0.0)
    fold.take("dc1", record(boot="b2"), 1.0)
    for second in range(2, 20):
        fold.take("dc1", record(sequence=second), float(second))
    assert only(fold, 19.0).header.boot_id == "b1"


def test_an_entry_that_two_rounds_do_not_name_is_gone(fold, record):
    fold.take("dc1", record(sequence=1, in_round=1, topics=["a.a", "a.b"]), 0.0)
    fold.take("dc1", record(sequence=2, in_round=1, topics=["a.c"]), 0.0)
    fold.take("dc1", record(sequence=3, in_round=2, topics=["a.a"]), 0.0)
    assert [len(list(fold.topic(name, 0.0))) for name in ("a.a", "a.b", "a.c")] == [1, 1, 1]
    fold.take("dc1", record(sequence=4, in_round=3, topics=["a.a"]), 0.0)
    assert [len(list(fold.topic(name, 0.0))) for name in ("a.a", "a.b", "a.c")] == [1, 0, 0]


def test_the_longest_silent_node_makes_room(fold, record, monkeypatch):
    monkeypatch.setattr(folding, "NODES_MAX", 3)
    for at, node in enumerate(["n3", "n1", "n2", "n4"]):
        fold.take("dc1", record(node), float(at))
    assert [view.header.node for view in fold.nodes(4.0)] == ["n1", "n2", "n4"]


def test_a_nodes_entries_are_bounded(fold, record, monkeypatch):
    monkeypatch.setattr(folding, "ENTRIES_MAX", 2)
    fold.take("dc1", record(topics=["a.a", "a.b", "a.c"]), 0.0)
    assert [len(list(fold.topic(name, 0.0))) for name in ("a.a", "a.b", "a.c")] == [1, 1, 0]


def status(node, boot, sequence, topics):
    return StatusRecord(
        NodeHeader(node=node, dc="dc1", boot_id=boot, sequence=sequence, round=sequence),
        tuple(TopicStatus(name, Published(sequence)) for name in topics),
    )


@st.composite
def histories(draw):
    """Records as a log holds them: nodes interleaved, each restarted now and then."""
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from("xyz"), st.booleans(), st.sets(st.sampled_from("abc"))),
            max_size=30,
        )
    )
    boots, sequences, history = {}, {}, []
    for node, restarts, topics in steps:
        if restarts or node not in boots:
            boots[node] = boots.get(node, 0) + 1
            sequences[node] = 0
        sequences[node] += 1
        history.append(status(node, f"{node}{boots[node]}", sequences[node], sorted(topics)))
    return history


def told(fold):
    topics = {
        name: [(view.header.node, entry.counts.messages) for view, entry in fold.topic(name, 0.0)]
        for name in "abc"
    }
    return [view.header for view in fold.nodes(0.0)], topics


@given(histories(), st.data())
def test_repeats_and_late_records_change_nothing(history, data):
    plain, disturbed = StatusFold(), StatusFold()
    for at, record in enumerate(history):
        plain.take("dc1", record, 0.0)
        assert disturbed.take("dc1", record, 0.0)
        for back in data.draw(st.lists(st.integers(0, at), max_size=3)):
            earlier = history[back].header
            newest = [each.header for each in history[: at + 1] if each.header.node == earlier.node]
            # Of a node's processes the newest and the one before are remembered.
            if int(newest[-1].boot_id[1:]) - int(earlier.boot_id[1:]) <= 1:
                assert not disturbed.take("dc1", history[back], 0.0)
    assert told(disturbed) == told(plain)


@given(histories())
def test_the_fold_shows_the_last_record_of_each_node(history):
    fold = StatusFold()
    for record in history:
        fold.take("dc1", record, 0.0)
    last = {record.header.node: record.header for record in history}
    assert [view.header for view in fold.nodes(0.0)] == [last[node] for node in sorted(last)]
    for name in "abc":
        for view, entry in fold.topic(name, 0.0):
            # At most one round older than the node's newest record.
            assert view.header.sequence - entry.counts.messages <= 1


@given(histories(), st.permutations(["dc1", "dc2"]))
def test_datacentres_do_not_touch_each_other(history, order):
    both, alone = StatusFold(), StatusFold()
    for record in history:
        for dc in order:
            both.take(dc, record, 0.0)
        alone.take("dc1", record, 0.0)
    assert len(both.nodes(0.0)) == 2 * len(alone.nodes(0.0))
    assert [view.header for view in both.nodes(0.0)][: len(alone.nodes(0.0))] == [
        view.header for view in alone.nodes(0.0)
    ]
