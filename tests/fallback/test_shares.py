"""An item whose keys part at a remote is sent in shares, and known when all of them have ended."""

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.fallback.flight import Flight, Flying
from hermes_actors.fallback.shares import Share, shares_of, whole_outcomes
from hermes_actors.log.base import Outcome, Stored, UnavailableRecord
from hermes_actors.model.partitioner import partition_of

KEYS = st.lists(st.one_of(st.none(), st.binary(max_size=3)), min_size=1, max_size=30)


class Bundle:
    is_done = False
    started_s = 0.0
    key = None

    def __init__(self, count: int) -> None:
        self.count = count
        self.body_bytes = 10 * count


def flying_of(count: int) -> Flying:
    item = Bundle(count)
    return Flying(item, Flight([item], 0, 0.0))


@given(KEYS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_each_message_is_in_one_share_with_all_of_its_partition_and_in_order(
    keys, partitions, rng
) -> None:
    flying = flying_of(len(keys))
    shares = shares_of(flying, keys, lambda key: partition_of(key, partitions))
    where = [None if key is None else partition_of(key, partitions) for key in keys]
    if len(set(where)) == 1:
        assert shares == []
        return
    assert sorted(place for share in shares for place in share.places) == list(range(len(keys)))
    for share in shares:
        assert list(share.places) == sorted(share.places)
        assert len({where[place] for place in share.places}) == 1
    assert len(shares) == len(set(where))

    rng.shuffle(shares)
    for at, share in enumerate(shares):
        found: list[Outcome] = [Stored(place) for place in share.places]
        ended, outcomes = whole_outcomes([share], found)
        if at < len(shares) - 1:
            assert ended == []
        else:
            assert ended == [flying]
            assert outcomes == [Stored(place) for place in range(len(keys))]


def test_items_and_shares_of_one_append_keep_their_outcomes() -> None:
    plain, parted = flying_of(1), flying_of(2)
    first, second = shares_of(parted, [b"a", None], lambda _key: 1)
    lost = UnavailableRecord("gone")
    assert whole_outcomes([second], [lost]) == ([], [])
    ended, outcomes = whole_outcomes([plain, first], [Stored(7), Stored(8)])
    assert ended == [plain, parted]
    assert outcomes == [Stored(7), Stored(8), lost]
    assert isinstance(first, Share)


def test_one_key_for_all_is_no_reason_to_part() -> None:
    assert shares_of(flying_of(3), None, lambda _key: 0) == []
