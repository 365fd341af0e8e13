"""Events that are known to be true in the simulated world, for the checkers: requests, answers,
records, deliveries.

They are recorded at the edges of the production code (publishers, logs, subscribers), never inside.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hermes_actors.log.base import Commit
from hermes_actors.model.dead_letter import Letter
from hermes_actors.model.record import StoredRecord
from hermes_chaos.sim.history.avro import as_published, read_avro
from hermes_chaos.sim.history.pulling import Acknowledged, HandedOut, LetGo
from hermes_chaos.sim.history.standing import Coordinated, Folded, Named, Renewed, Skewed

_SCHEMA_ID = "sid"

Place = tuple[str, str, int]
"""(dc, log topic, partition)."""


@dataclass
class Published:
    """One request of a publisher. `status` None: no answer came, so the result is unknown.

    `node` is the node that took it, or the datacentre's name if none was running; `life` is that
    node's life. `code` is that of an error answer. `key`, `trace` and `idempotency_key` are empty
    strings if absent; `is_repeat`: the same message was sent before under its idempotency key.
    `is_cut`: the body is shorter than its Content-Length.
    """

    serial: int
    topic: str
    body: bytes
    node: str
    status: int | None = None
    message_id: str = ""
    dc: str = ""
    code: str = ""
    key: str = ""
    trace: str = ""
    idempotency_key: str = ""
    is_repeat: bool = False
    is_cut: bool = False
    life: str = ""
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def lasted_s(self) -> float:
        """Seconds from the request to its answer, or until the client gave up."""
        return self.ended_s - self.began_s

    @property
    def is_acknowledged(self) -> bool:
        """True if the publisher was told that the message is safe."""
        return self.status in (201, 202)

    @property
    def is_refused(self) -> bool:
        """True if the publisher was told that the message is certainly not stored."""
        return self.status is not None and 400 <= self.status < 500


@dataclass(frozen=True)
class Delivery:
    """One message that reached a subscriber's code. `subscription` is its full name. `version` is
    that of the schema with which the message was read, 0 without one.
    """

    dc: str
    subscription: str
    message_id: str
    body: bytes
    is_processed: bool
    version: int = 0


@dataclass(frozen=True)
class Answer:
    """`host` answered for one message, and the answer reached the pushing node."""

    dc: str
    subscription: str
    message_id: str
    status: int
    host: str = ""
    at_s: float = 0.0


@dataclass(frozen=True)
class Stored:
    """One record of a topic of messages, when its log stored it.

    `topic` is the topic's name. `dc` is the publisher's datacentre and `via` the route of the
    message, both as the record says. An Avro record has its body as published and the schema's
    `version`, else 0.
    """

    place: Place
    offset: int
    message_id: str
    body: bytes
    topic: str = ""
    key: str = ""
    dc: str = ""
    via: str = ""
    trace: str = ""
    timestamp_ms: int = 0
    version: int = 0


@dataclass(frozen=True)
class Handed:
    """A life of a node has handed messages to a log: their ids and routes."""

    life: str
    dc: str
    topic: str
    ids: tuple[str, ...]
    vias: tuple[str, ...]
    at_s: float


@dataclass(frozen=True)
class Told:
    """A log has told that life which of its messages, `ids`, are stored."""

    life: str
    dc: str
    topic: str
    stored: tuple[str, ...]
    at_s: float
    ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counted:
    """The final counters of a life of a node: samples by name, with their labels.

    `is_whole`: it was neither killed nor stopped, so nothing is missing.
    """

    life: str
    samples: tuple[tuple[str, Mapping[str, str], float], ...]
    is_whole: bool


@dataclass(frozen=True)
class Committed:
    """One commit of a consumer group, when its log stored it."""

    place: Place
    group: str
    commit: Commit


@dataclass(frozen=True)
class Committing:
    """That life of a node starts a commit: partition → commit."""

    life: str
    dc: str
    group: str
    commits: Mapping[int, Commit]
    at_s: float


@dataclass(frozen=True)
class Recalled:
    """That life of a node has read the commits of a consumer group: partition → commit."""

    life: str
    dc: str
    group: str
    topic: str
    commits: Mapping[int, Commit]


@dataclass(frozen=True)
class Overtaken:
    """A late commit of a killed life has reached the log now, over newer ones."""

    place: Place
    group: str
    commit: Commit


@dataclass(frozen=True)
class Lettering:
    """That life of a node hands a dead letter to its log, perhaps repeatedly."""

    life: str
    dc: str
    letter: Letter
    at_s: float


@dataclass(frozen=True)
class Allowed:
    """The shares of a subscription's rate that a datacentre's nodes use at this moment: life →
    messages a second. Only nodes with an open lease.
    """

    dc: str
    subscription: str
    parts: Mapping[str, float]
    at_s: float


@dataclass(frozen=True)
class Rested:
    """Everything has settled, and was left alone for some rounds of the balancer.

    `weights`: the cost of each subscription in a datacentre, as its nodes have measured it.
    """

    at_s: float
    weights: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Dropped:
    """A leader change: the partition lost its records from `end` on."""

    place: Place
    end: int


@dataclass(frozen=True)
class Expired:
    """Retention removed the partition's records below `start`."""

    place: Place
    start: int


@dataclass(frozen=True)
class Attempted:
    """A consumer handed a push to its sender, with that sender's `number`; `node` is one life.

    A batch has its own id, and the `ids` of its messages. `sequence` is the partition and the
    offset in an ordered push.
    """

    node: str
    number: int
    subscription: str
    message_id: str
    retries: int
    at_s: float
    host: str = ""
    body: bytes = b""
    ids: tuple[str, ...] = ()
    sequence: tuple[int, int] | None = None

    @property
    def dc(self) -> str:
        """The node's datacentre."""
        return self.node.partition("-")[0]

    @property
    def lane(self) -> tuple[str, str, str, str]:
        """Identifies the attempts at one message at one address."""
        return self.node, self.subscription, self.host, self.message_id


@dataclass(frozen=True)
class Ended:
    """The sender reported the outcome of an attempt; `status` 0: no answer."""

    attempt: Attempted
    status: int
    retry_after: str
    at_s: float


@dataclass(frozen=True)
class Adopted:
    """A consumer in this life of a node started, or took a new version of its subscription.

    A consumer that started knows nothing of its predecessor's pushes.
    """

    node: str
    subscription: str
    at_s: float = 0.0


@dataclass(frozen=True)
class Lettered:
    """A dead letter was stored in that datacentre's log."""

    dc: str
    letter: Letter
    at_s: float


@dataclass(frozen=True)
class Closed:
    """A mark that closes dead letters was stored in that datacentre's log."""

    dc: str
    subscription: str
    kind: str
    ids: tuple[str, ...]
    at_s: float
    up_to_ms: tuple[int, ...] = ()


@dataclass(frozen=True)
class Halted:
    """That life of a node has heard that the subscription was suspended or resumed."""

    node: str
    subscription: str
    is_suspended: bool
    at_s: float


@dataclass(frozen=True)
class Sought:
    """A node of that datacentre has heard of a retransmission: partition → target offset.

    `positions` None: the target is the first record not older than `time_ms`.
    """

    node: str
    subscription: str
    number: int
    positions: Mapping[int, int] | None
    time_ms: int | None
    at_s: float

    @property
    def dc(self) -> str:
        """The node's datacentre."""
        return self.node.partition("-")[0]


def disk_of(node: str) -> str:
    """The name of a node's disk in troubles."""
    return f"the disk of {node}"


def readiness_of(dc: str) -> str:
    """The name of a datacentre's readiness in troubles."""
    return f"the readiness of {dc}"


def coordination_of(dc: str) -> str:
    """The name of a datacentre's coordination in troubles that affect only that."""
    return f"the coordination of {dc}"


@dataclass(frozen=True)
class Troubled:
    """A fault has begun in a datacentre's log, a node or its disk. An empty `topic` means all
    topics.

    It lasts `lasts_s`, or until the place is `Calmed`.
    """

    where: str
    fault: str
    at_s: float
    lasts_s: float = math.inf
    topic: str = ""


@dataclass(frozen=True)
class Calmed:
    """All faults of a datacentre's log, or of a node's disk, have ended."""

    where: str
    at_s: float


@dataclass(frozen=True)
class Forgotten:
    """Retention has removed all of that datacentre's coordination, and none of its
    nodes is alive.
    """

    dc: str
    at_s: float


@dataclass(frozen=True)
class Healed:
    """The last fault of the run has ended."""

    at_s: float


Event = (
    Published
    | Delivery
    | Answer
    | Stored
    | Handed
    | Told
    | Counted
    | Committed
    | Committing
    | Recalled
    | Overtaken
    | Lettering
    | Renewed
    | Skewed
    | Folded
    | Named
    | Coordinated
    | Rested
    | Allowed
    | Dropped
    | Expired
    | Attempted
    | Ended
    | Adopted
    | HandedOut
    | LetGo
    | Acknowledged
    | Lettered
    | Closed
    | Halted
    | Sought
    | Troubled
    | Calmed
    | Healed
    | Forgotten
)


@dataclass
class History:
    """Passes each event to all watchers when it happens."""

    watchers: list[Callable[[Event], None]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)

    def tell(self, event: Event) -> None:
        """Tell the watchers of an event that has just happened."""
        for watch in self.watchers:
            watch(event)


def stored(place: Place, topic: str, record: StoredRecord) -> Stored:
    """A record as Stored, from its headers in Hermes' form or ours."""
    written_with = int.from_bytes(dict(record.headers).get(_SCHEMA_ID, b""), "big")
    headers = {name: value.decode(errors="replace") for name, value in record.headers}
    body, version = record.value, 0
    if written_with:
        body, version = as_published(read_avro(body, written_with))
    return Stored(
        place,
        record.offset,
        headers.get("id", ""),
        body,
        topic,
        (record.key or b"").decode(),
        headers.get("dc", ""),
        headers.get("via", ""),
        headers.get("traceparent", ""),
        record.timestamp_ms,
        version,
    )


def serial_of(body: bytes) -> int | None:
    """The publisher's serial number in a message's body; None for any other body."""
    try:
        document = json.loads(body)
    except ValueError:
        return None
    serial = document.get("serial") if isinstance(document, dict) else None
    return serial if isinstance(serial, int) else None
