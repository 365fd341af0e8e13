"""A subscriber that answers according to rules, counts pushes, and can write a journal."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from io import RawIOBase

import msgspec
from msgspec import UNSET, Struct, UnsetType

from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.edges.endpoint import Reply
from hermes_actors.publisher.edges.request import Request

_IDS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class SinkRules:
    """How a sink answers. `fail_first_percent` of messages get a 500 at their first attempt."""

    status: int = 200
    delay_ms: int = 0
    fail_first_percent: float = 0.0

    def picks(self, message_id: str) -> bool:
        """True if the first attempt of this message fails; the same for each run."""
        if self.fail_first_percent <= 0:
            return False
        digest = hashlib.sha256(message_id.encode()).digest()
        return int.from_bytes(digest[:8], "big") < self.fail_first_percent / 100 * 2**64


class RecentIds:
    """Remembers the last `ids_max` ids; bounded, so that a sink can run for days."""

    def __init__(self, ids_max: int = _IDS_MAX) -> None:
        self._ids_max = ids_max
        self._ids: OrderedDict[str, None] = OrderedDict()

    def is_new(self, message_id: str) -> bool:
        """True if the id is not remembered yet; remembers it."""
        if message_id in self._ids:
            return False
        self._ids[message_id] = None
        if len(self._ids) > self._ids_max:
            self._ids.popitem(last=False)
        return True


class ReceivedPush(Struct, frozen=True, rename="camel"):
    """One push as received, and the status of its answer."""

    received_ms: int
    message_id: str
    retry_count: int
    method: str
    path: str
    status: int
    body_sha256: str
    body: str | UnsetType = UNSET
    body_base64: bytes | UnsetType = UNSET
    """For a body that is not UTF-8."""

    def line(self) -> bytes:
        """Return the push as one line of NDJSON."""
        return msgspec.json.encode(self) + b"\n"


class SinkCounts(Struct, rename="camel"):
    """The counts of a sink. A duplicate is an accepted delivery of an id accepted before."""

    received: int = 0
    accepted: int = 0
    refused: int = 0
    retries: int = 0
    duplicates: int = 0
    bytes: int = 0
    span_ms: int = 0
    """Between the first and the last push."""


@dataclass(slots=True)
class Sink:
    """Counts and answers pushes: `take` chooses the status according to the rules, `respond` sends
    it after their delay.

    `now_ms` returns the wall-clock time in milliseconds. `journal`, an unbuffered file, gets a line
    for each push.
    """

    rules: SinkRules
    now_ms: Callable[[], int]
    journal: RawIOBase | None = None
    show: Callable[[ReceivedPush], None] | None = None
    counts: SinkCounts = field(default_factory=SinkCounts)
    _first_ms: int | None = None
    _accepted: RecentIds = field(default_factory=RecentIds)
    _failed_once: RecentIds = field(default_factory=RecentIds)

    def take(self, request: Request, body: bytes) -> ReceivedPush:
        """Decide on one request and count it."""
        headers, counts, now_ms = request.fields, self.counts, self.now_ms()
        raw_id = headers.get(b"hermes-message-id") or headers.get(b"hermes-batch-id") or b""
        message_id, digest = raw_id.decode("latin-1"), hashlib.sha256(body).hexdigest()
        # Without an id, treat equal bodies as the same message.
        identity = message_id or digest
        retries = headers.get(b"hermes-retry-count", b"0")
        retry_count = int(retries) if retries.isdigit() else 0
        status = self.rules.status
        if self.rules.picks(identity) and self._failed_once.is_new(identity):
            status = 500
        if self._first_ms is None:
            self._first_ms = now_ms
        counts.span_ms = now_ms - self._first_ms
        counts.received += 1
        counts.bytes += len(body)
        counts.retries += retry_count > 0
        if 200 <= status < 300:
            counts.accepted += 1
            counts.duplicates += not self._accepted.is_new(identity)
        else:
            counts.refused += 1
        seen = (now_ms, message_id, retry_count, request.method, request.target, status, digest)
        try:
            return ReceivedPush(*seen, body=body.decode("utf-8"))
        except UnicodeDecodeError:
            return ReceivedPush(*seen, body_base64=body)

    def respond(self, request: Request, body: bytes, reply: Reply) -> None:
        """Write one request to the journal, then answer it; with 507 if that failed."""
        delivery = self.take(request, body)
        status = delivery.status
        if self.show is not None:
            self.show(delivery)
        if self.journal is not None:
            try:
                self.journal.write(delivery.line())
            except OSError:
                status = 507
        reply(Answer(status), self.rules.delay_ms / 1_000)
