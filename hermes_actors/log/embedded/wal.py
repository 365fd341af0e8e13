"""SQLite's write-ahead log behind what SQLite takes of it: is its end a torn write, or is it
damaged?

SQLite takes the transactions of a write-ahead log up to the first that is not whole, and says
nothing of those behind it. Every transaction is synced before the next one is begun, so a crash can
cut off the last one alone: a transaction that is not whole and that others follow was whole once.
The formats are https://www.sqlite.org/fileformat2.html#the_write_ahead_log and
https://www.sqlite.org/walformat.html#the_wal_index_file_format.
"""

import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

from msgspec import Struct

from hermes_actors.log.embedded.schema import FILE_ERRORS, open_read_only

_HEADER = struct.Struct(">IIIIIIII")  # magic, version, page, number, salts, checksums
_FRAME_BYTES = 24  # page, pages of the file if it commits, salts, checksums
_INDEX = struct.Struct("=16xI")  # how many frames SQLite takes
_MAGIC = 0x377F0682
_PAGE_BYTES = frozenset(1 << power for power in range(9, 17))
_MASK = 0xFFFFFFFF


class WalDamage(Struct, frozen=True):
    """The byte from which on SQLite takes nothing, and how many transactions can be told apart
    from there on.
    """

    at: int
    transactions: int


def wal_of(path: Path) -> Path:
    """The write-ahead log of a database."""
    return path.with_name(f"{path.name}-wal")


def find_damage(path: Path) -> WalDamage | None:
    """Find what was whole once and is not in the write-ahead log of this database; None when that
    is whole, torn, or so bad that SQLite cannot say what it takes.

    Raises OSError. Nothing may be writing to it.
    """
    with wal_of(path).open("rb") as file:
        start = file.read(_HEADER.size)
        if len(start) < _HEADER.size or not file.read(1):
            return None  # Nothing has been written behind the header.
        magic, _version, page_bytes, *_ = _HEADER.unpack(start)
        is_known = magic & ~1 == _MAGIC and page_bytes in _PAGE_BYTES
        if not (is_known and _is_whole(start)):
            # The header is synced before the first frame is written.
            file.seek(_HEADER.size)
            headers = _headers(file, page_bytes if is_known else 4_096, None)
            return WalDamage(0, sum([does_commit for does_commit, _ in headers]))
        taken = _frames_taken(path)
        if taken is None:
            return None
        at = _HEADER.size + taken * (_FRAME_BYTES + page_bytes)
        file.seek(at)
        return _damage_behind(_headers(file, page_bytes, start[16:24]), at)


def _is_whole(start: bytes) -> bool:
    """Check the header's own sums, for which the magic says the order of bytes."""
    sum0 = sum1 = 0
    for even, odd in struct.iter_unpack(">II" if start[3] & 1 else "<II", start[:24]):
        sum0 = sum0 + even + sum1 & _MASK
        sum1 = sum1 + odd + sum0 & _MASK
    return (sum0, sum1) == _HEADER.unpack(start)[6:]


def _frames_taken(path: Path) -> int | None:
    """How many frames SQLite takes, up to the end of a transaction; it says so in its index."""
    with closing(open_read_only(path)) as connection:
        with suppress(*FILE_ERRORS):
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        with suppress(FileNotFoundError, struct.error):
            index = path.with_name(f"{path.name}-shm").read_bytes()
            return int(_INDEX.unpack_from(index)[0])
    return None


def _damage_behind(headers: Iterator[tuple[bool, bool]], at: int) -> WalDamage | None:
    """Damage when a transaction ends behind what SQLite takes, and another begins."""
    commits = 0
    is_followed = False
    for does_commit, is_of_this in headers:
        if is_of_this:
            is_followed = is_followed or commits > 0
            commits += does_commit
    return WalDamage(at, commits) if is_followed else None


def _headers(file: IO[bytes], page_bytes: int, salts: bytes | None) -> Iterator[tuple[bool, bool]]:
    """(ends a transaction, has these salts) of each frame; the first one's salts for None."""
    while len(head := file.read(_FRAME_BYTES)) == _FRAME_BYTES:
        salts = head[8:16] if salts is None else salts
        is_of_this = head[8:16] == salts and any(head[:4])
        yield is_of_this and any(head[4:8]), is_of_this
        file.seek(page_bytes, 1)
