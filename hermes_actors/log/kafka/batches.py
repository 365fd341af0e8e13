"""Encodes records as Kafka batches of bounded size, numbered for idempotence. Pure."""

from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from msgspec import Struct

from hermes_actors.log.kafka.runs import encode_run
from hermes_actors.model.record import Record
from hermes_actors.model.run import RecordRun

MAGIC = 2
NO_PRODUCER = -1
SEQUENCE_MAX = 2**31 - 1


class Identity(Struct, frozen=True, gc=False):
    """A producer id from the cluster. A broker accepts each of its sequence numbers once."""

    producer_id: int
    epoch: int


NO_IDENTITY = Identity(NO_PRODUCER, NO_PRODUCER)


def encode(
    records: Sequence[Record],
    start: int,
    end: int,
    bytes_max: int,
    identity: Identity = NO_IDENTITY,
    sequence: int = NO_PRODUCER,
) -> tuple[bytes | bytearray, int]:
    """Encode the records from `start` to before `end` as one batch of at most `bytes_max` bytes.

    Returns the batch and the index after its last record. A record above `bytes_max` gets a batch
    to itself, and the broker decides whether it fits.
    """
    if isinstance(records, RecordRun):
        run = records if end - start == len(records) else records[start:end]
        data, count = encode_run(run, bytes_max, identity.producer_id, identity.epoch, sequence)
        return data, start + count
    builder = DefaultRecordBatchBuilder(
        MAGIC, 0, 0, identity.producer_id, identity.epoch, sequence, bytes_max
    )
    append = builder.append
    for index in range(start, end):
        record = records[index]
        headers: list[tuple[str, bytes | None]] = list(record.headers)
        fits = append(index - start, record.timestamp_ms, record.key, record.value, headers)
        if fits is None:
            return builder.build(), index
    return builder.build(), end


class Numbering:
    """The next sequence number of one partition, under its producer id.

    A number is used up only when its batch is stored: a refused batch leaves no gap. If it is
    unknown whether a batch was stored, the next number is unknown too, and the partition needs a
    new identity.
    """

    __slots__ = ("identity", "next")

    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self.next = 0

    def needs_identity(self, count: int) -> bool:
        """True if `count` records cannot be numbered without a new identity."""
        # Kafka lets numbers wrap to 0; a new identity after two thousand million is simpler.
        return self.identity is NO_IDENTITY or self.next + count > SEQUENCE_MAX

    def begin(self, identity: Identity) -> None:
        """Start at 0 with an identity that this partition has not used before."""
        self.identity = identity
        self.next = 0

    def stored(self, count: int) -> None:
        """Count a stored batch of `count` records."""
        self.next += count

    def lose(self) -> None:
        """Drop the identity, because the next number is unknown."""
        self.identity = NO_IDENTITY


class BatchBounds:
    """The largest batch that each topic accepts, as far as known.

    A cluster's metadata does not say it, so it is learned from batches that were refused as too
    large. It is forgotten after `expires_s`, because the topic's limit may have been raised.
    """

    _TOPICS_MAX = 10_000

    def __init__(self, bytes_max: int, expires_s: float) -> None:
        self._bytes_max = bytes_max
        self._expires_s = expires_s
        self._learned: dict[str, tuple[int, float]] = {}

    def of(self, topic: str, now_s: float) -> int:
        """Return the maximum size in bytes of a batch of `topic`."""
        if not self._learned:
            return self._bytes_max
        bound, until_s = self._learned.get(topic, (self._bytes_max, now_s + 1))
        if until_s <= now_s:
            del self._learned[topic]
            return self._bytes_max
        return bound

    def learn(self, topic: str, bytes_max: int, now_s: float) -> None:
        """Note that batches above `bytes_max` were refused."""
        if len(self._learned) >= self._TOPICS_MAX:
            del self._learned[next(iter(self._learned))]
        self._learned.pop(topic, None)
        self._learned[topic] = (bytes_max, now_s + self._expires_s)
