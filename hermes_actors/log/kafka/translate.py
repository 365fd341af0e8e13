"""The meaning of a broker's answer: for a produced batch, and for every other request. Pure tables.

The question that counts is whether a batch may be stored. A broker refuses before it writes or
fails after it, and a client cannot tell from the name alone: NOT_LEADER_OR_FOLLOWER is said before
the write to any producer, but also, to one that waits for the replicas, by a leader that wrote the
batch and lost its office while it waited.
"""

import asyncio
from enum import Enum

import msgspec
from aiokafka import errors

UNKNOWN_TOPIC_OR_PARTITION = 3


class Fate(Enum):
    """The fate of a batch by a broker's answer, which says what to do with it next."""

    STORED = 1
    REFUSED = 2
    """Not stored, and will not be."""
    TOO_LARGE = 3
    """Not stored; its records alone may fit."""
    REFUSED_TOGETHER = 8
    """Not stored, for the sake of some of its records; the others may be stored without them."""
    NOT_STORED = 4
    """Not stored; may be tried again."""
    PERHAPS_STORED = 5
    """Tried again only by a producer whose copies the broker recognises."""
    OUT_OF_SEQUENCE = 6
    """Not stored: the broker does not take this producer's numbering; a new producer id is due."""
    DUPLICATE = 7
    """Stored earlier; the broker no longer knows where."""


class BatchVerdict(msgspec.Struct, frozen=True, gc=False):
    """The fate of a batch and why. `metadata_is_stale`: ask anew who leads the partition before
    trying again. `is_denied`: the broker that was named as the leader says that it is none.
    """

    fate: Fate
    reason: str
    metadata_is_stale: bool = False
    is_denied: bool = False


_STALE = True
_PRODUCE: dict[int, BatchVerdict] = {
    0: BatchVerdict(Fate.STORED, ""),
    2: BatchVerdict(Fate.NOT_STORED, "the broker found the batch corrupt (CORRUPT_MESSAGE)"),
    3: BatchVerdict(
        Fate.NOT_STORED,
        "the broker does not have the partition (UNKNOWN_TOPIC_OR_PARTITION)",
        _STALE,
    ),
    5: BatchVerdict(Fate.NOT_STORED, "the partition has no leader (LEADER_NOT_AVAILABLE)", _STALE),
    6: BatchVerdict(
        Fate.NOT_STORED,
        "the broker does not lead the partition (NOT_LEADER_OR_FOLLOWER)",
        _STALE,
        is_denied=True,
    ),
    7: BatchVerdict(
        Fate.PERHAPS_STORED,
        "the replicas did not confirm the batch in time (REQUEST_TIMED_OUT)",
        # Perhaps they follow another leader by now, and this one has not heard of it.
        _STALE,
    ),
    9: BatchVerdict(
        Fate.NOT_STORED, "the replica is not available (REPLICA_NOT_AVAILABLE)", _STALE
    ),
    10: BatchVerdict(Fate.TOO_LARGE, "larger than the topic takes (MESSAGE_TOO_LARGE)"),
    17: BatchVerdict(Fate.REFUSED, "no topic may have that name (INVALID_TOPIC_EXCEPTION)"),
    18: BatchVerdict(Fate.TOO_LARGE, "larger than a segment of the topic (RECORD_LIST_TOO_LARGE)"),
    19: BatchVerdict(
        Fate.NOT_STORED,
        "fewer replicas are in sync than min.insync.replicas asks for (NOT_ENOUGH_REPLICAS)",
    ),
    20: BatchVerdict(
        Fate.PERHAPS_STORED,
        "written, then too few replicas were in sync (NOT_ENOUGH_REPLICAS_AFTER_APPEND)",
        _STALE,
    ),
    # Nothing is wrong with these records; an operator mends the rights, so they are not refused.
    29: BatchVerdict(
        Fate.NOT_STORED, "no right to write to the topic (TOPIC_AUTHORIZATION_FAILED)"
    ),
    31: BatchVerdict(
        Fate.NOT_STORED, "no right to write to the cluster (CLUSTER_AUTHORIZATION_FAILED)"
    ),
    32: BatchVerdict(
        Fate.REFUSED_TOGETHER,
        "its timestamp is further from the broker's clock than the topic's "
        "message.timestamp.before.max.ms or message.timestamp.after.max.ms; see the clock of the "
        "node that published it (INVALID_TIMESTAMP)",
    ),
    43: BatchVerdict(
        Fate.REFUSED, "the topic's format is too old (UNSUPPORTED_FOR_MESSAGE_FORMAT)"
    ),
    44: BatchVerdict(Fate.REFUSED, "the cluster's policy forbids it (POLICY_VIOLATION)"),
    45: BatchVerdict(Fate.OUT_OF_SEQUENCE, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
    46: BatchVerdict(Fate.DUPLICATE, "stored, at an offset unknown (DUPLICATE_SEQUENCE_NUMBER)"),
    47: BatchVerdict(Fate.OUT_OF_SEQUENCE, "INVALID_PRODUCER_EPOCH"),
    49: BatchVerdict(Fate.OUT_OF_SEQUENCE, "INVALID_PRODUCER_ID_MAPPING"),
    # The disk failed before, in or after the write.
    56: BatchVerdict(Fate.PERHAPS_STORED, "the broker's disk fails (KAFKA_STORAGE_ERROR)", _STALE),
    59: BatchVerdict(Fate.OUT_OF_SEQUENCE, "UNKNOWN_PRODUCER_ID"),
    72: BatchVerdict(Fate.NOT_STORED, "the leader cannot be reached (LISTENER_NOT_FOUND)", _STALE),
    74: BatchVerdict(Fate.NOT_STORED, "FENCED_LEADER_EPOCH", _STALE),
    75: BatchVerdict(Fate.NOT_STORED, "UNKNOWN_LEADER_EPOCH", _STALE),
    87: BatchVerdict(Fate.REFUSED_TOGETHER, "the broker found a record invalid (INVALID_RECORD)"),
    89: BatchVerdict(Fate.NOT_STORED, "the client's quota is used up (THROTTLING_QUOTA_EXCEEDED)"),
}
# Said also by a leader that has written the batch and waits for its replicas: it lost the partition
# meanwhile, and the batch may have reached the next leader.
_UNCERTAIN_FOR_ALL = frozenset({3, 5, 6, 9, 74, 75})


def produce_verdict(code: int, *, waits_for_replicas: bool) -> BatchVerdict:
    """Give the verdict on a batch by the broker's answer; `waits_for_replicas` with acks "all"."""
    verdict = _PRODUCE.get(code)
    if verdict is None:
        return BatchVerdict(Fate.PERHAPS_STORED, f"the broker failed with {error_name(code)}")
    if waits_for_replicas and code in _UNCERTAIN_FOR_ALL:
        return msgspec.structs.replace(verdict, fate=Fate.PERHAPS_STORED)
    return verdict


def error_name(code: int) -> str:
    """The protocol's name of an error code, with the code."""
    known = errors.kafka_errors.get(code)
    return f"{known.message} ({code})" if known is not None else f"error {code}"


CLIENT_ERRORS = (errors.KafkaError, OSError, asyncio.TimeoutError)
"""The operating errors that aiokafka's clients raise; asyncio.TimeoutError is TimeoutError."""
