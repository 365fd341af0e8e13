"""No value of ours that holds a secret shows it in its text, whatever holds that value."""

import importlib
import pkgutil
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import Struct

import hermes_actors
from hermes_actors.config.security import JwtConfig
from hermes_actors.model.subscription import OAuthPolicy, Subscription
from hermes_actors.security.account import Credentials

CANARY = "open-sesame"
NAMES = re.compile(
    r"(.*_)?(passwords?|secrets?|tokens?|authorization|credentials|api_?keys?)"
    r"|endpoint|template|.*_url|resolver_metadata|endpoint_address_resolver_metadata"
)
"""How fields are called that are a secret, or may hold one; files of secrets are none."""
FURTHER = {
    ("Header", "value"),
    ("RequestHead", "before"),
    ("RequestHead", "after"),
    ("Push", "lines"),
    ("Change", "body"),
    ("Put", "body"),
    ("Copy", "body"),
    ("Register", "body"),
}
"""Headers, in which a token may stand, and subscriptions as the metadata log has them."""


def imported() -> None:
    for module in pkgutil.walk_packages(hermes_actors.__path__, "hermes_actors."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def below(cls: type[Struct]) -> Iterator[type[Struct]]:
    for each in cls.__subclasses__():
        yield each
        yield from below(each)


imported()
STRUCTS = sorted(
    {
        each
        for each in below(Struct)
        if each.__module__.startswith("hermes_actors.")
        # The OpenAPI document describes these; nobody makes one.
        and each.__module__ != "hermes_actors.management.http.openapi"
    },
    key=lambda each: (each.__module__, each.__name__),
)


def is_secret(cls: type[Struct], name: str, kind: Any) -> bool:
    holds_text = any(each in str(kind) for each in ("str", "bytes", "Any"))
    return holds_text and (
        NAMES.fullmatch(name) is not None
        or any((each.__name__, name) in FURTHER for each in cls.__mro__)
    )


def secret(kind: Any) -> Any:
    text = f"https://user:{CANARY}/@{CANARY}@host/{{path}}"
    if "dict" in str(kind):
        return {"key": text}
    if "list" in str(kind) or "tuple" in str(kind):
        return [text]
    return text.encode() if "bytes" in str(kind) else text


def structs_in(kind: Any) -> list[type[Struct]]:
    if isinstance(kind, type) and issubclass(kind, Struct):
        return [kind]
    return [each for argument in typing.get_args(kind) for each in structs_in(argument)]


def filled(cls: type[Struct], kind: Any, depth: int) -> Any:
    made = made_of(cls, depth + 1)
    origin = typing.get_origin(kind)
    if origin is dict:
        return {"key": made}
    return [made] if origin in (list, tuple) else made


def made_of(cls: type[Struct], depth: int = 0) -> Struct:
    """One with secrets wherever they may stand, also in the structs that it holds."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(cls):
        held = structs_in(field.type)
        if is_secret(cls, field.name, field.type):
            values[field.name] = secret(field.type)
        elif held and depth < 4:
            values[field.name] = filled(held[0], field.type, depth)
        elif field.required:
            values[field.name] = plain(field.type)
    return cls(**values)


def plain(kind: Any) -> Any:
    if isinstance(kind, type) and kind.__module__.startswith("hermes_actors."):
        return Anything()
    samples = (("bytes", b""), ("tuple", ()), ("list", []), ("set", frozenset()), ("str", "x"))
    for name, value in samples:
        if name in str(kind):
            return value
    return 1


class Anything:
    """In the place of an object of ours: each attribute of it is 1."""

    def __getattr__(self, _name: str) -> int:
        return 1


def test_no_struct_shows_a_secret() -> None:
    for cls in STRUCTS:
        value = made_of(cls)
        assert CANARY not in f"{value} {[value]!r} {ValueError(value)!r}", cls


def test_the_walk_finds_what_holds_secrets() -> None:
    found = {
        (cls.__name__, field.name)
        for cls in STRUCTS
        for field in msgspec.structs.fields(cls)
        if is_secret(cls, field.name, field.type)
    }
    assert found >= FURTHER | {
        ("Subscription", "endpoint"),
        ("OAuthPolicy", "password"),
        ("SigningPolicy", "secrets"),
        ("JwtConfig", "jwks_url"),
        ("Credentials", "authorization"),
        ("Endpoint", "authorization"),
        ("_User", "password"),
    }
    assert CANARY in str(msgspec.to_builtins(made_of(Subscription)))


def test_a_query_of_the_key_set_may_hold_a_key() -> None:
    config = JwtConfig(jwks_url=f"https://id.example.com/keys?key={CANARY}", issuer="me")
    assert "jwks_url='https://id.example.com/keys'" in repr(config)
    assert "issuer='me'" in repr(config)


@pytest.mark.parametrize("line", [CANARY, f"Bearer {CANARY}", f"  {CANARY}"])
def test_credentials_show_their_scheme_at_most(line: str) -> None:
    assert CANARY not in repr(Credentials(line)).lower()


def test_what_is_no_secret_is_shown() -> None:
    subscription = made_of(Subscription)
    policy = OAuthPolicy(grant_type="password", provider_name="sso", password=CANARY)
    shown = repr(msgspec.structs.replace(subscription, name="billing", o_auth_policy=policy))
    assert "name='billing'" in shown
    assert "endpoint='https://***@host/{path}'" in shown
    assert "provider_name='sso'" in shown
    assert "password=None" in repr(OAuthPolicy(grant_type="password", provider_name="sso"))
