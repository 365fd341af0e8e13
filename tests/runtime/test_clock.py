"""Ids are valid, unique and repeatable; the clocks are the machine's."""

import random
import uuid

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.runtime.clock import IdSource, seeded_ids


@given(seed=st.integers())
def test_an_id_is_a_uuid_of_version_4_in_its_usual_form(seed: int) -> None:
    ids = seeded_ids(random.Random(seed))
    for _ in range(300):
        text = ids.message_id()
        parsed = uuid.UUID(text)
        assert str(parsed) == text
        assert parsed.version == 4
        assert parsed.variant == uuid.RFC_4122


def test_ids_are_unique_across_the_refills_of_the_pool() -> None:
    ids = IdSource()
    assert len({ids.message_id() for _ in range(10_000)}) == 10_000


def test_all_bits_that_are_free_are_random() -> None:
    ids = seeded_ids(random.Random(1))
    numbers = [uuid.UUID(ids.message_id()).int for _ in range(500)]
    always, ever = numbers[0], 0
    for number in numbers:
        always &= number
        ever |= number
    # Six bits are fixed: the version 0100 and the variant 10.
    assert (always ^ ever).bit_count() == 122


def test_the_same_seed_repeats_the_same_ids() -> None:
    first, second = (seeded_ids(random.Random(5)) for _ in range(2))
    assert [first.message_id() for _ in range(600)] == [second.message_id() for _ in range(600)]


def test_entropy_is_taken_for_many_ids_at_a_time() -> None:
    asked: list[int] = []

    def entropy(count: int) -> bytes:
        asked.append(count)
        return random.Random(len(asked)).randbytes(count)

    ids = IdSource(entropy)
    for _ in range(257):
        ids.message_id()
    assert asked == [4096, 4096]
