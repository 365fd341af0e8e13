"""A token request (RFC 6749, sections 4.3, 4.4 and 5). authlib builds it and parses the answer; the
guarded sender sends it.
"""

import re
from urllib.parse import urlsplit

import httpx
import trio
from authlib.oauth2 import OAuth2Client, OAuth2Error  # type: ignore[import-untyped]
from authlib.oauth2.rfc6749.parameters import (  # type: ignore[import-untyped]
    prepare_token_request,
)
from msgspec import Struct

from hermes_actors import __version__
from hermes_actors.consumer.senders.sender import (
    Origin,
    Push,
    PushRoute,
    Sender,
    SendOutcome,
    Witness,
)
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.redaction import HIDDEN, redacted
from hermes_actors.model.subscription import OAuthPolicy

ANSWER_BYTES_MAX = 65_536
LIFETIME_S_MAX = 10**9

_PORTS = {"http": 80, "https": 443}
_GRANTS = {"clientCredentials": "client_credentials", "password": "password"}
_USABLE = re.compile(r"[\x21-\x7e]{1,16384}")
_ERROR_CODE = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{1,100}")
_LINES = (
    f"User-Agent: hermes_actors/{__version__}\r\n"
    "Accept: application/json\r\n"
    "Content-Type: application/x-www-form-urlencoded\r\n"
    "Connection: close\r\n"
).encode("ascii")


class OAuthCredentials(Struct, frozen=True):
    """Everything that a token depends on. Subscriptions with equal credentials share
    their token.
    """

    provider: OAuthProvider
    policy: OAuthPolicy

    @property
    def form(self) -> bytes:
        """The body of the token request."""
        provider, policy = self.provider, self.policy
        body: str = prepare_token_request(
            _GRANTS[policy.grant_type],
            scope=policy.scope,
            client_id=provider.client_id,
            client_secret=provider.client_secret,
            username=policy.username,
            password=policy.password,
        )
        return body.encode("ascii")


class Grant(Struct, frozen=True):
    """A token and its lifetime; infinite if the provider does not say."""

    access_token: str
    lifetime_s: float = float("inf")

    def __repr__(self) -> str:
        return redacted(self, access_token=HIDDEN)


class TokenDenied(Exception):
    """No token. The message is for people and contains no secret."""


async def request_token(sender: Sender, credentials: OAuthCredentials) -> Grant:
    """Ask the provider for a token, within its time-outs. Raises TokenDenied.

    Redirects are not followed.
    """
    provider = credentials.provider
    parts = urlsplit(provider.token_endpoint)
    try:
        host = (parts.hostname or "").encode("idna").decode("ascii")
        origin = Origin(parts.scheme, host, parts.port or _PORTS[parts.scheme])
    except (ValueError, KeyError):
        raise TokenDenied("its tokenEndpoint cannot be read") from None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    target = target.encode("ascii", "xmlcharrefreplace").decode("ascii")
    witness = Witness(ANSWER_BYTES_MAX)
    push = Push(
        PushRoute(f"OAuth provider {provider.name}", origin, target, b""),
        _LINES,
        credentials.form,
        provider.request_timeout,
        provider.socket_timeout,
        witness=witness,
    )
    outcome = await pushed(sender, push)
    if outcome.failure is not None:
        raise TokenDenied(f"{origin}: {outcome.detail}")
    if witness.is_cut:
        raise TokenDenied(f"its answer is longer than {ANSWER_BYTES_MAX} bytes")
    return read_answer(outcome.status, witness.body)


async def pushed(sender: Sender, push: Push) -> SendOutcome:
    """Send a push and wait for its outcome, on trio."""
    outcomes: list[SendOutcome] = []
    ended = trio.Event()

    def done(outcome: SendOutcome) -> None:
        outcomes.append(outcome)
        ended.set()

    sender.send(push, done)
    await ended.wait()
    return outcomes[0]


def read_answer(status: int, body: bytes) -> Grant:
    """Parse the provider's answer. Raises TokenDenied."""
    # A dummy request, because httpx' errors would quote the real one.
    response = httpx.Response(status, content=body, request=httpx.Request("POST", "http://-"))
    try:
        said = OAuth2Client(None).parse_response_token(response)
    except OAuth2Error as error:
        code = error.error
        is_code = isinstance(code, str) and _ERROR_CODE.fullmatch(code)
        shown = f": {code}" if is_code else ""
        raise TokenDenied(f"HTTP {status}{shown}") from None
    # A provider's answer must never end a consumer.
    except (httpx.HTTPError, ValueError, TypeError, ArithmeticError, RecursionError):
        raise TokenDenied(f"HTTP {status} without a token in JSON") from None
    token = said.get("access_token")
    if not 200 <= status < 300 or not isinstance(token, str) or not token:
        raise TokenDenied(f"HTTP {status} without an access_token")
    if not _USABLE.fullmatch(token):
        raise TokenDenied("the access_token cannot stand in a header")
    return Grant(token, _lifetime_s(said.get("expires_in")))


def _lifetime_s(expires_in: object) -> float:
    """Seconds, possibly as text. 0 or less means that the token does not expire."""
    try:
        lifetime_s = min(int(expires_in), LIFETIME_S_MAX)  # type: ignore[call-overload]
    except (ValueError, TypeError, ArithmeticError):
        return float("inf")
    return float(lifetime_s) if lifetime_s > 0 else float("inf")
