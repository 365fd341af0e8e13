"""What a publish says before its body: the request's headers, whatever protocol brought them."""

from collections.abc import Mapping

from hermes_actors.security.account import Account, ClientCertificate

SPECIAL = frozenset(
    {"idempotency-key", "ce-specversion", "traceparent", "hermes-replay-id", "hermes-replay-for"}
)
"""The headers that ask for more than to be stored. A request without them takes the short way."""

_SPECIAL_BYTES = frozenset(name.encode() for name in SPECIAL)
_CLOUD_EVENTS = b"application/cloudevents"


class Head:
    """One request's headers.

    `pairs` are all of them as they came, `fields` has their names in lower case; of a repeated
    header the last value counts. `is_plain`: none of SPECIAL is there, and the body is no
    CloudEvent. `certificate` is the client's, verified, None without one. `account` is the
    author's, once he has been identified.
    """

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
        ).lower().startswith(_CLOUD_EVENTS)

    def get(self, name: str) -> str | None:
        """The header's value, None when it is absent; `name` is in lower case."""
        value = self._fields.get(name.encode())
        return None if value is None else value.decode("latin-1")

    def pairs(self) -> list[tuple[str, str]]:
        """All headers, in the order and the letter case that the connection brought."""
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._pairs]
