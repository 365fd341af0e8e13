"""An item whose keys part at a remote is sent in parts; what each comes to is the item's fate."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.log.base import Outcome, Stored, UnavailableRecord, UnknownRecord
from hermes_actors.model.partitioner import partition_of
from hermes_actors.publisher.hedging.flight import Attempts, Flight, parts_of

KEYS = st.lists(st.one_of(st.none(), st.binary(max_size=3)), min_size=1, max_size=30)


class Bundle:
    is_done = False
    started_s = 0.0
    key = None

    def __init__(self, count: int, keys: Sequence[bytes | None] | None) -> None:
        self.count = count
        self.keys = keys
        self.body_bytes = 10 * count

    def keep(self) -> bool:
        return False


def attempts_of(count: int, keys: Sequence[bytes | None] | None = None) -> Attempts:
    item = Bundle(count, keys)
    return Attempts(item, Flight([item], 0, 0.0))


@given(KEYS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_each_message_is_in_one_part_with_all_of_its_partition_and_in_order(
    keys, partitions, rng
) -> None:
    attempts = attempts_of(len(keys), keys)
    parts = parts_of(attempts, partitions)
    where = [None if key is None else partition_of(key, partitions) for key in keys]
    assert sorted(place for part in parts for place in part.places) == list(range(len(keys)))
    assert len(parts) == len(set(where))
    assert [part.is_whole for part in parts] == [len(parts) == 1] * len(parts)
    for part in parts:
        assert list(part.places) == sorted(part.places)
        assert {where[place] for place in part.places} == {where[keys.index(part.key)]}

    attempts.sent("dc2")
    rng.shuffle(parts)
    for number, part in enumerate(parts, 1):
        assert attempts.learn("dc2", part.places, [Stored(place) for place in part.places]) == 0
        assert attempts.is_stored == (number == len(parts))
        assert ("dc2" in attempts.unanswered) == (number < len(parts))
    assert attempts.verdict() == [Stored(place) for place in range(len(keys))]


def test_one_key_for_all_is_no_reason_to_part() -> None:
    (part,) = parts_of(attempts_of(3), 1)
    assert part.is_whole


OUTCOMES = st.sampled_from([Stored(1), UnavailableRecord("away"), UnknownRecord("silent")])


@given(st.lists(st.tuples(OUTCOMES, OUTCOMES), min_size=1, max_size=5))
def test_what_any_datacentre_has_stored_is_stored_and_what_two_have_is_a_duplicate(pairs) -> None:
    attempts = attempts_of(len(pairs))
    places = range(len(pairs))
    again = 0
    for dc, found in zip(("dc1", "dc2"), zip(*pairs, strict=True), strict=True):
        attempts.sent(dc)
        again += attempts.learn(dc, places, found)
    both = [type(one) is Stored and type(other) is Stored for one, other in pairs]
    assert again == sum(both)
    for verdict, pair in zip(attempts.verdict(), pairs, strict=True):
        kinds = {type(each) for each in pair}
        expected: type[Outcome] = next(
            kind for kind in (Stored, UnknownRecord, UnavailableRecord) if kind in kinds
        )
        assert type(verdict) is expected


def test_what_is_not_stored_yet_is_unknown_while_an_append_of_it_runs() -> None:
    attempts = attempts_of(2)
    attempts.sent("dc1")
    attempts.sent("dc2")
    assert [type(each) for each in attempts.verdict()] == [UnknownRecord] * 2
    attempts.learn("dc1", [0], [Stored(3)])
    assert [type(each) for each in attempts.verdict()] == [Stored, UnknownRecord]
    attempts.learn("dc1", [1], [UnavailableRecord("away")])
    assert [type(each) for each in attempts.verdict()] == [Stored, UnknownRecord]
    attempts.learn("dc2", [0, 1], [UnavailableRecord("full")] * 2)
    assert attempts.verdict() == [Stored(3), UnavailableRecord("[dc1: away], [dc2: full]")]


def test_what_was_sent_nowhere_is_certainly_not_stored() -> None:
    assert attempts_of(1).verdict() == [UnavailableRecord("not sent")]
