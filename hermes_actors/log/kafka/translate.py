"""Translates a broker's answer to a Produce request: is the batch stored, or may it be? Pure.

The name of an error does not always say whether the broker failed before or after the write. For
example, NOT_LEADER_OR_FOLLOWER normally means that nothing was written. But with acks "all" it is
also the answer of a leader that wrote the batch and lost its leadership while it waited for the
replicas.
"""

import asyncio
from enum import Enum

import msgspec
from aiokafka import errors

UNKNOWN_TOPIC_OR_PARTITION = 3


class Fate(Enum):
    """What happened to a batch, and so what to do with it next."""

    STORED = 1
    REFUSED = 2
    """Not stored; a retry would fail too."""
    TOO_LARGE = 3
    """Not stored; smaller batches may fit."""
    REFUSED_TOGETHER = 8
    """Not stored because of some of its records; the others can be stored without them."""
    NOT_STORED = 4
    """Not stored; can be retried."""
    PERHAPS_STORED = 5
    """May be stored; retried only if the broker can recognise a copy (acks "all")."""
    OUT_OF_SEQUENCE = 6
    """Not stored: the broker does not accept the sequence number; a new producer id is needed."""
    DUPLICATE = 7
    """Stored earlier; the broker no longer knows the offset."""


class BatchVerdict(msgspec.Struct, frozen=True, gc=False):
    """The fate of a batch, with the reason. `metadata_is_stale`: look up the partition's leader
    before a retry. `is_denied`: the supposed leader says that it is not the leader.
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
        # They may follow another leader by now, without this one's knowledge.
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
    # The records are valid and an operator can fix the permissions, so they are not refused.
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
    # The disk failed before, during or after the write.
    56: BatchVerdict(Fate.PERHAPS_STORED, "the broker's disk fails (KAFKA_STORAGE_ERROR)", _STALE),
    59: BatchVerdict(Fate.OUT_OF_SEQUENCE, "UNKNOWN_PRODUCER_ID"),
    72: BatchVerdict(Fate.NOT_STORED, "the leader cannot be reached (LISTENER_NOT_FOUND)", _STALE),
    74: BatchVerdict(Fate.NOT_STORED, "FENCED_LEADER_EPOCH", _STALE),
    75: BatchVerdict(Fate.NOT_STORED, "UNKNOWN_LEADER_EPOCH", _STALE),
    87: BatchVerdict(Fate.REFUSED_TOGETHER, "the broker found a record invalid (INVALID_RECORD)"),
    89: BatchVerdict(Fate.NOT_STORED, "the client's quota is used up (THROTTLING_QUOTA_EXCEEDED)"),
}
# Also the answers of a leader that wrote the batch and lost the partition while it waited for the
# replicas; the next leader may have the batch.
_UNCERTAIN_FOR_ALL = frozenset({3, 5, 6, 9, 74, 75})


def produce_verdict(code: int, *, waits_for_replicas: bool) -> BatchVerdict:
    """Return the verdict for an error code; `waits_for_replicas` means acks "all"."""
    verdict = _PRODUCE.get(code)
    if verdict is None:
        return BatchVerdict(Fate.PERHAPS_STORED, f"the broker failed with {error_name(code)}")
    if waits_for_replicas and code in _UNCERTAIN_FOR_ALL:
        return msgspec.structs.replace(verdict, fate=Fate.PERHAPS_STORED)
    return verdict


def error_name(code: int) -> str:
    """Return the protocol's name of an error code, with the code."""
    known = errors.kafka_errors.get(code)
    return f"{known.message} ({code})" if known is not None else f"error {code}"


CLIENT_ERRORS = (errors.KafkaError, OSError, asyncio.TimeoutError)
"""The operating errors of aiokafka's clients; asyncio.TimeoutError is TimeoutError."""
