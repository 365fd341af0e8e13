"""Checks the running node, the schema registry, and the telemetry collector."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import trio
from cryptography import x509
from msgspec import Struct

from hermes_actors.cli.doctor.findings import (
    FAIL,
    OK,
    WARN,
    Finding,
    certificate_finding,
    finding,
)
from hermes_actors.config import Config
from hermes_actors.config.ports import Port, ports
from hermes_actors.model.redaction import without_user_info
from hermes_actors.schema.client import NoAnswer, RegistryClient

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 -- where it listens
_NO_SUCH_TOPIC = "hermes.doctor"


class _DependencySeen(Struct, rename="camel"):
    name: str
    is_working: bool
    is_needed: bool
    reason: str


class NodeSeen(Struct, rename="camel"):
    """The body of /status/details."""

    dc: str
    node: str
    phase: str
    dependencies: list[_DependencySeen]


async def look_at_node(
    config: Config, timeout_s: float, now_ms: int, *, is_all: bool
) -> list[Finding]:
    """Check the node of this configuration, if it runs here; `is_all`: nothing else is checked."""
    listening = list(ports(config))
    main = listening[0]
    about = f"{main.setting} {main.host}:{main.number}"
    host, number = _address(main)
    scheme = "https" if main.certificate_file else "http"
    url = httpx.URL(scheme=scheme, host=host, port=number, path="/status/details")
    try:
        with trio.fail_after(timeout_s):
            # The certificate is checked below.
            async with httpx.AsyncClient(
                verify=_whoever_signed(), trust_env=False, timeout=timeout_s
            ) as client:
                answer = await client.get(url)
        seen = msgspec.json.decode(answer.content, type=NodeSeen)
    except httpx.ConnectError:
        text = "no node runs here, so none was checked; start it, or give its configuration"
        if is_all:
            text = (
                "no node runs here and no file was given, so nothing was checked; give the "
                "node's file"
            )
        return [finding(FAIL if is_all else WARN, "node", about, text)]
    except (httpx.HTTPError, trio.TooSlowError, msgspec.MsgspecError) as error:
        if main.certificate_file and config.frontend.tls.client_auth == "required":
            text = "answers only clients with a certificate; check its /status/details with one"
            return [
                finding(WARN, "node", about, text),
                *await _served(listening, timeout_s, now_ms),
            ]
        trouble = (
            f"something listens here, but does not answer like a node: {str(error) or 'too late'}"
        )
        way_out = f"if it is the node, it hangs: restart it; otherwise set {main.setting}"
        return [finding(FAIL, "node", about, f"{trouble}; {way_out}")]
    if (seen.dc, seen.node) != (config.dc, config.node):
        trouble = f"node {seen.node} of {seen.dc} runs here, not {config.node} of {config.dc}"
        way_out = f"run HERMES_DC={seen.dc} HERMES_NODE={seen.node} hermes doctor"
        return [finding(FAIL, "node", about, f"{trouble}; {way_out}, or set {main.setting}")]
    return [*_fares(seen), *await _served(listening, timeout_s, now_ms)]


def _fares(seen: NodeSeen) -> Iterator[Finding]:
    about = f"{seen.node} of {seen.dc}"
    troubled = [each for each in seen.dependencies if not each.is_working]
    if not any(each.is_needed for each in troubled):
        yield finding(OK, "node", about, f"runs and is ready ({seen.phase})")
    for each in troubled:
        grade, effect = (FAIL, "not ready") if each.is_needed else (WARN, "ready nevertheless")
        way_out = f"see the other findings, and the node's log ({effect})"
        yield Finding("node", f"{about}, {each.name}", grade, each.reason, way_out)


async def _served(listening: list[Port], timeout_s: float, now_ms: int) -> list[Finding]:
    return [
        await trio.to_thread.run_sync(_serves, each, timeout_s, now_ms, abandon_on_cancel=True)
        for each in listening
        if each.certificate_file
    ]


def _whoever_signed() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _serves(port: Port, timeout_s: float, now_ms: int) -> Finding:
    about = f"served at {port.setting} {port.host}:{port.number}"
    try:
        with (
            socket.create_connection(_address(port), timeout_s) as plain,
            _whoever_signed().wrap_socket(plain) as secured,
        ):
            shown = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
    except OSError as error:
        text = f"TLS fails: {error}; restart the node, see its log"
        return finding(FAIL, "certificate", about, text)
    note, file = "", port.certificate_file
    try:
        if shown != x509.load_pem_x509_certificate(Path(file).read_bytes()):
            note = f"and it is not the one in {file}; see the node's log for why it keeps the other"
    except (OSError, ValueError):
        # The check of files reports the problem.
        pass
    return certificate_finding("certificate", about, shown, now_ms, note)


def _address(port: Port) -> tuple[str, int]:
    return _ANY.get(port.host, port.host), port.number


async def look_at_registry(config: Config, url: str) -> list[Finding]:
    """Ask one URL for the versions of a subject that does not exist. Raises StartupError."""
    client = RegistryClient(msgspec.structs.replace(config.schema, urls=[url]))
    grade, text = OK, "answers"
    try:
        await client.look_up(_NO_SUCH_TOPIC, {})
    except NoAnswer as error:
        grade, text = FAIL, f"{error}; see the registry, and schema.* for credentials and TLS"
    finally:
        await client.close()
    return [finding(grade, "registry", without_user_info(url), text)]


async def look_at_collector(signal: str, host: str, port: int, timeout_s: float) -> list[Finding]:
    """Try to connect; sends nothing."""
    grade, text = OK, "takes connections"
    try:
        with trio.fail_after(timeout_s):
            await trio.aclose_forcefully(await trio.open_tcp_stream(host, port))
    except (OSError, trio.TooSlowError) as error:
        trouble = str(error) or f"no connection within {timeout_s:g} s"
        grade = WARN
        text = (
            f"{trouble}; start the collector, or fix the OTEL_* variables; until then the "
            "data is dropped"
        )
    return [finding(grade, "telemetry", f"{signal} to {host}:{port}", text)]
