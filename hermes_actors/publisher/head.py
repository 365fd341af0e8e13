"""What a publish says before its body: the request's headers, whatever server read them."""

from collections.abc import Mapping
from typing import Protocol

from hermes_actors.security.account import Account, ClientCertificate

CLOUD_EVENTS = "application/cloudevents"
"""How the content type of every structured CloudEvent begins."""

SPECIAL = frozenset({"idempotency-key", "ce-specversion", "traceparent"})
"""The headers that ask for more than to be stored. A request without them takes the short way."""


class Head(Protocol):
    """One request's headers. Names are in lower case; of a repeated header the last value counts.

    `is_plain`: none of SPECIAL is there, and the body is no CloudEvent. `certificate` is the
    client's, verified, None without one. `account` is the author's, once he has been identified.
    """

    is_plain: bool
    certificate: ClientCertificate | None
    account: Account | None

    def get(self, name: str) -> str | None:
        """The header's value, None when it is absent."""

    def pairs(self) -> list[tuple[str, str]]:
        """All headers, in the order and the letter case that the server tells."""


class BytesHead:
    """The headers of an ASGI scope."""

    __slots__ = ("_fields", "_pairs", "account", "certificate", "is_plain")

    def __init__(
        self,
        pairs: list[tuple[bytes, bytes]],
        fields: Mapping[bytes, bytes],
        certificate: ClientCertificate | None = None,
    ) -> None:
        self._pairs = pairs
        self._fields = fields
        self.certificate = certificate
        self.account: Account | None = None
        self.is_plain = _SPECIAL_BYTES.isdisjoint(fields) and not fields.get(
            b"content-type", b""
        ).lower().startswith(_CLOUD_EVENTS_BYTES)

    def get(self, name: str) -> str | None:
        """The header's value, None when it is absent."""
        value = self._fields.get(name.encode())
        return None if value is None else value.decode("latin-1")

    def pairs(self) -> list[tuple[str, str]]:
        """All headers, in the order and the letter case that the server tells."""
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._pairs]


class TextHead:
    """The headers that a server gives as text."""

    __slots__ = ("_fields", "_pairs", "account", "certificate", "is_plain")

    def __init__(
        self,
        pairs: list[tuple[str, str]],
        fields: Mapping[str, str],
        certificate: ClientCertificate | None = None,
    ) -> None:
        self._pairs = pairs
        self._fields = fields
        self.certificate = certificate
        self.account: Account | None = None
        self.is_plain = SPECIAL.isdisjoint(fields) and not fields.get(
            "content-type", ""
        ).lower().startswith(CLOUD_EVENTS)

    def get(self, name: str) -> str | None:
        """The header's value, None when it is absent."""
        return self._fields.get(name)

    def pairs(self) -> list[tuple[str, str]]:
        """All headers, in the order and the letter case that the server tells."""
        return self._pairs


_SPECIAL_BYTES = frozenset(name.encode() for name in SPECIAL)
_CLOUD_EVENTS_BYTES = CLOUD_EVENTS.encode()
