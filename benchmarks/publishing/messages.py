"""The bodies to send, synthetic or from a file, used in turn."""

import random
from pathlib import Path
from typing import NamedTuple

TOPIC = "bench.orders"
KINDS = 64
_BYTES_MAX = 16_384


class Messages(NamedTuple):
    """The bodies that a run sends in turn, and their name in the table."""

    name: str
    bodies: tuple[bytes, ...]


def made_up(size: int) -> Messages:
    """JSON objects of exactly `size` bytes that compress no better than hexadecimal digits."""
    rng = random.Random(size)
    frame = '{"message":""}'
    if size < len(frame):
        raise ValueError(f"--bytes: {size} is less than the {len(frame)} of an empty message")
    bodies = []
    for _ in range(KINDS):
        filling = rng.randbytes(size // 2 + 1).hex()[: size - len(frame)]
        bodies.append(f'{{"message":"{filling}"}}'.encode())
    return Messages(f"{size} B", tuple(bodies))


def from_file(path: Path) -> Messages:
    """One message from each line. Raises ValueError if there is none, or one above 16 KiB."""
    bodies = [line.strip() for line in path.read_bytes().splitlines() if line.strip()]
    if not bodies:
        raise ValueError(f"--messages: {path} has no lines")
    if max(map(len, bodies)) > _BYTES_MAX:
        raise ValueError(f"--messages: {path} has a line above {_BYTES_MAX} bytes")
    return Messages(path.name, tuple(bodies))
