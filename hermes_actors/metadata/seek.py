"""A retransmission: a durable order about where a subscription continues, which overrides earlier
commits.
"""

import msgspec
from msgspec import Struct

from hermes_actors.metadata.bodies import decode_body


class SeekBody(Struct, frozen=True, rename="camel"):
    """Where a subscription continues in each datacentre.

    `positions` maps a datacentre to the offset for each partition; partitions that are not named
    stay where they are. `time_ms` is for datacentres without positions: they continue at the first
    record that is not older; None: nothing changes there. Both incarnations identify the
    subscription that is meant.
    """

    subscription_incarnation: int
    topic_incarnation: int
    positions: dict[str, dict[int, int]] = {}
    time_ms: int | None = None


class Seek(Struct, frozen=True):
    """The last retransmission of this incarnation of a subscription.

    `number` is greater than that of any earlier one. (It is the register's stamp. Two
    retransmissions requested in the same millisecond in two datacentres share it; each datacentre
    follows the one that it received first.)
    """

    number: int
    body: SeekBody

    def moves(self, dc: str, partition: int) -> bool:
        """True if it moves this partition in that datacentre."""
        positions = self.body.positions.get(dc)
        return self.body.time_ms is not None if positions is None else partition in positions


def seek_body(seek: SeekBody) -> bytes:
    """Encode a retransmission."""
    return msgspec.json.encode(seek)


def decode_seek(body: bytes) -> SeekBody:
    """Decode a retransmission. Raises UndecodableBody."""
    return decode_body(body, SeekBody)
