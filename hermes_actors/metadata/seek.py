"""A retransmission: a durable word on where a subscription goes on, above all earlier commits."""

import msgspec
from msgspec import Struct

from hermes_actors.metadata.bodies import decode_body


class SeekBody(Struct, frozen=True, rename="camel"):
    """Where a subscription is to go on, by whoever consumes it in each datacentre.

    `positions`: for a datacentre, for each partition named the offset to go on at; a partition that
    is not named stays where it is. `time_ms`: where a datacentre has no positions, at the first
    record that is not older; None: there nothing changes. Both incarnations are of the life of the
    subscription that is meant.
    """

    subscription_incarnation: int
    topic_incarnation: int
    positions: dict[str, dict[int, int]] = {}
    time_ms: int | None = None


class Seek(Struct, frozen=True):
    """The last retransmission of this life of a subscription: where its consumers are to go on.

    `number` tells it from those before: it is greater than theirs. (It is the register's stamp; two
    of one millisecond, asked for in two datacentres, share it, and each datacentre keeps to the
    one that it heard of first.)
    """

    number: int
    body: SeekBody

    def moves(self, dc: str, partition: int) -> bool:
        """True when the partition of that datacentre is to go on somewhere else."""
        positions = self.body.positions.get(dc)
        return self.body.time_ms is not None if positions is None else partition in positions


def seek_body(seek: SeekBody) -> bytes:
    """The body of a retransmission's register."""
    return msgspec.json.encode(seek)


def decode_seek(body: bytes) -> SeekBody:
    """Decode a retransmission. Raises UndecodableBody."""
    return decode_body(body, SeekBody)
