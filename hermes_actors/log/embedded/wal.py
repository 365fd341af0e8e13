"""SQLite's write-ahead log, read without SQLite: is its end a torn write, or is it damaged?

SQLite takes the frames of a write-ahead log up to the first that is not whole, and says nothing of
those behind it. Every transaction is synced before the next one is begun, so a crash can cut off
the last one alone: a frame that is not whole before the end of a transaction that others follow
was whole once. The format is https://www.sqlite.org/fileformat2.html#the_write_ahead_log.
"""

import struct
import sys
from array import array
from collections.abc import Iterator
from functools import lru_cache
from operator import mul
from pathlib import Path
from typing import IO

from msgspec import Struct

_HEADER = struct.Struct(">IIIIIIII")  # magic, version, page, number, salts, checksums
_FRAME = struct.Struct(">IIIIII")  # page, pages of the file if it commits, salts, checksums
_MAGIC = 0x377F0682
_PAGE_BYTES = frozenset(1 << power for power in range(9, 17))
_MASK = 0xFFFFFFFF

Sums = tuple[int, int]


class WalDamage(Struct, frozen=True):
    """The byte where damage begins, and how many transactions can be told apart from there on."""

    at: int
    transactions: int


def find_damage(path: Path) -> WalDamage | None:
    """Find the place that was whole once and is not; None for a write-ahead log that is whole or
    torn.

    Raises OSError. Nothing may be writing to it.
    """
    with path.open("rb") as file:
        start = file.read(_HEADER.size)
        if len(start) < _HEADER.size or not file.read(1):
            return None  # Nothing has been written behind the header.
        page_bytes, order, sums = _read_header(start)
        file.seek(_HEADER.size)
        if sums is None:
            # The header is synced before the first frame is written.
            return WalDamage(0, sum(commits for commits, _ in _headers(file, page_bytes, None)))
        salts = start[16:24]
        whole = 0
        while (data := file.read(_FRAME.size + page_bytes)) and len(data) > _FRAME.size:
            found = _next_sums(data, page_bytes, order, salts, sums)
            if found is None:
                break
            sums = found
            whole += 1
        at = _HEADER.size + whole * (_FRAME.size + page_bytes)
        file.seek(at)
        return _damage_behind(_headers(file, page_bytes, salts), at)


def _damage_behind(headers: Iterator[tuple[bool, bool]], at: int) -> WalDamage | None:
    """Damage when a transaction ends behind the frame that is not whole, and another begins."""
    commits = 0
    is_followed = False
    for does_commit, is_of_this in headers:
        if is_of_this:
            is_followed = is_followed or commits > 0
            commits += does_commit
    return WalDamage(at, commits) if is_followed else None


def _read_header(start: bytes) -> tuple[int, str, Sums | None]:
    """(bytes of a page, order of bytes in checksums, its sums; None when they do not match)."""
    magic, _version, page_bytes, _number, _salt1, _salt2, *sums = _HEADER.unpack(start)
    order = "big" if magic & 1 else "little"
    if magic & ~1 != _MAGIC or page_bytes not in _PAGE_BYTES:
        return 4_096, order, None
    computed = _add(start[:24], order, (0, 0))
    return page_bytes, order, computed if list(computed) == sums else None


def _headers(file: IO[bytes], page_bytes: int, salts: bytes | None) -> Iterator[tuple[bool, bool]]:
    """(ends a transaction, has these salts) of each frame; the first one's salts for None."""
    while len(head := file.read(_FRAME.size)) == _FRAME.size:
        salts = head[8:16] if salts is None else salts
        is_of_this = head[8:16] == salts and any(head[:4])
        yield is_of_this and any(head[4:8]), is_of_this
        file.seek(page_bytes, 1)


def _next_sums(data: bytes, page_bytes: int, order: str, salts: bytes, sums: Sums) -> Sums | None:
    """The sums with this frame; None when it is not whole."""
    if len(data) < _FRAME.size + page_bytes or data[8:16] != salts or not any(data[:4]):
        return None
    computed = _add(data[:8] + data[_FRAME.size :], order, sums)
    return computed if computed == struct.unpack(">II", data[16:24]) else None


def _add(data: bytes, order: str, sums: Sums) -> Sums:
    """SQLite's checksum, as the linear function that it is: one pass for each of its halves."""
    words = array("I", data)
    if order != sys.byteorder:
        words.byteswap()
    carried, weights0, weights1 = _weights(len(words))
    before0, before1 = sums
    return (
        (sum(map(mul, words, weights0)) + carried[0] * before0 + carried[1] * before1) & _MASK,
        (sum(map(mul, words, weights1)) + carried[1] * before0 + carried[2] * before1) & _MASK,
    )


@lru_cache(maxsize=4)
def _weights(count: int) -> tuple[tuple[int, int, int], list[int], list[int]]:
    """Give the weights of the sums so far and of each of `count` words in the two sums, modulo
    2^32.

    SQLite adds words in pairs: s0 += x + s1; s1 += y + s0. The powers of that step's matrix are
    symmetric: (a, b, c) stands for ((a, b), (b, c)).
    """
    a, b, c = 1, 0, 1
    weights0: list[int] = []
    weights1: list[int] = []
    for _pair in range(count // 2):
        weights0 += (b, a + b & _MASK)
        weights1 += (c, b + c & _MASK)
        a, b, c = a + b & _MASK, a + 2 * b & _MASK, b + 2 * c & _MASK
    return (a, b, c), weights0[::-1], weights1[::-1]
