"""The same publisher and consumer without async, for scripts, notebooks and threads."""

import random
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Self

from anyio.from_thread import start_blocking_portal

from hermes_client.consumer import PullConsumer as AsyncPullConsumer
from hermes_client.errors import CallFailed
from hermes_client.exchange import RETRIES, Retries, Servers, Urls
from hermes_client.publishing import Headers, Published, Publishing
from hermes_client.pulling import PulledMessage
from hermes_client.transport import Auth, Tls, carry_out_sync, sync_client


class Publisher:
    """`hermes_client.Publisher` without async; threads may share it.

    >>> with Publisher("http://127.0.0.1:8080") as publisher:
    ...     published = publisher.publish("shop.orders", {"id": 1}, key="customer-7")
    """

    def __init__(
        self, urls: Urls, *, auth: Auth = None, tls: Tls = None, retries: Retries = RETRIES
    ) -> None:
        self._publishing = Publishing(Servers(urls), retries, random.SystemRandom())
        self._client = sync_client(auth, tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def publish(
        self,
        topic: str,
        message: Any,
        *,
        key: str | None = None,
        headers: Headers | None = None,
        idempotency_key: str | None = None,
    ) -> Published:
        """Publish one message, as `hermes_client.Publisher.publish`."""
        steps = self._publishing.publish(topic, message, key, headers, idempotency_key)
        return carry_out_sync(self._client, steps)

    def publish_many(self, topic: str, messages: Iterable[Any]) -> list[Published | CallFailed]:
        """Publish many messages, as `hermes_client.Publisher.publish_many`."""
        return carry_out_sync(self._client, self._publishing.publish_many(topic, messages))


class PullConsumer:
    """`hermes_client.PullConsumer` without async, with the same arguments.

    >>> url = "http://127.0.0.1:8090"
    >>> with PullConsumer(url, "shop.orders", "worker", follow=False) as consumer:
    ...     for message in consumer:
    ...         print(message.json())
    ...         message.ack()
    """

    def __init__(self, urls: Urls, topic: str, subscription: str, **options: Any) -> None:
        self._consumer = AsyncPullConsumer(urls, topic, subscription, **options)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._portal = self._open.enter_context(start_blocking_portal())
        self._open.enter_context(self._portal.wrap_async_context_manager(self._consumer))
        return self

    def __exit__(self, *error: object) -> None:
        self._open.__exit__(*error)  # type: ignore[arg-type]

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> PulledMessage[None]:
        try:
            message: PulledMessage[Any] = self._portal.call(self._consumer.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
        return replace(message, settle=partial(self._portal.call, message.settle))
