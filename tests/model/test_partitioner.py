"""Keys go where Kafka's own clients put them."""

import pytest

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
