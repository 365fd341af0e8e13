"""The requests that publish messages, and the meaning of their answers. Pure."""

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import UUID

from hermes_client.errors import CallFailed, NotAccepted
from hermes_client.exchange import (
    Ask,
    Read,
    Reply,
    Request,
    Retries,
    Servers,
    Steps,
    carry_out,
    failure_of,
)

BATCH_MESSAGES_MAX = 1_000
BATCH_BYTES_MAX = 1_048_576
_ENVELOPES = "application/vnd.hermes.messages+ndjson"


@dataclass(frozen=True, slots=True)
class Published:
    """A message that the broker accepted.

    `is_spooled`: it is on the node's disk, and will be sent to the log (202). `is_repeat`: it was
    stored by an earlier attempt with the same idempotency key.
    """

    id: str
    is_spooled: bool = False
    is_repeat: bool = False


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message for `publish_many` with its partition key, headers or id (a lower-case UUID)."""

    message: Any
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    id: str = ""


def encoded(message: Any) -> bytes:
    """The body: bytes as they are, anything else as JSON. Raises ValueError or TypeError."""
    if isinstance(message, bytes | bytearray | memoryview):
        return bytes(message)
    return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


Outcomes = Steps[list[Published | CallFailed]]


@dataclass(frozen=True, slots=True)
class Publishing:
    """Makes the steps that publish to these servers."""

    servers: Servers
    retries: Retries
    rng: random.Random

    def publish(
        self,
        topic: str,
        message: Any,
        key: str | None,
        headers: Mapping[str, str] | None,
        idempotency_key: str | None,
        content_type: str,
    ) -> Steps[Published]:
        """Publish one message. Raises CallFailed."""
        idempotency_key = idempotency_key or self._new_id()
        quoted = idempotency_key.replace("\\", "\\\\").replace('"', '\\"')
        fields = {**(headers or {}), "Content-Type": content_type, "Idempotency-Key": f'"{quoted}"'}
        if key is not None:
            fields["Partition-Key"] = key
        request = _path(topic), encoded(message), fields

        def read(reply: Reply, _left: Sequence[int]) -> list[Published | CallFailed]:
            is_repeat = reply.headers.get("idempotency-replayed") == "true"
            message_id = reply.headers.get("hermes-message-id", "")
            return [Published(message_id, reply.status == 202, is_repeat)]

        (outcome,) = yield from self._carry_out(1, lambda _: request, read)
        if isinstance(outcome, CallFailed):
            raise outcome
        return outcome

    def publish_many(self, topic: str, messages: Iterable[Any]) -> Outcomes:
        """Publish messages in batches, one after the other. The outcomes are in their order. Raises
        ValueError or TypeError, before anything is sent.
        """
        outcomes: list[Published | CallFailed] = []
        path = f"{_path(topic)}/batch"
        for lines in _batches([self._line(each) for each in messages]):

            def ask(left: Sequence[int], lines: Sequence[bytes] = lines) -> Request:
                body = b"".join(lines[at] for at in left)
                return path, body, {"Content-Type": _ENVELOPES}

            outcomes += yield from self._carry_out(len(lines), ask, _read_lines)
        return outcomes

    def _carry_out(self, count: int, ask: Ask, read: Read[Published]) -> Outcomes:
        return carry_out(count, ask, read, self.servers, self.retries, self.rng)

    def _line(self, message: Any) -> bytes:
        """A line of the batch. With the id made here, a message that is stored twice has one id."""
        one = message if isinstance(message, Outgoing) else Outgoing(message)
        body = encoded(one.message)
        if isinstance(one.message, bytes | bytearray | memoryview):
            # Anything else would break the lines of the other messages.
            json.loads(body.decode())
            body = body.replace(b"\n", b" ").replace(b"\r", b" ")
        rest: dict[str, Any] = {"id": one.id or self._new_id()}
        if one.key is not None:
            rest["key"] = one.key
        if one.headers:
            rest["headers"] = dict(one.headers)
        return b'{"message":%b,%b\n' % (body, json.dumps(rest).encode()[1:])

    def _new_id(self) -> str:
        return str(UUID(int=self.rng.getrandbits(128), version=4))


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size_bytes = 0
    for line in lines:
        is_full = len(batch) == BATCH_MESSAGES_MAX or size_bytes + len(line) > BATCH_BYTES_MAX
        if batch and is_full:
            yield batch
            batch, size_bytes = [], 0
        batch.append(line)
        size_bytes += len(line)
    if batch:
        yield batch


def _read_lines(reply: Reply, left: Sequence[int]) -> list[Published | CallFailed]:
    """The results of a batch. Messages without a line were not stored if the answer ends with a
    reason, a line without an id; otherwise they may be.
    """
    results: list[Published | CallFailed] = []
    last: tuple[int, str, str] | None = None
    for text in reply.body.splitlines():
        try:
            line = json.loads(text)
            status, message_id = int(line["status"]), line.get("id")
        except (ValueError, LookupError, TypeError):
            # The connection broke within the line.
            break
        if message_id is None:
            last = status, line.get("code", ""), line.get("message", "")
        elif status in (201, 202):
            results.append(Published(message_id, status == 202))
        else:
            results.append(failure_of(status, line.get("code", ""), line.get("message", "")))
    while len(results) < len(left):
        cut = NotAccepted("the answer ended before this message's line", may_be_stored=True)
        results.append(failure_of(*last) if last else cut)
    return results[: len(left)]


def _path(topic: str) -> str:
    return f"/topics/{quote(topic, safe='')}"
