"""How far each partition of an embedded log was acknowledged, in a file beside the database.

SQLite's file cannot tell what it has lost from what it never had; this one can. It has 16 bytes for
each partition, written after each commit and not synced for it: a process that is killed leaves
it exact, a machine that loses its power leaves it some seconds behind, never ahead. Its first 16
bytes say whether the log was closed in good order.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from hermes_actors.log.folder import sync_folder

ACKNOWLEDGED_NAME = "log.acknowledged"

_HEADER = struct.Struct("<4sBBxxI4x")  # magic, version, order, checksum
_SLOT = struct.Struct("<QI4x")  # end, checksum
_PLACE = struct.Struct("<QQ")  # what a slot's checksum covers: partition id, end
_MAGIC = b"HLAK"
_VERSION = 1
_SLOT_BYTES = _SLOT.size
_OPEN, _CLOSED = (
    _HEADER.pack(_MAGIC, _VERSION, order, zlib.crc32(_MAGIC + bytes([_VERSION, order])))
    for order in (1, 2)
)
"""The first bytes of a log that is open, or was not closed in good order, and of one that was."""
_BLOCK_SLOTS = 256
"""The partitions that are written together: a commit to those of one block is one write."""


class Known(Struct, frozen=True):
    """The content of the file: the end of each partition by its id, and whether the last process
    closed the log in good order, None when that cannot be read.

    `is_whole` is False when some of it cannot be read any more.
    """

    ends: Mapping[int, int]
    was_closed: bool | None
    is_whole: bool


def read_acknowledged(path: Path) -> Known | None:
    """Read the file; None when there is none: an earlier version of this program wrote the log.

    Raises OSError.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    ends: dict[int, int] = {}
    header = data[: _HEADER.size]
    was_closed = True if header == _CLOSED else False if header == _OPEN else None
    is_whole = was_closed is not None and len(data) % _SLOT_BYTES == 0
    for partition_id in range(1, len(data) // _SLOT_BYTES):
        slot = data[partition_id * _SLOT_BYTES : (partition_id + 1) * _SLOT_BYTES]
        end, checksum = _SLOT.unpack(slot)
        if checksum == _checksum(partition_id, end) and not any(slot[12:]):
            ends[partition_id] = end
        elif any(slot):
            is_whole = False
    return Known(ends, was_closed, is_whole)


class Acknowledged:
    """The file, open for the one process that writes the log. Not for threads at one time."""

    def __init__(self, path: Path, ends: Mapping[int, int]) -> None:
        """Begin anew: the log is open, and these are its ends. On the disk when this returns.

        Raises OSError.
        """
        self._slots = bytearray()
        for partition_id, end in ends.items():
            self._set(partition_id, end)
        self._make_room(0)
        self._slots[: _HEADER.size] = _OPEN
        # Never half there: under another name until it is whole.
        begun = path.with_name(f"{path.name}.new")
        self._file = os.open(begun, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.pwrite(self._file, self._slots, 0)
            os.fsync(self._file)
            begun.replace(path)
            sync_folder(path.parent)
        except OSError:
            os.close(self._file)
            raise

    def advance(self, ends: Mapping[int, int]) -> None:
        """Write that the partitions are on the disk up to these ends. Should it fail, less is
        known, which is never wrong.
        """
        for partition_id, end in ends.items():
            self._set(partition_id, end)
        self._write(ends)

    def forget(self, partition_ids: Iterable[int]) -> None:
        """Forget partitions that are about to be deleted, and sync that first: nothing of them will
        be missed, not even after a loss of power.
        """
        gone = [each for each in partition_ids if (each + 1) * _SLOT_BYTES <= len(self._slots)]
        for partition_id in gone:
            at = partition_id * _SLOT_BYTES
            self._slots[at : at + _SLOT_BYTES] = bytes(_SLOT_BYTES)
        self._write(gone)
        with suppress(OSError):
            os.fsync(self._file)

    def end_in_order(self) -> None:
        """Write, and sync, that the log was closed in good order. Raises OSError."""
        os.pwrite(self._file, _CLOSED, 0)
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _set(self, partition_id: int, end: int) -> None:
        self._make_room(partition_id)
        at = partition_id * _SLOT_BYTES
        _SLOT.pack_into(self._slots, at, end, _checksum(partition_id, end))

    def _make_room(self, partition_id: int) -> None:
        missing = (partition_id + 1) * _SLOT_BYTES - len(self._slots)
        if missing > 0:
            self._slots += bytes(missing)

    def _write(self, partition_ids: Iterable[int]) -> None:
        blocks: dict[int, tuple[int, int]] = {}
        for each in partition_ids:
            low, high = blocks.get(each // _BLOCK_SLOTS, (each, each))
            blocks[each // _BLOCK_SLOTS] = min(low, each), max(high, each)
        for low, high in blocks.values():
            begin, end = low * _SLOT_BYTES, (high + 1) * _SLOT_BYTES
            with suppress(OSError):
                os.pwrite(self._file, self._slots[begin:end], begin)


def _checksum(partition_id: int, end: int) -> int:
    return zlib.crc32(_PLACE.pack(partition_id, end))
