"""The records of the coordination log, and their one encoding.

One topic of one partition in each datacentre, stamped by the log itself, is the only coordination:
nodes meet nowhere else. Records are JSON arrays with a tag, so that they stay small and readable;
fields are only ever added, at the end. A record that a reader cannot decode changes nothing but log
time.
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
"""Retention is far above the age of a snapshot: 30 seconds."""


def coordination_topic(namespace: str = "") -> str:
    """The log topic of the records."""
    return f"{namespace}_{COORDINATION_TOPIC}" if namespace else COORDINATION_TOPIC


class _Said(Struct, frozen=True, array_like=True):
    """A record of one node, by the id of its life: `boot` is new at each start, and each time that
    a node which was taken for dead comes back.
    """

    boot: str


class Join(_Said, frozen=True, array_like=True, tag="join"):
    """A node takes part from now on. `cores`: how much CPU it has, for the share it can carry."""

    node: str
    cores: float = 1.0
    version: str = ""


class Heartbeat(_Said, frozen=True, array_like=True, tag="heartbeat"):
    """The node is there: its lease runs anew. `number` counts those of its life."""

    number: int


class TaskLoad(Struct, frozen=True, array_like=True, gc=False):
    """The load of one task since the node's last `Loads`, for each second. `used` is the part of
    its rate share that it needed, 0 to 1; `cpu` in cores.
    """

    messages: float = 0.0
    size_bytes: float = 0.0
    cpu: float = 0.0
    used: float = 0.0


class Loads(_Said, frozen=True, array_like=True, tag="loads"):
    """Each ten seconds: the CPU that the node's process took, in cores, how much of its cores the
    machine left it (`cpu_available`, cores), and each of its tasks by the subscription's name.
    """

    cpu: float
    cpu_available: float
    tasks: dict[str, TaskLoad]


class Leave(_Said, frozen=True, array_like=True, tag="leave"):
    """The node is gone by its own will; it owns nothing any more."""


class Stopping(_Said, frozen=True, array_like=True, tag="stopping"):
    """The node is about to leave: what it releases is not its own again, it leads no more, and its
    work is planned for others. It goes on owning what it has not released.
    """


class TermClaim(_Said, frozen=True, array_like=True, tag="claim"):
    """The node wants to lead in this term. The first that is valid wins."""

    term: int


class Target(Struct, frozen=True, array_like=True, gc=False):
    """A planned owner of these partitions of a subscription, and its part of the maximum rate."""

    boot: str
    partitions: tuple[int, ...]
    share: float = 1.0


class Assignment(Struct, frozen=True, array_like=True):
    """A subscription's owners to be; none: nobody is to own it. `reasons` say why it changes."""

    subscription: str
    targets: tuple[Target, ...]
    reasons: tuple[Reason, ...] = ()


class Plan(_Said, frozen=True, array_like=True, tag="plan"):
    """The leader's changes of who is to own what; subscriptions that it does not name stay as they
    are. `base` is the offset of the plan before, -1 for none; after another one it changes nothing.
    """

    term: int
    base: int
    assignments: tuple[Assignment, ...]


class RateState(Struct, frozen=True, array_like=True, gc=False):
    """An owner's knowledge of the endpoint: the rate control's level, and the rate that the
    endpoint was trusted with, in messages a second.
    """

    level: str
    rate: float


class Release(_Said, frozen=True, array_like=True, tag="release"):
    """The owner has stopped and committed: a subscription's partitions are free again. `epoch` is
    that of the grant: the offset of the record with which they became its own. A release that comes
    twice never frees a later grant.
    """

    subscription: str
    epoch: int
    rate: RateState | None = None


class Snapshot(_Said, frozen=True, array_like=True, tag="snapshot"):
    """The state after the record at `as_of`: a reader may begin with it and fold on from there.
    One that is too large for a record comes as `parts` records, numbered from 0.
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
    """The record is no command of this version."""


def encode(said: Said, now_ms: int) -> Record:
    """The record of a command. `now_ms` is for people: the log stamps its own time."""
    return Record(None, _encoder.encode(said), (), now_ms)


def decode(value: bytes) -> Said:
    """The command of a record's value. Raises Undecodable."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Undecodable(str(error)) from None
