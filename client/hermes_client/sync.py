"""The same publisher without async, for scripts, notebooks and threads."""

import random
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from hermes_client.errors import CallFailed
from hermes_client.exchange import Retries, Servers
from hermes_client.publishing import Published, Publishing
from hermes_client.transport import Auth, Transport


class Publisher:
    """`hermes_client.Publisher` without async; threads may share it.

    >>> with Publisher("http://127.0.0.1:8080") as publisher:
    ...     published = publisher.publish("shop.orders", {"id": 1}, key="customer-7")
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        auth: Auth = None,
        tls: ssl.SSLContext | None = None,
        retries: Retries = Retries(),  # noqa: B008 -- it is frozen
    ) -> None:
        self._publishing = Publishing(Servers(urls), retries, random.SystemRandom())
        self._transport = Transport(auth, tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def publish(
        self,
        topic: str,
        message: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        content_type: str = "application/json",
    ) -> Published:
        """Publish one message, as `hermes_client.Publisher.publish`."""
        return self._transport.carry_out(
            self._publishing.publish(topic, message, key, headers, idempotency_key, content_type)
        )

    def publish_many(self, topic: str, messages: Iterable[Any]) -> list[Published | CallFailed]:
        """Publish many messages, as `hermes_client.Publisher.publish_many`."""
        return self._transport.carry_out(self._publishing.publish_many(topic, messages))
