"""Publishes messages from asyncio or trio, with retries, fail-over and an outcome for each."""

import random
from collections.abc import Iterable
from typing import Any, Self

from hermes_client.errors import CallFailed
from hermes_client.exchange import RETRIES, Retries, Servers, Urls
from hermes_client.publishing import Headers, Published, Publishing
from hermes_client.transport import Auth, Tls, async_client, carry_out


class Publisher:
    """Publishes to the frontends at `urls`, one or several in order of preference.

    >>> async with Publisher("http://127.0.0.1:8080") as publisher:
    ...     published = await publisher.publish("shop.orders", {"id": 1}, key="customer-7")

    `auth` is `(user, password)`, a bearer token or an `httpx.Auth`; `tls` says whom to trust, and
    may have a client certificate. Tasks may share a publisher.
    """

    def __init__(
        self, urls: Urls, *, auth: Auth = None, tls: Tls = None, retries: Retries = RETRIES
    ) -> None:
        self._publishing = Publishing(Servers(urls), retries, random.SystemRandom())
        self._client = async_client(auth, tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def publish(
        self,
        topic: str,
        message: Any,
        *,
        key: str | None = None,
        headers: Headers | None = None,
        idempotency_key: str | None = None,
    ) -> Published:
        """Publish one message: bytes as they are, anything else as JSON.

        `headers` may give another Content-Type. Messages of one `key` keep their order if you await
        each. All attempts have the same `idempotency_key`, a random one by default, so the message
        has one id, and one server stores it once. Raises TopicUnknown, MessageInvalid,
        NotAllowed, NotAccepted, or another CallFailed.
        """
        steps = self._publishing.publish(topic, message, key, headers, idempotency_key)
        return await carry_out(self._client, steps)

    async def publish_many(
        self, topic: str, messages: Iterable[Any]
    ) -> list[Published | CallFailed]:
        """Publish many JSON messages in batches, and return an outcome for each, in order.

        A message is as in `publish`, or an `Outgoing`. Only failures that allow it are retried; the
        message keeps its id, but may then be stored twice.
        """
        return await carry_out(self._client, self._publishing.publish_many(topic, messages))
