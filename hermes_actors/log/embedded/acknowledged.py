"""Records how far each partition of an embedded log was acknowledged, in a small file beside the
database.

SQLite cannot distinguish lost records from ones that never existed; this file can. It has 16 bytes
for each partition id, written after each commit and not synced: exact after a killed process, some
seconds behind after a power loss, never ahead.
"""

import os
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hermes_actors.log.folder import sync_folder

ACKNOWLEDGED_NAME = "log.acknowledged"

_SLOT = struct.Struct("<QI4x")  # end, checksum of partition id and end
_BLOCK_SLOTS = 256
"""Partitions written together: a commit to partitions of one block is one write."""


def read_acknowledged(path: Path) -> dict[int, int]:
    """Return the end of each partition by its id; empty if there is no such file. A slot that a
    power loss has torn is skipped. Raises OSError.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    whole = data[: len(data) // _SLOT.size * _SLOT.size]
    return {
        partition_id: end
        for partition_id, (end, checksum) in enumerate(_SLOT.iter_unpack(whole))
        if checksum == _checksum(partition_id, end)
    }


class Acknowledged:
    """The open file of the process that writes the log. Not thread-safe."""

    def __init__(self, path: Path, ends: Mapping[int, int]) -> None:
        """Write a new file with these ends, and sync it. Raises OSError."""
        self._slots = bytearray()
        for partition_id, end in ends.items():
            self._set(partition_id, end)
        # Use another name until it is complete, so that a crash leaves the old file or the new one.
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
        """Record that these partitions are on the disk up to these ends."""
        blocks: dict[int, tuple[int, int]] = {}
        for partition_id, end in ends.items():
            self._set(partition_id, end)
            block = partition_id // _BLOCK_SLOTS
            low, high = blocks.get(block, (partition_id, partition_id))
            blocks[block] = min(low, partition_id), max(high, partition_id)
        for low, high in blocks.values():
            begin, end = low * _SLOT.size, (high + 1) * _SLOT.size
            # If this fails, the file is behind, which is safe.
            with suppress(OSError):
                os.pwrite(self._file, self._slots[begin:end], begin)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _set(self, partition_id: int, end: int) -> None:
        at = partition_id * _SLOT.size
        missing = at + _SLOT.size - len(self._slots)
        if missing > 0:
            self._slots += bytes(missing)
        _SLOT.pack_into(self._slots, at, end, _checksum(partition_id, end))


def _checksum(partition_id: int, end: int) -> int:
    return zlib.crc32(struct.pack("<QQ", partition_id, end))
