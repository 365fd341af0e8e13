"""Records as Kafka batches: encoded, numbered for idempotence, bounded in bytes. Pure."""

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
    """A producer id that the cluster gave out; a broker takes each of its numbers once."""

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
    """Records from `start` on, before `end`, as one batch of at most `bytes_max`.

    Gives the batch and the index after its last record. A record that is larger alone is a batch
    alone: whether it fits is the broker's to say.
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
    """One partition's place in the numbers of its producer id.

    A number is used up when its batch is stored, and only then: a refused batch leaves no gap, so
    the next one is in sequence. When nobody knows whether a batch was stored, nobody knows the next
    number either, and only another identity can go on.
    """

    __slots__ = ("identity", "next")

    def __init__(self) -> None:
        self.identity = NO_IDENTITY
        self.next = 0

    def needs_identity(self, count: int) -> bool:
        """Is another identity due before `count` records can be numbered?"""
        # Kafka lets numbers wrap to 0; another identity after two thousand million is simpler.
        return self.identity is NO_IDENTITY or self.next + count > SEQUENCE_MAX

    def begin(self, identity: Identity) -> None:
        """Number from 0 on under an identity that this partition has not used."""
        self.identity = identity
        self.next = 0

    def stored(self, count: int) -> None:
        """The batch of `count` records is stored."""
        self.next += count

    def lose(self) -> None:
        """The broker's number is unknown."""
        self.identity = NO_IDENTITY


class BatchBounds:
    """The largest batch that a topic is known to take.

    Learned, because a cluster's metadata does not say: what was refused as too large was sent again
    in smaller batches; the next ones are no larger, until `expires_s`, when the topic's limit may
    have been raised.
    """

    _TOPICS_MAX = 10_000

    def __init__(self, bytes_max: int, expires_s: float) -> None:
        self._bytes_max = bytes_max
        self._expires_s = expires_s
        self._learned: dict[str, tuple[int, float]] = {}

    def of(self, topic: str, now_s: float) -> int:
        """The bound for a batch of `topic`."""
        if not self._learned:
            return self._bytes_max
        bound, until_s = self._learned.get(topic, (self._bytes_max, now_s + 1))
        if until_s <= now_s:
            del self._learned[topic]
            return self._bytes_max
        return bound

    def learn(self, topic: str, bytes_max: int, now_s: float) -> None:
        """Larger batches were refused."""
        if len(self._learned) >= self._TOPICS_MAX:
            del self._learned[next(iter(self._learned))]
        self._learned.pop(topic, None)
        self._learned[topic] = (bytes_max, now_s + self._expires_s)
