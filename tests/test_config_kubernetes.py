"""In Kubernetes each Service puts variables into every pod; those named like ours do no harm."""

import logging

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
    assert "HERMES_FRONTEND_PORT: ignored" in caplog.text


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("HERMES_FRONTEND_PORT", "http://10.0.0.7:8080"),
        ("HERMES_FRONTEND_PROT", "tcp://10.0.0.7:8080"),
    ],
)
def test_what_kubernetes_does_not_set_so_is_refused_as_ever(variable: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(None, {variable: text})
    assert raised.value.message.startswith(variable)
