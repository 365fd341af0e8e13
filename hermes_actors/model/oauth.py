"""An OAuth provider as Hermes shows it; field names and JSON shape are fixed by the wire format."""

from msgspec import Struct, field

from hermes_actors.model.redaction import HIDDEN, redacted, without_user_info


class OAuthProvider(Struct, frozen=True, rename="camel", kw_only=True):
    """The source of tokens, and the client that this broker is. `client_secret` is a secret.

    Delays and timeouts are in milliseconds; their names are fixed by the wire format.
    `socket_timeout` 0 means none. `labels` are not in Hermes.
    """

    name: str
    token_endpoint: str
    client_id: str
    client_secret: str
    token_request_initial_delay: int
    token_request_max_delay: int
    request_timeout: int
    socket_timeout: int = 0
    labels: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        endpoint = repr(without_user_info(self.token_endpoint).partition("?")[0])
        return redacted(self, client_secret=HIDDEN, token_endpoint=endpoint)
