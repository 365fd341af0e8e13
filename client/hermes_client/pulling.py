"""The calls of a pull subscription, and which messages need a longer deadline. Pure."""

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from hermes_client.errors import AckRefused
from hermes_client.exchange import Calls, Reply, Steps
from hermes_client.messages import Message, cut, members

R = TypeVar("R")
Settle = Callable[[str, list[str], float | None], R]
"""Acks or nacks messages: the verb, their ack ids and the delay."""

HELD_MAX = 1_000
_EXTENDED_S = 30
# A subscription's own deadline is a second at least.
_FIRST_S, _EACH_S = 0.3, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledMessage(Message, Generic[R]):
    """A message to be acknowledged. Until then its deadline is extended.

    An async consumer's `ack` and `nack` are awaited. They raise AckRefused if the message has gone
    to another client, and CallFailed.
    """

    ack_id: str
    settle: Settle[R] = field(repr=False, compare=False)

    def ack(self) -> R:
        """Acknowledge the message: it is done."""
        return self.settle("ack", [self.ack_id], None)

    def nack(self, *, delay_s: float | None = None) -> R:
        """Give the message back, which counts as a failed attempt. It comes again after this
        delay, or else after the subscription's back-off.
        """
        return self.settle("nack", [self.ack_id], delay_s)


@dataclass(frozen=True, slots=True)
class Pulling(Calls):
    """Makes the steps of a subscription's calls."""

    topic: str
    subscription: str

    def pull(self, count: int, wait_s: float, settle: Settle[R]) -> Steps[list[PulledMessage[R]]]:
        """Fetch messages, and wait for the first. Raises CallFailed."""
        body = {"maxMessages": count, "waitMs": int(wait_s * 1_000)}
        reply = yield from self._call("pull", body, wait_s)
        received = cut(members(reply.body.decode())["receivedMessages"], list)
        return [self._message(members(each), settle) for each in received]

    def settle(self, verb: str, ack_ids: list[str], delay_s: float | None) -> Steps[None]:
        """Ack, nack or extend. Raises AckRefused, and CallFailed."""
        more = {"ackDeadlineSeconds": _EXTENDED_S} if verb == "extend" else {}
        more |= {} if delay_s is None else {"delayMs": int(delay_s * 1_000)}
        reply = yield from self._call(verb, {"ackIds": ack_ids, **more})
        refused = json.loads(reply.body)["refused"]
        if reply.attempts > 1:
            # An attempt without an answer may have had its effect.
            refused = [each for each in refused if each["code"] != "NOT_OUT"]
        if refused:
            raise AckRefused(refused)

    def _call(self, verb: str, body: Any, wait_s: float = 0.0) -> Steps[Reply]:
        path = f"/topics/{quote(self.topic)}/subscriptions/{quote(self.subscription)}/{verb}"
        request = path, json.dumps(body).encode(), {"content-type": "application/json"}
        attempt_s, total_s = self.retries.attempt_s + wait_s, self.retries.total_s + wait_s
        retries = replace(self.retries, attempt_s=attempt_s, total_s=total_s)
        return replace(self, retries=retries).one(request)

    def _message(self, received: dict[str, str], settle: Settle[R]) -> PulledMessage[R]:
        parts = members(received["message"])
        fields = {name: json.loads(part) for name, part in parts.items() if name != "json"}
        attributes = {name.lower(): value for name, value in fields.get("attributes", {}).items()}
        body = base64.b64decode(fields.get("data", ""))
        time = fields["publishTime"]
        return PulledMessage(
            id=fields["messageId"],
            body=parts["json"].encode() if "json" in parts else body,
            topic=self.topic,
            subscription=self.subscription,
            key=fields.get("orderingKey", ""),
            attempt=int(received["deliveryAttempt"]),
            published_at=datetime.fromisoformat(time) if time else None,
            headers=attributes,
            event={name[3:]: text for name, text in attributes.items() if name[:3] == "ce-"},
            is_tombstone=not parts.keys() & {"json", "data"},
            ack_id=json.loads(received["ackId"]),
            settle=settle,
        )


class Holdings(dict[str, tuple[float, float]]):
    """The ack ids that a client holds, with the end of that and the time of the next extension."""

    def add(self, ack_ids: Iterable[str], now_s: float, hold_max_s: float) -> None:
        """These messages were handed out."""
        self.update(dict.fromkeys(ack_ids, (now_s + hold_max_s, now_s + _FIRST_S)))

    def drop(self, ack_ids: Iterable[str]) -> None:
        """These messages are settled or lost."""
        for ack_id in ack_ids:
            self.pop(ack_id, None)

    def due(self, now_s: float) -> list[str]:
        """The messages whose deadlines are to be extended now; their next time is later."""
        due = [each for each, (end_s, at_s) in self.items() if at_s <= now_s < end_s][:HELD_MAX]
        self.update({each: (self[each][0], now_s + _EACH_S) for each in due})
        return due
