"""The requests that publish messages, and the meaning of their answers. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import UUID

from hermes_client.errors import CallFailed
from hermes_client.exchange import Calls, Reply, Request, Steps, failure_of

Headers = Mapping[str, str]

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


class Publishing(Calls):
    """Makes the steps that publish."""

    def publish(
        self, topic: str, message: Any, key: str | None, headers: Headers | None, own: str | None
    ) -> Steps[Published]:
        """Publish one message; `own` is its idempotency key. Raises CallFailed."""
        quoted = (own or self._new_id()).replace("\\", "\\\\").replace('"', '\\"')
        fields = {"content-type": "application/json", "idempotency-key": f'"{quoted}"'}
        fields |= {} if key is None else {"partition-key": key}
        fields |= {name.lower(): value for name, value in (headers or {}).items()}
        reply = yield from self.one((_path(topic), encoded(message), fields))
        is_repeat = reply.headers.get("idempotency-replayed") == "true"
        message_id = reply.headers.get("hermes-message-id", "")
        return Published(message_id, reply.status == 202, is_repeat)

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

            outcomes += yield from self.many(len(lines), ask, _read_lines)
        return outcomes

    def _line(self, message: Any) -> bytes:
        """A line of the batch. With the id made here, a message that is stored twice has one id."""
        one = message if isinstance(message, Outgoing) else Outgoing(message)
        body = encoded(one.message)
        if isinstance(one.message, bytes | bytearray | memoryview):
            # Anything else would break the lines of the other messages.
            json.loads(body.decode())
            body = body.replace(b"\n", b" ").replace(b"\r", b" ")
        own_id = one.id or self._new_id()
        rest = {"id": own_id, "key": one.key, "headers": dict(one.headers) or None}
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
    rest = 0, "", "the answer ended before this message's line"
    for text in reply.body.splitlines():
        try:
            line = json.loads(text)
            status, message_id = int(line["status"]), line.get("id")
        except (ValueError, LookupError, TypeError):
            # The connection broke within the line.
            break
        if message_id is None:
            rest = status, line.get("code", ""), line.get("message", "")
        elif status in (201, 202):
            results.append(Published(message_id, status == 202))
        else:
            results.append(failure_of(status, line.get("code", ""), line.get("message", "")))
    while len(results) < len(left):
        results.append(failure_of(*rest))
    return results[: len(left)]


def _path(topic: str) -> str:
    return f"/topics/{quote(topic, safe='')}"
