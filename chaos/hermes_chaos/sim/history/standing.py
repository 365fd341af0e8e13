"""Where nodes stand, for the checkers: heartbeats, clocks, folds, and the coordination log."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from hermes_actors.coordination.commands import Said
from hermes_actors.coordination.state import CoordinationState


@dataclass(frozen=True)
class Renewed:
    """That life of a node has read a heartbeat of its own, which it began to send at `sent_s`."""

    life: str
    sent_s: float
    at_s: float


@dataclass(frozen=True)
class Skewed:
    """A node's wall clock is off by so much from now on."""

    node: str
    skew_ms: int
    at_s: float


@dataclass(frozen=True)
class Folded:
    """The fold that a life of a node has made of a datacentre's log `kind` before `position`;
    `content` is all of it. `begun` counts how often it began anew. `registers` are the metadata's:
    key → the incarnation, stamp, datacentre and body.
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
    """A life of a node is about to say who it is in the coordination log: `boot`."""

    life: str
    boot: str


@dataclass(frozen=True)
class Coordinated:
    """A record of a datacentre's coordination log can be read. `said` None: not by this version."""

    dc: str
    offset: int
    timestamp_ms: int
    said: Said | None
    at_s: float


def content_of(state: CoordinationState) -> bytes:
    """All that a state says, as whoever asks it sees it: no snapshot, which might forget."""
    return msgspec.msgpack.encode(
        (
            (state.position, state.clock_ms, state.timestamp_ms, state.term, state.leader),
            (state.plan_offset, state.expired, state.moved),
            (list(state.moves), list(state.departed)),
            list(state.members.values()),
            sorted(state.subscriptions.items()),
        )
    )
