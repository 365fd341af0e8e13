"""Events about the state of nodes: heartbeats, clocks, folds, and the coordination log."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from hermes_actors.coordination.commands import Said
from hermes_actors.coordination.state import CoordinationState


@dataclass(frozen=True)
class Renewed:
    """That life of a node has read its own heartbeat, which it started to send at `sent_s`."""

    life: str
    sent_s: float
    at_s: float


@dataclass(frozen=True)
class Skewed:
    """A node's wall clock is off by this much from now on."""

    node: str
    skew_ms: int
    at_s: float


@dataclass(frozen=True)
class Folded:
    """A life's fold of a datacentre's log `kind` before `position`. `content` is the whole state.
    `begun` counts how often it started over. `registers` are the metadata's: key → incarnation,
    stamp, datacentre and body.
    """

    life: str
    dc: str
    kind: str
    begun: int
    position: int
    content: bytes
    at_s: float
    registers: Mapping[str, tuple[int, int, str, bytes | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Named:
    """A life of a node is about to announce itself in the coordination log as `boot`."""

    life: str
    boot: str


@dataclass(frozen=True)
class Coordinated:
    """A record of a datacentre's coordination log has become readable. `said` None: unknown to this
    version.
    """

    dc: str
    offset: int
    timestamp_ms: int
    said: Said | None
    at_s: float


def content_of(state: CoordinationState) -> bytes:
    """The whole observable state. Not a snapshot, because a snapshot might leave something out."""
    return msgspec.msgpack.encode(
        (
            (state.position, state.clock_ms, state.timestamp_ms, state.term, state.leader),
            (state.plan_offset, state.expired, state.moved),
            (list(state.moves), list(state.departed)),
            list(state.members.values()),
            sorted(state.subscriptions.items()),
        )
    )
