"""The events that the simulated world knows to be true, for the checkers: asked, answered, stored,
delivered.

Taken at the edges of the production code (publishers, logs, subscribers), never from inside it.
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
from hermes_chaos.sim.history.standing import Coordinated, Folded, Named, Renewed, Skewed

_SCHEMA_ID = "sid"

Place = tuple[str, str, int]
"""(dc, log topic, partition)."""


@dataclass
class Published:
    """One request of a publisher. `status` None: no answer came, so nothing is known of it.

    `node` is the DC's name when no node was up to take it, `life` that life of it that took it.
    `code` is an error answer's. `key` and `trace` are its partition key and trace context, "" for
    none. `idempotency_key`: "" for none; with one, `is_repeat` says that the same message was sent
    under it before. `is_cut`: its body is shorter than its request says.
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
        """The seconds from the request to its answer, or to when nobody waited any more."""
        return self.ended_s - self.began_s

    @property
    def is_acknowledged(self) -> bool:
        """True when the publisher was told that it is safe."""
        return self.status in (201, 202)

    @property
    def is_refused(self) -> bool:
        """True when the publisher was told that it is certainly not stored."""
        return self.status is not None and 400 <= self.status < 500


@dataclass(frozen=True)
class Delivery:
    """One message that reached a subscriber's code. `subscription` is its full name, `version` that
    of the schema which the message is read by, 0 without one.
    """

    dc: str
    subscription: str
    message_id: str
    body: bytes
    is_processed: bool
    version: int = 0


@dataclass(frozen=True)
class Answer:
    """The answer for one message, when it reached the pushing node. `host` answered."""

    dc: str
    subscription: str
    message_id: str
    status: int
    host: str = ""
    at_s: float = 0.0


@dataclass(frozen=True)
class Stored:
    """One record of a topic of messages, at the moment when its log stored it.

    `topic` is the topic's own name; `dc` is the publisher's datacentre and `via` the way that the
    message took, both as the record says. What is stored in Avro has the body as it was published,
    and the `version` of its schema, else 0.
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
    """A life of a node has handed messages to a log: their ids, and the way that each takes."""

    life: str
    dc: str
    topic: str
    ids: tuple[str, ...]
    vias: tuple[str, ...]
    at_s: float


@dataclass(frozen=True)
class Told:
    """A log has told that life which of the messages it was handed, `ids`, it has stored."""

    life: str
    dc: str
    topic: str
    stored: tuple[str, ...]
    at_s: float
    ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counted:
    """The counts of a life of a node by its end: samples by name, with their labels.

    `is_whole`: it was neither killed nor stopped, so nothing that it did is missing.
    """

    life: str
    samples: tuple[tuple[str, Mapping[str, str], float], ...]
    is_whole: bool


@dataclass(frozen=True)
class Committed:
    """One commit of a consumer group, at the moment when its log stored it."""

    place: Place
    group: str
    commit: Commit


@dataclass(frozen=True)
class Committing:
    """That life of a node begins to commit: partition → commit."""

    life: str
    dc: str
    group: str
    commits: Mapping[int, Commit]
    at_s: float


@dataclass(frozen=True)
class Overtaken:
    """A commit that a life had made before it was killed has reached the log now, over others."""

    place: Place
    group: str
    commit: Commit


@dataclass(frozen=True)
class Lettering:
    """That life of a node hands a dead letter to its log, perhaps not for the first time."""

    life: str
    dc: str
    letter: Letter
    at_s: float


@dataclass(frozen=True)
class Allowed:
    """The parts of a subscription's rate that the nodes of a datacentre take for theirs at this
    moment: life → messages a second. Only of those that may act.
    """

    dc: str
    subscription: str
    parts: Mapping[str, float]
    at_s: float


@dataclass(frozen=True)
class Rested:
    """Everything has settled, and was left alone for some rounds of the balancer's.

    `weights`: what each subscription costs in a datacentre, as its nodes have measured it.
    """

    at_s: float
    weights: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Dropped:
    """A leader change: what the partition held from `end` on is gone."""

    place: Place
    end: int


@dataclass(frozen=True)
class Expired:
    """Retention: what the partition held below `start` is gone."""

    place: Place
    start: int


@dataclass(frozen=True)
class Attempted:
    """A consumer handed a push to its sender, as that sender's `number`; `node` is one life.

    A batch has its own id, and the `ids` of its messages. `sequence` is the partition and the
    offset that an ordered push names.
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
        """The datacentre of the node."""
        return self.node.partition("-")[0]

    @property
    def lane(self) -> tuple[str, str, str, str]:
        """The key that tells the attempts at one message, at one address, from all others."""
        return self.node, self.subscription, self.host, self.message_id


@dataclass(frozen=True)
class Ended:
    """The sender told the consumer what became of an attempt; `status` 0: no answer."""

    attempt: Attempted
    status: int
    retry_after: str
    at_s: float


@dataclass(frozen=True)
class Adopted:
    """A consumer in this life of a node began, or took a new version of its subscription.

    One that began knows nothing of what its predecessor pushed.
    """

    node: str
    subscription: str
    at_s: float = 0.0


@dataclass(frozen=True)
class Lettered:
    """A dead letter has been stored in that datacentre's log."""

    dc: str
    letter: Letter
    at_s: float


@dataclass(frozen=True)
class Closed:
    """A mark that closes dead letters has been stored in that datacentre's log."""

    dc: str
    subscription: str
    kind: str
    ids: tuple[str, ...]
    at_s: float
    up_to_ms: tuple[int, ...] = ()


@dataclass(frozen=True)
class Halted:
    """That life of a node has heard that the subscription is suspended, or is not any more."""

    node: str
    subscription: str
    is_suspended: bool
    at_s: float


@dataclass(frozen=True)
class Sought:
    """A node of that datacentre has heard of a retransmission: partition → offset to go on at.

    `positions` None: at the first record that is not older than `time_ms`.
    """

    node: str
    subscription: str
    number: int
    positions: Mapping[int, int] | None
    time_ms: int | None
    at_s: float

    @property
    def dc(self) -> str:
        """The datacentre of the node."""
        return self.node.partition("-")[0]


def disk_of(node: str) -> str:
    """Where a node's disk is, for troubles."""
    return f"the disk of {node}"


def readiness_of(dc: str) -> str:
    """Where it is said whether a DC may be fallen back to, for troubles."""
    return f"the readiness of {dc}"


def coordination_of(dc: str) -> str:
    """Where a DC's nodes agree on who owns what, for troubles of theirs alone."""
    return f"the coordination of {dc}"


@dataclass(frozen=True)
class Troubled:
    """A fault has begun, in a DC's log, in a node or in its disk. `topic` "": of all topics.

    It lasts `lasts_s`, or until the place is `Calmed`.
    """

    where: str
    fault: str
    at_s: float
    lasts_s: float = math.inf
    topic: str = ""


@dataclass(frozen=True)
class Calmed:
    """All faults of a DC's log, or of a node's disk, have been lifted."""

    where: str
    at_s: float


@dataclass(frozen=True)
class Forgotten:
    """Retention has taken all of that datacentre's coordination, and none of its nodes lives."""

    dc: str
    at_s: float


@dataclass(frozen=True)
class Healed:
    """The last fault of the run has been lifted."""

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
    """Tells each event to whoever watches, at the moment when it happens."""

    watchers: list[Callable[[Event], None]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)

    def tell(self, event: Event) -> None:
        """Tell the watchers of an event that has just happened."""
        for watch in self.watchers:
            watch(event)


def stored(place: Place, topic: str, record: StoredRecord) -> Stored:
    """Return a record as Stored, by what it says of itself, in Hermes' headers or in ours."""
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
    """The publisher's serial number in a message's body; None when it is not a publisher's body."""
    try:
        document = json.loads(body)
    except ValueError:
        return None
    serial = document.get("serial") if isinstance(document, dict) else None
    return serial if isinstance(serial, int) else None
