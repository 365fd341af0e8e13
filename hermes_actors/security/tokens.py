"""Verifies JSON Web Tokens (RFC 7519): signature, issuer, audience and times. Pure.

PyJWT checks everything except times, which are checked here because time is an argument.
"""

from collections.abc import Mapping
from typing import Any

import jwt
from msgspec import Struct

from hermes_actors.security.account import Account, BadCredentials
from hermes_actors.security.keyset import VerificationKey

TOKEN_BYTES_MAX = 16_384
# The largest value that issuers use for "never".
_TIME_S_MAX = 2**64


class TokenRules(Struct, frozen=True):
    """The rules for tokens: the accepted values, and the claims that make the account.

    A claim is given by its name, or by a path with dots (`realm_access.roles`). Every account gets
    `roles` in addition to those of its token.
    """

    algorithms: frozenset[str]
    issuer: str
    audiences: frozenset[str]
    leeway_s: float
    name_claim: str = "sub"
    roles_claim: str = "roles"
    groups_claim: str = "groups"
    roles: frozenset[str] = frozenset()


class TokenHeader(Struct, frozen=True):
    """The algorithm and the key id in a token's header, which is not verified yet."""

    algorithm: str
    key_id: str | None


class Claims(Struct, frozen=True):
    """The account of a verified token, and the times between which it is valid, in epoch seconds
    and with the leeway included.
    """

    account: Account
    from_s: float
    until_s: float


def header_of(token: str, rules: TokenRules) -> TokenHeader:
    """Parse the token's header. Raises BadCredentials, also if its algorithm is not accepted."""
    if len(token) > TOKEN_BYTES_MAX:
        raise BadCredentials(f"The token is longer than {TOKEN_BYTES_MAX} bytes")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise BadCredentials("The token is not a signed JSON Web Token") from None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in rules.algorithms:
        raise BadCredentials("The token's algorithm is not accepted here")
    return TokenHeader(algorithm, key_id)


def verify(
    token: str, header: TokenHeader, keys: list[VerificationKey], rules: TokenRules
) -> Claims:
    """The claims of a token. Raises BadCredentials if none of the keys has signed it, or if it does
    not conform to the rules.
    """
    for key in keys:
        try:
            payload = jwt.decode(
                token,
                key.material,
                [header.algorithm],
                audience=sorted(rules.audiences),
                issuer=rules.issuer,
                options={
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,
                    "enforce_minimum_key_length": True,
                },
            )
        except jwt.InvalidSignatureError:
            continue
        except jwt.PyJWTError as error:
            raise BadCredentials(f"The token is not valid: {error}") from None
        except (ValueError, TypeError, RecursionError):
            raise BadCredentials("The token's payload cannot be read") from None
        return claims_of(payload, rules)
    raise BadCredentials("The token is not signed by a key that is trusted here")


def claims_of(payload: Mapping[str, Any], rules: TokenRules) -> Claims:
    """The account and times in a verified token's payload. Raises BadCredentials."""
    until_s = _time(payload, "exp")
    if until_s is None:
        raise BadCredentials("The token has no expiry (exp); only tokens that expire are accepted")
    from_s = max(_time(payload, "nbf") or 0.0, _time(payload, "iat") or 0.0)
    name = _claim(payload, rules.name_claim)
    if not isinstance(name, str) or not name:
        raise BadCredentials(f"The token has no name in its claim {rules.name_claim}")
    account = Account(
        name,
        _texts(_claim(payload, rules.roles_claim)) | rules.roles,
        _texts(_claim(payload, rules.groups_claim)),
    )
    return Claims(account, from_s - rules.leeway_s, until_s + rules.leeway_s)


def require_in_force(claims: Claims, now_s: float) -> None:
    """Raise BadCredentials if the token has expired or is not valid yet."""
    if now_s >= claims.until_s:
        raise BadCredentials("The token has expired")
    if now_s < claims.from_s:
        raise BadCredentials("The token is not in force yet (nbf or iat)")


def _time(payload: Mapping[str, Any], name: str) -> float | None:
    value = payload.get(name)
    if value is None:
        return None
    # Compared before the conversion, because an integer in JSON may have any length.
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not -_TIME_S_MAX <= value <= _TIME_S_MAX
    ):
        raise BadCredentials(f"The token's {name} is not a number of seconds")
    return float(min(max(value, -1e12), 1e12))


def _claim(payload: Mapping[str, Any], name: str) -> Any:
    """The claim with exactly this name, else the one at this path."""
    if name in payload:
        return payload[name]
    value: Any = payload
    for part in name.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def _texts(value: Any) -> frozenset[str]:
    """The texts of a list, or the words of one text, as in `scope`. Empty for anything else."""
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list):
        return frozenset(each for each in value if isinstance(each, str))
    return frozenset()
