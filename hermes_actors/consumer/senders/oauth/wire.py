"""A token request and the meaning of its answer (RFC 6749, sections 4.3, 4.4 and 5). Pure."""

import re
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.redaction import HIDDEN, redacted
from hermes_actors.model.subscription import OAuthPolicy

LIFETIME_S_MAX = 10**9
_GRANTS = {"clientCredentials": "client_credentials", "password": "password"}
_USABLE = re.compile(r"[\x21-\x7e]{1,16384}")
_ERROR_CODE = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{1,100}")


class OAuthCredentials(Struct, frozen=True):
    """All that a token depends on: whoever has equal ones shares their token."""

    provider: OAuthProvider
    policy: OAuthPolicy

    @property
    def form(self) -> bytes:
        """Return the body of the token request."""
        provider, policy = self.provider, self.policy
        fields = {"grant_type": _GRANTS[policy.grant_type], "scope": policy.scope}
        fields |= {"client_id": provider.client_id, "client_secret": provider.client_secret}
        if policy.grant_type == "password":
            fields |= {"username": policy.username or "", "password": policy.password or ""}
        return urlencode({k: v for k, v in fields.items() if v is not None}).encode()


class Granted(Struct, frozen=True):
    """A token, and for how long it is good, None when nobody says."""

    access_token: str
    lifetime_s: float | None

    def __repr__(self) -> str:
        return redacted(self, access_token=HIDDEN)


class Denied(Struct, frozen=True):
    """No token; `problem` is for people, and repeats nothing that may be a secret."""

    problem: str


Answer = Granted | Denied


def read_answer(status: int, body: bytes) -> Answer:
    """Read the provider's answer. Only a 200 with an `access_token` is a token."""
    try:
        said: Any = msgspec.json.decode(body)
    # Whatever a provider answers, it must not take a consumer down.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        said = None
    if not isinstance(said, dict):
        said = {}
    if status != 200:
        code = said.get("error")
        is_code = isinstance(code, str) and _ERROR_CODE.fullmatch(code)
        return Denied(f"HTTP {status}: {code}" if is_code else f"HTTP {status}")
    token = said.get("access_token")
    if not isinstance(token, str) or not token:
        return Denied("HTTP 200 without an access_token in JSON")
    if not _USABLE.fullmatch(token):
        return Denied("the access_token cannot stand in a header")
    lifetime_s = _lifetime_s(said.get("expires_in"))
    if lifetime_s is not None and lifetime_s <= 0:
        return Denied("the access_token has run out already (expires_in)")
    return Granted(token, lifetime_s)


def _lifetime_s(expires_in: Any) -> float | None:
    """Seconds; some providers write them as text. None for what says nothing."""
    if isinstance(expires_in, bool) or not isinstance(expires_in, int | float | str):
        return None
    if isinstance(expires_in, str):
        if not re.fullmatch(r"-?[0-9]{1,12}", expires_in):
            return None
        expires_in = int(expires_in)
    # Bounded before it becomes a float, which not every whole number can.
    return float(max(-1, min(expires_in, LIFETIME_S_MAX)))
