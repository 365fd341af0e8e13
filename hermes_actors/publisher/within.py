"""Publishes one message from within the node, with the checks and the answers of a request."""

from collections.abc import Sequence

import msgspec
import trio

from hermes_actors.errors import ErrorCode, HermesError, Unavailable
from hermes_actors.publisher.answers import Answer, error_of, status_of
from hermes_actors.publisher.demands import Head, head_refusal
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.security.account import Credentials


async def publish(
    frontend: Frontend,
    topic: str,
    headers: Sequence[tuple[str, str]],
    body: bytes,
    credentials: Credentials,
) -> tuple[str, int]:
    """Publish the message as the author with these credentials. Returns its id, and 201 if a log
    has it or 202 if only this node's disk does.

    A trio coroutine. Raises HermesError, as the answer to a publisher says it.
    """
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    head = Head(pairs, {name.lower(): value for name, value in pairs})
    if refusal := head_refusal(frontend.config, topic, "", pairs):
        raise refusal
    gateway = frontend.gateway
    if gateway.security is not None and gateway.security.asks(topic):
        head.account = await gateway.security.authenticator.identify(credentials)
    key = head.get("partition-key")
    settled = trio.Event()
    pending = gateway.admit(
        topic, len(body), key.encode("latin-1") if key else None, head, lambda _: settled.set()
    )
    if isinstance(pending, Answer):
        raise _error(pending)
    gateway.hand_over(pending, body)
    # Its deadline settles it at the latest.
    await settled.wait()
    assert pending.outcome is not None, "it is settled"
    status = status_of(pending.outcome, topic)
    if status not in (201, 202):
        raise error_of(pending.outcome, topic)
    return pending.id, status


def _error(answer: Answer) -> HermesError:
    if not answer.body:
        return Unavailable("This node is stopping, or has not started yet; try again")
    said = msgspec.json.decode(answer.body)
    return HermesError(said["message"], ErrorCode[said["code"]], answer.status)
