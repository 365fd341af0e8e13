"""A provider of OAuth tokens as Hermes shows it: field names and JSON shape are the wire's."""

from msgspec import Struct

from hermes_actors.model.redaction import HIDDEN, redacted, without_user_info


class OAuthProvider(Struct, frozen=True, rename="camel", kw_only=True):
    """Where tokens come from, and as whom this broker asks for them. `client_secret` is a secret.

    The delays and time-outs are in milliseconds: the names are the wire's. `socket_timeout` 0 is
    none.
    """

    name: str
    token_endpoint: str
    client_id: str
    client_secret: str
    token_request_initial_delay: int
    token_request_max_delay: int
    request_timeout: int
    socket_timeout: int = 0

    def __repr__(self) -> str:
        endpoint = repr(without_user_info(self.token_endpoint).partition("?")[0])
        return redacted(self, client_secret=HIDDEN, token_endpoint=endpoint)
