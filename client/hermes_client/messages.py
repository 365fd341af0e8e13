"""One `Message` for all forms in which the broker delivers: alone, in a batch, as a CloudEvent."""

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from hermes_client.errors import DeliveryMalformed

_EVENT = "application/cloudevents+json"
# Numbers are only skipped; float takes any number of digits.
_decoder = json.JSONDecoder(parse_int=float)
_GAP = " \t\n\r,:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as published, and what the broker says about it.

    `id` is the same for each attempt; empty in batches of the form MESSAGES. `topic` and
    `subscription` are empty unless the subscription has `subscriptionIdentityHeadersEnabled`.
    `attempt` counts from 1. `headers` have names in lower case; `event` has the attributes of a
    CloudEvent. `is_tombstone`: the record has no value. `is_test`: somebody tests the endpoint.
    """

    id: str
    body: bytes
    topic: str = ""
    subscription: str = ""
    key: str = ""
    attempt: int = 1
    published_at: datetime | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    event: Mapping[str, str] = field(default_factory=dict)
    batch_id: str = ""
    is_tombstone: bool = False
    is_test: bool = False

    def json(self) -> Any:
        """The decoded body. Raises ValueError if it is not JSON."""
        return json.loads(self.body)


def parse(headers: Mapping[str, str], body: bytes) -> list[Message]:
    """The messages of one delivery, in order. Raises DeliveryMalformed."""
    fields = {name.lower(): value for name, value in headers.items()}
    content_type = fields.get("content-type", "").partition(";")[0].strip().lower()
    retries = fields.get("hermes-retry-count", "")
    common = Message(
        id=fields.get("hermes-message-id", ""),
        body=body,
        topic=fields.get("hermes-topic-name", ""),
        subscription=fields.get("hermes-subscription-name", ""),
        key=fields.get("partition-key", ""),
        attempt=int(retries) + 1 if retries.isascii() and retries.isdecimal() else 1,
        headers=fields,
        batch_id=fields.get("hermes-batch-id", ""),
        is_tombstone=fields.get("hermes-tombstone") == "true",
        is_test=fields.get("hermes-test") == "true",
    )
    try:
        if common.batch_id:
            return [_element(common, text) for text in cut(body.decode(), list)]
        if content_type == _EVENT:
            return [_event(common, body.decode())]
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        raise DeliveryMalformed(f"the body is not what its headers say: {error}") from error
    if "ce-specversion" in fields:
        attributes = {n[3:]: unquote(v) for n, v in fields.items() if n.startswith("ce-")}
        return [_with_attributes(common, attributes)]
    return [common]


def _element(common: Message, text: str) -> Message:
    """An element of a batch: an envelope, or a bare message."""
    envelope = members(text) if text.startswith("{") else {}
    if envelope.get("_w") != "true" or not {"metadata", "message"} <= envelope.keys():
        return replace(common, body=text.encode())
    metadata = json.loads(envelope["metadata"])
    external = {n.lower(): str(v) for n, v in metadata.get("externalMetadata", {}).items()}
    is_tombstone = external.get("hermes-tombstone") == "true"
    timestamp_ms = metadata.get("timestamp", 0)
    return replace(
        common,
        id=str(metadata["id"]),
        body=b"" if is_tombstone else envelope["message"].encode(),
        key=external.get("partition-key", ""),
        published_at=datetime.fromtimestamp(timestamp_ms / 1_000, UTC) if timestamp_ms else None,
        headers=external,
        is_tombstone=is_tombstone,
    )


def _event(common: Message, text: str) -> Message:
    """A CloudEvent in JSON."""
    parts = members(text)
    attributes = {
        name: value if isinstance(value, str) else part
        for name, part in parts.items()
        if name not in ("data", "data_base64") and (value := json.loads(part)) is not None
    }
    body = parts.get("data", "").encode()
    if "data_base64" in parts:
        body = base64.b64decode(json.loads(parts["data_base64"]), validate=True)
    elif body.startswith(b'"') and "json" not in attributes.get("datacontenttype", "json"):
        body = str(json.loads(body)).encode()
    return _with_attributes(replace(common, body=body), attributes)


def _with_attributes(message: Message, attributes: Mapping[str, str]) -> Message:
    published_at = None
    with suppress(ValueError):
        published_at = datetime.fromisoformat(attributes.get("time", ""))
    return replace(
        message,
        id=message.id or attributes.get("id", ""),
        key=message.key or attributes.get("partitionkey", ""),
        published_at=published_at,
        event=attributes,
    )


def cut(text: str, kind: type) -> list[str]:
    """Cut an array (`list`) into its elements, or an object (`dict`) into names and values in turn.
    Their texts stay as they are, so numbers keep all their digits. Raises ValueError.
    """
    if type(_decoder.decode(text)) is not kind:
        raise ValueError(f"it is no {'array' if kind is list else 'object'}")
    text = text.strip(_GAP)
    texts, at = list[str](), 1
    while True:
        while text[at] in _GAP:
            at += 1
        if at == len(text) - 1:
            return texts
        end = _decoder.raw_decode(text, at)[1]
        texts.append(text[at:end])
        at = end


def members(text: str) -> dict[str, str]:
    """The texts of an object's values by their names. Raises ValueError."""
    texts = cut(text, dict)
    return {json.loads(name): value for name, value in zip(texts[::2], texts[1::2], strict=True)}
