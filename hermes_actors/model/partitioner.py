"""Assigns a key to the same partition every time, and the same as Kafka's own clients."""

from struct import unpack_from

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 (Austin Appleby) with the seed that Kafka's clients use, unsigned."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for word in unpack_from(f"<{whole // 4}I", data):
        k = word * _M & _MASK
        h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """The partition (from 0) of a keyed record among `partitions`.

    The sign bit is cleared before the division, as in Kafka's clients.
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions
