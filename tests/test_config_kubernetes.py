"""In Kubernetes each Service puts variables into every pod; those named like ours do no harm."""

import logging
import typing
from enum import Enum
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.config import Config, ConfigError, load

SERVICES = (
    "hermes",
    "hermes-frontend",
    "hermes-frontend-tls",
    "hermes-management",
    "hermes-management-tls",
    "hermes-consumers",
    "hermes-status",
    "hermes-node",
    "hermes-kafka",
    "hermes-kafka-clusters-dc1",
    "hermes-user",
    "hermes-x1",
)


def injected(service: str, address: str, port: int, protocol: str, name: str) -> dict[str, str]:
    """As kubelet makes them (pkg/kubelet/envvars)."""
    prefix = service.upper().replace("-", "_")
    host = f"[{address}]" if ":" in address else address
    url = f"{protocol}://{host}:{port}"
    each = f"{prefix}_PORT_{port}_{protocol.upper()}"
    return {
        f"{prefix}_SERVICE_HOST": address,
        f"{prefix}_SERVICE_PORT": str(port),
        f"{prefix}_SERVICE_PORT_{name.upper().replace('-', '_')}": str(port),
        f"{prefix}_PORT": url,
        each: url,
        f"{each}_PROTO": protocol,
        f"{each}_PORT": str(port),
        f"{each}_ADDR": address,
    }


@given(
    service=st.sampled_from(SERVICES)
    | st.from_regex(r"hermes(-[a-z0-9]{1,9}){0,4}", fullmatch=True),
    address=st.ip_addresses().map(str),
    port=st.integers(1, 65_535),
    protocol=st.sampled_from(["tcp", "udp", "sctp"]),
    name=st.sampled_from(["http", "https-tls", "p", "8080"]),
)
def test_whatever_kubernetes_sets_for_a_service_of_ours_changes_nothing(
    service: str, address: str, port: int, protocol: str, name: str
) -> None:
    assert load(None, injected(service, address, port, protocol, name)) == Config()


def test_a_setting_of_the_same_name_still_counts_beside_them() -> None:
    variables = injected("hermes-frontend", "10.0.0.7", 8080, "tcp", "http")
    variables |= {"HERMES_MANAGEMENT_PORT": "9090", "HERMES_FRONTEND_HOST": "10.0.0.7"}
    config = load(None, variables)
    assert (config.management.port, config.frontend.host) == (9090, "10.0.0.7")


def test_what_is_passed_over_is_said_on_the_level_debug(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "hermes_actors.config"):
        load(None, {"HERMES_FRONTEND_PORT": "tcp://10.0.0.7:8080"})
    assert "HERMES_FRONTEND_PORT: passed over" in caplog.text


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("HERMES_FRONTEND_PORT", "http://10.0.0.7:8080"),
        ("HERMES_FRONTEND_PORT", "tcp://frontend:8080"),
        ("HERMES_FRONTEND_PORT", "tcp://10.0.0.7:80800"),
        ("HERMES_FRONTEND_SERVICE_HOST", "frontend"),
        ("HERMES_FRONTEND_SERVICE_PORT", "http"),
        ("HERMES_FRONTEND_PORT_8080_TCP_ADDR", "8080"),
        ("HERMES_FRONTEND_PORT_8080_TCP_PROTO", "http"),
        ("HERMES_FRONTEND_PROT", "tcp://10.0.0.7:8080"),
    ],
)
def test_what_kubernetes_does_not_set_so_is_refused_as_ever(variable: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(None, {variable: text})
    assert raised.value.message.startswith(variable)


def fields(kind: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Every field below a section: its path and its type."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for each in msgspec.structs.fields(kind):
        inner, place = each.type, (*path, each.name)
        if typing.get_origin(inner) is dict:
            inner, place = typing.get_args(inner)[1], (*place, "dc1")
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            found += fields(inner, place)
        else:
            found.append((place, inner))
    return found


FORMS = ("tcp://10.0.0.7:8080", "10.0.0.7", "8080", "tcp", "udp://[fd00::7]:53", "fd00::7")


def legal(kind: Any) -> list[str]:
    """Values that a field of this type may hold, those that Kubernetes writes among them."""
    if typing.get_origin(kind) is typing.Literal:
        return list(typing.get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [each.value for each in kind]
    if kind in (int, float):
        return ["8080"]
    if kind is bool:
        return ["true", "false"]
    return list(FORMS)


@pytest.mark.parametrize(("path", "kind"), fields(Config), ids=lambda each: str(each))
def test_no_field_loses_a_legal_value_to_kubernetes(
    monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...], kind: Any
) -> None:
    is_list = typing.get_origin(kind) is list
    inner = typing.get_args(kind)[0] if is_list else kind
    variable = "HERMES_" + "_".join(path).upper()
    for text in legal(inner):
        # What a relation to another field then says is of no matter here.
        monkeypatch.setattr("hermes_actors.config.loading.check", bool)
        config = msgspec.to_builtins(load(None, {variable: text}))
        for name in path:
            config = config[name]
        assert config in ([text], text, inner(text) if inner in (int, float) else text == "true")


def test_a_field_may_end_like_a_variable_of_kubernetes_and_hold_any_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Section(msgspec.Struct, frozen=True):
        service_host: str = ""
        port: int = 1

    class Tree(msgspec.Struct, frozen=True):
        x: Section = msgspec.field(default_factory=Section)

    monkeypatch.setattr("hermes_actors.config.loading.Config", Tree)
    monkeypatch.setattr("hermes_actors.config.loading._decode", partial(msgspec.convert, type=Tree))
    monkeypatch.setattr("hermes_actors.config.loading.check", bool)
    loaded = load(None, {"HERMES_X_SERVICE_HOST": "10.0.0.7", "HERMES_X_PORT": "tcp://10.0.0.7:1"})
    assert loaded == Tree(Section("10.0.0.7", 1))
