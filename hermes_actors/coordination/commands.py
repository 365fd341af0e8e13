"""The records of the coordination log, and their encoding.

One topic with one partition in each datacentre, stamped by the log, is the only means of
coordination. Records are tagged JSON arrays, small and readable; fields are only added, at the end.
A record that a reader cannot decode only advances log time.
"""

import msgspec
from msgspec import Struct

from hermes_actors.coordination.reasons import Reason
from hermes_actors.log.base import TopicSettings
from hermes_actors.model.record import Record

COORDINATION_TOPIC = "_hermes.coordination"

RECORD_BYTES_MAX = 1_000_000

SETTINGS = TopicSettings(
    partitions=1,
    retention_ms=6 * 3_600_000,
    record_bytes_max=RECORD_BYTES_MAX + 16_384,
    log_append_time=True,
)
"""Retention is far longer than the age of a snapshot: 30 seconds."""


def coordination_topic(namespace: str = "") -> str:
    """The log topic of the coordination records."""
    return f"{namespace}_{COORDINATION_TOPIC}" if namespace else COORDINATION_TOPIC


class _Said(Struct, frozen=True, array_like=True):
    """A record of one node. `boot` is the id of its life: it is new at each start, and when a node
    whose lease expired joins again.
    """

    boot: str


class Join(_Said, frozen=True, array_like=True, tag="join"):
    """A node joins. `cores` is its CPU, which determines the share of work that it can carry."""

    node: str
    cores: float = 1.0
    version: str = ""


class Heartbeat(_Said, frozen=True, array_like=True, tag="heartbeat"):
    """The node is alive: its lease starts again. `number` counts the heartbeats of its life."""

    number: int


class TaskLoad(Struct, frozen=True, array_like=True, gc=False):
    """The load of one task per second, since the node's last `Loads`. `used` is the part of its
    rate share that it needed, 0 to 1; `cpu` is in cores.
    """

    messages: float = 0.0
    size_bytes: float = 0.0
    cpu: float = 0.0
    used: float = 0.0


class Loads(_Said, frozen=True, array_like=True, tag="loads"):
    """A node's load, every ten seconds: the CPU that its process used, in cores; the cores that the
    machine left for it (`cpu_available`); and each of its tasks by subscription.
    """

    cpu: float
    cpu_available: float
    tasks: dict[str, TaskLoad]


class Leave(_Said, frozen=True, array_like=True, tag="leave"):
    """The node leaves; it owns nothing any more."""


class Stopping(_Said, frozen=True, array_like=True, tag="stopping"):
    """The node is about to leave. It gets no new grants, leads no more, and its work is planned for
    other nodes. It still owns what it has not released.
    """


class TermClaim(_Said, frozen=True, array_like=True, tag="claim"):
    """The node claims the leadership for this term. The first valid claim wins."""

    term: int


class Target(Struct, frozen=True, array_like=True, gc=False):
    """A planned owner of these partitions of a subscription, with its share of the maximum rate."""

    boot: str
    partitions: tuple[int, ...]
    share: float = 1.0


class Assignment(Struct, frozen=True, array_like=True):
    """The planned owners of a subscription; empty if it should have none. `reasons` say why it
    changes.
    """

    subscription: str
    targets: tuple[Target, ...]
    reasons: tuple[Reason, ...] = ()


class Plan(_Said, frozen=True, array_like=True, tag="plan"):
    """The leader's changes to the planned owners; subscriptions that are not named stay as they
    are. `base` is the offset of the previous plan, -1 for none; if another plan came in between,
    this one has no effect.
    """

    term: int
    base: int
    assignments: tuple[Assignment, ...]


class RateState(Struct, frozen=True, array_like=True, gc=False):
    """What an owner has learnt about the endpoint: the rate control's level, and the rate that the
    endpoint has sustained, in messages a second.
    """

    level: str
    rate: float


class Release(_Said, frozen=True, array_like=True, tag="release"):
    """The owner has stopped and committed: its partitions of the subscription are free. `epoch` is
    that of its grant, the offset of the record that granted the partitions. So a repeated release
    never frees a later grant.
    """

    subscription: str
    epoch: int
    rate: RateState | None = None


class Snapshot(_Said, frozen=True, array_like=True, tag="snapshot"):
    """The state after the record at `as_of`, from which a reader may fold on. If it is too large
    for one record, it is split into `parts` records, numbered from 0.
    """

    term: int
    as_of: int
    state: bytes
    part: int = 0
    parts: int = 1


Said = Join | Heartbeat | Loads | Stopping | Leave | TermClaim | Plan | Release | Snapshot

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)


class Undecodable(Exception):
    """The record is not a command that this version knows."""


def encode(said: Said, now_ms: int) -> Record:
    """Encode a command. `now_ms` is only informative: the log stamps its own time."""
    return Record(None, _encoder.encode(said), (), now_ms)


def decode(value: bytes) -> Said:
    """Decode the command of a record's value. Raises Undecodable."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Undecodable(str(error)) from None
