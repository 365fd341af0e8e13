"""Keys go where Kafka's own clients put them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.model.partitioner import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_equal_those_of_the_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


def test_a_negative_hash_loses_its_sign_bit_before_the_division() -> None:
    assert partition_of(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10


@given(st.binary(max_size=200), st.integers(1, 1_000))
def test_a_key_has_one_partition_within_range(key: bytes, partitions: int) -> None:
    partition = partition_of(key, partitions)
    assert 0 <= partition < partitions
    assert partition == partition_of(bytes(key), partitions)


def test_keys_are_spread_over_all_partitions() -> None:
    hits = [0] * 10
    for number in range(10_000):
        hits[partition_of(b"customer-%d" % number, 10)] += 1
    assert min(hits) > 800
    assert max(hits) < 1_200
