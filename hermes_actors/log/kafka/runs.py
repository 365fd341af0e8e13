"""Encodes a run of records as one Kafka batch, column by column for speed. Pure.

The format is Kafka's record batch, version 2, uncompressed. tests/log/test_kafka_runs.py checks
that the bytes equal those of aiokafka's encoder.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, pairwise, repeat

from aiokafka.record.util import calc_crc32c

from hermes_actors.model.run import ID_BYTES, ID_HEADER, RecordRun

# Base offset, length of the rest, leader epoch, magic, CRC of the rest.
_FRONT = struct.Struct(">qiibI")
_LENGTH_ENDS_AT = 12
_NO_EPOCH = -1
_MAGIC = 2
# Attributes, last offset, first and last timestamp, producer id and epoch, sequence, count.
_COVERED = struct.Struct(">hiqqqhii")
HEADER_BYTES = _FRONT.size + _COVERED.size
# A record's attributes, and its timestamp relative to the batch's.
_RECORD_FRONT = b"\x00\x00"
_NO_KEY = b"\x01"
# The offsets from which a varint is a byte longer.
_WIDER_AT = (0, 1 << 6, 1 << 13, 1 << 20, 1 << 27)
# Maximum size of a record's length and offset, which precede its body.
_OVERHEAD_BYTES_MAX = 10


def varint(number: int) -> bytes:
    """Encode a number ≥ 0 as Kafka's variable-length integer: seven bits a byte, zigzag."""
    left = number << 1
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(0x80 | left & 0x7F)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def encode_run(
    run: RecordRun, bytes_max: int, producer_id: int, epoch: int, sequence: int
) -> tuple[bytes, int]:
    """Encode the first records of a run as one batch of at most `bytes_max` bytes, but at least one
    record. Returns the batch and its number of records.
    """
    front, back = _headers(run)
    lengths = list(map(len, run.values))
    key_fields, bodies = _key_fields(run, lengths, len(front) + ID_BYTES + len(back))
    count = _fitting(bodies, bytes_max - HEADER_BYTES)
    if count < len(run):
        run, lengths, bodies = run[:count], lengths[:count], bodies[:count]
    value_fields = {length: varint(length) for length in set(lengths)}
    columns = [
        key_fields,
        map(value_fields.__getitem__, lengths),
        run.values,
        repeat(front),
        run.ids,
        repeat(back),
    ]
    records = zip(_lengths(bodies), _offsets(count), *columns, strict=False)
    covered = _COVERED.pack(
        0, count - 1, run.timestamp_ms, run.timestamp_ms, producer_id, epoch, sequence, count
    )
    data = b"".join(chain((covered,), chain.from_iterable(records)))
    length = _FRONT.size - _LENGTH_ENDS_AT + len(data)
    return _FRONT.pack(0, length, _NO_EPOCH, _MAGIC, calc_crc32c(data)) + data, count


def _headers(run: RecordRun) -> tuple[bytes, bytes]:
    """Encode the part of each record's headers before its id and the part after it."""
    front = varint(len(run.headers) + 1) + _bytes_field(ID_HEADER.encode()) + varint(ID_BYTES)
    back = [_bytes_field(name.encode()) + _bytes_field(value) for name, value in run.headers]
    return front, b"".join(back)


def _bytes_field(value: bytes) -> bytes:
    return varint(len(value)) + value


def _key_fields(
    run: RecordRun, lengths: list[int], headers_bytes: int
) -> tuple[Iterable[bytes], list[int]]:
    """Return each record's encoded key, and each record's size without its length and offset."""
    fixed = len(_RECORD_FRONT) + headers_bytes
    keys = run.keys
    if keys is None or isinstance(keys, bytes):
        field = _NO_KEY if keys is None else _bytes_field(keys)
        fixed += len(field)
        by_length = {each: fixed + each + len(varint(each)) for each in set(lengths)}
        return repeat(field), list(map(by_length.__getitem__, lengths))
    fields = {key: _NO_KEY if key is None else _bytes_field(key) for key in set(keys)}
    of_each = list(map(fields.__getitem__, keys))
    by_length = {each: fixed + each + len(varint(each)) for each in set(lengths)}
    return of_each, [by_length[n] + len(key) for n, key in zip(lengths, of_each, strict=True)]


def _fitting(bodies: list[int], bytes_max: int) -> int:
    """Return how many records fit; at least one."""
    if sum(bodies) + _OVERHEAD_BYTES_MAX * len(bodies) <= bytes_max:
        return len(bodies)
    left = bytes_max
    for at, body in enumerate(bodies):
        size = body + len(varint(at))
        left -= size + len(varint(size))
        if left < 0:
            return max(at, 1)
    return len(bodies)


def _lengths(bodies: list[int]) -> Iterable[bytes]:
    """Encode each record's length, attributes and timestamp."""
    parts: list[Iterable[bytes]] = []
    for width, (start, end) in enumerate(pairwise((*_WIDER_AT, len(bodies))), 1):
        part = bodies[start:end]
        if part:
            fields = {body: varint(body + width) + _RECORD_FRONT for body in set(part)}
            parts.append(map(fields.__getitem__, part))
    return chain.from_iterable(parts)


@lru_cache(maxsize=4)
def _offsets_below(bound: int) -> tuple[bytes, ...]:
    return tuple([varint(number) for number in range(bound)])


def _offsets(count: int) -> tuple[bytes, ...]:
    # Rounded up to a power of two, so that few sizes need to be cached.
    return _offsets_below(1 << max(count - 1, 1).bit_length())
