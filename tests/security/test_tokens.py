"""Tokens: signatures by known keys alone, and every claim that must hold."""

import base64
import hmac
import json
import math

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.security.account import BadCredentials
from hermes_actors.security.keyset import parse_key_set
from hermes_actors.security.tokens import (
    Claims,
    TokenRules,
    claims_of,
    header_of,
    require_in_force,
    verify,
)
from hermes_actors.security.users import WrongFile

EPOCH_S = 1_700_000_000
RULES = TokenRules(
    algorithms=frozenset({"RS256", "PS256", "ES256", "EdDSA"}),
    issuer="https://id.example.com",
    audiences=frozenset({"hermes"}),
    leeway_s=30,
)


def base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def account_of(signer, token: str, rules: TokenRules = RULES, now_s: float = EPOCH_S):
    header = header_of(token, rules)
    keys = parse_key_set(signer.key_set()).candidates(header.key_id, header.algorithm)
    claims = verify(token, header, keys, rules)
    require_in_force(claims, now_s)
    return claims.account


@pytest.mark.parametrize("key_id", ["rsa", "ec", "ed"])
def test_a_token_of_each_kind_of_key_is_taken(signer, key_id):
    account = account_of(signer, signer.token(key_id))
    assert (account.name, account.roles, account.groups) == ("shop-app", {"PUBLISHER"}, {"sales"})


def test_a_key_without_a_named_algorithm_verifies_with_all_of_its_kind(signer):
    assert account_of(signer, signer.token("rsa", alg="PS256")).name == "shop-app"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": "https://evil.example.com"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"aud": "other"}, "Audience"),
        ({"aud": ["other", "more"]}, "Audience"),
        ({"aud": None}, "aud"),
        ({"exp": None}, "exp"),
        ({"exp": "tomorrow"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": EPOCH_S - 31}, "expired"),
        ({"nbf": EPOCH_S + 31}, "in force"),
        ({"iat": EPOCH_S + 31}, "in force"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
    ],
)
def test_a_claim_that_does_not_hold_is_named(signer, claims, reason):
    with pytest.raises(BadCredentials, match=reason):
        account_of(signer, signer.token(**claims))


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["other", "hermes"]},
        {"exp": EPOCH_S - 29},
        {"exp": EPOCH_S + 0.5},
        {"nbf": EPOCH_S + 29},
        {"iat": EPOCH_S + 29},
    ],
)
def test_what_holds_within_the_leeway_is_taken(signer, claims):
    assert account_of(signer, signer.token(**claims)).name == "shop-app"


def test_claims_are_found_by_name_or_by_path(signer):
    rules = TokenRules(
        algorithms=RULES.algorithms,
        issuer=RULES.issuer,
        audiences=RULES.audiences,
        leeway_s=0,
        name_claim="client.id",
        roles_claim="realm_access.roles",
        groups_claim="https://example.com/groups",
        roles=frozenset({"everybody"}),
    )
    token = signer.token(
        client={"id": "shop"},
        realm_access={"roles": ["PUBLISHER", 5]},
        **{"https://example.com/groups": "sales ops"},
    )
    account = account_of(signer, token, rules)
    assert account.name == "shop"
    assert account.roles == {"PUBLISHER", "everybody"}
    assert account.groups == {"sales", "ops"}


def test_a_signature_of_another_key_is_refused(signer):
    other = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    forged = jwt.encode(signer.claims(), other, algorithm="RS256", headers={"kid": "rsa"})
    with pytest.raises(BadCredentials, match="not signed"):
        account_of(signer, forged)


def test_a_changed_payload_is_refused(signer):
    head, _, signature = signer.token().split(".")
    payload = base64url(json.dumps(signer.claims(sub="admin")).encode())
    with pytest.raises(BadCredentials, match="not signed"):
        account_of(signer, f"{head}.{payload}.{signature}")


def test_an_unsigned_token_and_a_shared_secret_are_refused(signer):
    with pytest.raises(BadCredentials, match="algorithm"):
        account_of(signer, jwt.encode(signer.claims(), None, algorithm="none"))
    with pytest.raises(BadCredentials, match="algorithm"):
        account_of(signer, jwt.encode(signer.claims(), "x" * 64, algorithm="HS256"))


def test_a_public_key_is_never_a_shared_secret(signer):
    """The old confusion: HS256 signed with the bytes of the public key."""
    rules = TokenRules(
        algorithms=frozenset({"HS256", "RS256"}),
        issuer=RULES.issuer,
        audiences=RULES.audiences,
        leeway_s=0,
    )
    parts = ({"alg": "HS256", "kid": "rsa"}, signer.claims())
    signed = ".".join(base64url(json.dumps(each).encode()) for each in parts)
    public = json.dumps(signer.jwk("rsa")).encode()
    forged = f"{signed}.{base64url(hmac.digest(public, signed.encode(), 'sha256'))}"
    header = header_of(forged, rules)
    assert parse_key_set(signer.key_set()).candidates(header.key_id, header.algorithm) == []


def test_a_short_rsa_key_is_refused(signer):
    weak = rsa.generate_private_key(public_exponent=65_537, key_size=1_024)
    signer.add("weak", weak, "RS256")
    try:
        with pytest.warns(jwt.InsecureKeyLengthWarning):
            token = signer.token("weak")
        with pytest.raises(BadCredentials):
            account_of(signer, token)
    finally:
        del signer.keys["weak"]


@given(st.text(max_size=200))
def test_no_text_at_all_does_more_than_be_refused(text):
    with pytest.raises(BadCredentials):
        header_of(text, RULES)


HUGE = "1" + "0" * 400


@pytest.mark.parametrize("value", [HUGE, "-" + HUGE, "1e308", "18446744073709551617"])
@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
def test_a_time_that_no_clock_shows_is_refused_by_its_name(signer, name, value):
    with pytest.raises(BadCredentials, match=f"The token's {name} is not a number of seconds"):
        account_of(signer, signer.token_of(signer.payload_with(name, value)))


@pytest.mark.parametrize(
    "value", ["1e999", "NaN", "Infinity", "9" * 5_000, "[" * 3_000 + "]" * 3_000, '"\\ud800"', ""]
)
def test_a_payload_that_is_no_json_is_refused(signer, value):
    with pytest.raises(BadCredentials, match=r"cannot be read|is not a number|is not valid"):
        account_of(signer, signer.token_of(signer.payload_with("exp", value)))


@pytest.mark.parametrize("value", ["[]", "{}", '"1700000600"', "[[1]]", '{"exp": 1}', "false"])
def test_a_time_of_another_shape_is_refused_by_its_name(signer, value):
    with pytest.raises(BadCredentials, match="exp is not a number of seconds"):
        account_of(signer, signer.token_of(signer.payload_with("exp", value)))


def test_a_token_that_never_expires_by_the_largest_integer_is_taken(signer):
    token = signer.token_of(signer.payload_with("exp", str(2**63 - 1)))
    assert account_of(signer, token).name == "shop-app"


@given(
    st.dictionaries(
        st.sampled_from(["iss", "aud", "exp", "nbf", "iat", "sub", "roles", "groups"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.integers(300, 400).map(lambda power: 10**power)
            | st.floats()
            | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    )
)
def test_claims_of_any_shape_make_an_account_or_are_refused(claims):
    payload = {"sub": "a", "exp": EPOCH_S, **claims}
    try:
        found = claims_of(payload, RULES)
    except BadCredentials:
        return
    assert found.account.name
    assert math.isfinite(found.from_s)
    assert math.isfinite(found.until_s)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_a_token_is_in_force_between_its_times_only(from_s, until_s, now_s):
    claims = Claims(None, from_s, until_s)  # type: ignore[arg-type]
    if from_s <= now_s < until_s:
        require_in_force(claims, now_s)
    else:
        with pytest.raises(BadCredentials):
            require_in_force(claims, now_s)


def test_a_long_token_is_refused_unread():
    with pytest.raises(BadCredentials, match="16384"):
        header_of("a" * 16_385, RULES)


def key_set_of(*jwks: object) -> bytes:
    return json.dumps({"keys": list(jwks)}).encode()


def test_a_key_set_leaves_out_what_cannot_verify(signer):
    key_set = parse_key_set(
        key_set_of(
            signer.jwk("ec"),
            signer.jwk("rsa", use="enc"),
            {"kty": "EC", "crv": "P-256", "kid": "broken"},
            {"kty": "RSA"},
        )
    )
    assert len(key_set) == 1
    assert [each.key_id for each in key_set.candidates("ec", "ES256")] == ["ec"]
    assert key_set.candidates("ec", "RS256") == []
    assert key_set.candidates("other", "ES256") == []


def test_a_key_verifies_with_the_algorithms_of_its_kind(signer):
    key_set = parse_key_set(key_set_of(signer.jwk("rsa", alg="PS256")))
    algorithms = ("PS256", "PS384", "RS256", "ES256", "HS256")
    found = [each for each in algorithms if key_set.candidates("rsa", each)]
    assert found == ["PS256", "PS384", "RS256"]


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"keys":5}', b'{"keys":[]}', b"\xff", b'{"keys":[{"kty":"EC"}]}'],
)
def test_what_is_no_key_set_is_refused(content):
    with pytest.raises(WrongFile):
        parse_key_set(content)


@given(
    st.dictionaries(
        st.sampled_from(
            ["kty", "crv", "n", "e", "x", "y", "k", "alg", "use", "kid", "key_ops", "d"]
        ),
        st.sampled_from(["RSA", "EC", "OKP", "oct", "P-256", "Ed25519", "sig", "AQAB", "RS256"])
        | st.text(max_size=8)
        | st.integers()
        | st.none()
        | st.lists(st.text(max_size=3), max_size=2),
    )
)
def test_a_key_of_any_shape_is_taken_or_left_out(jwk):
    try:
        assert len(parse_key_set(key_set_of(jwk))) == 1
    except WrongFile:
        return


def test_too_many_keys_are_refused(signer):
    with pytest.raises(WrongFile, match="at most 64"):
        parse_key_set(key_set_of(*[signer.jwk("ec")] * 65))
