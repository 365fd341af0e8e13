"""The node itself: who listens on its ports, how it fares, and which certificates it serves."""

from collections.abc import Iterator
from functools import partial

import httpx
import msgspec
import trio
from msgspec import Struct

from hermes_actors.cli.doctor import certificates
from hermes_actors.cli.doctor.findings import Finding, odd, well, wrong
from hermes_actors.config import Config
from hermes_actors.config.ports import Port, ports

NODE, CERTIFICATE = "node", "certificate"

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 -- where it listens


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


async def look_at_node(config: Config, timeout_s: float, now_ms: int) -> list[Finding]:
    """How the node of this configuration fares, if it runs here."""
    main, *others = ports(config)
    about = f"{main.setting} {main.host}:{main.number}"
    try:
        with trio.fail_after(timeout_s):
            async with httpx.AsyncClient(trust_env=False, timeout=timeout_s) as client:
                host, number = _address(main)
                place = f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
                answer = await client.get(f"http://{place}/status/details")
        seen = msgspec.json.decode(answer.content, type=NodeSeen)
    except httpx.ConnectError:
        way_out = "start it, or say where it runs by HERMES_… variables"
        return [odd(NODE, about, "no node runs here, so none was looked at", way_out)]
    except (httpx.HTTPError, trio.TooSlowError, msgspec.MsgspecError) as error:
        trouble = f"something listens, and does not answer as a node: {str(error) or 'too late'}"
        way_out = f"if it is the node, it hangs: restart it; else set {main.setting}"
        return [wrong(NODE, about, trouble, way_out)]
    if (seen.dc, seen.node) != (config.dc, config.node):
        trouble = f"node {seen.node} of {seen.dc} runs here, not {config.node} of {config.dc}"
        way_out = f"say HERMES_DC={seen.dc} HERMES_NODE={seen.node} hermes doctor"
        return [wrong(NODE, about, trouble, f"{way_out}, or set {main.setting}")]
    found = [*_fares(seen)]
    for each in others:
        if each.setting.endswith(".tls.port"):
            section = config.frontend if each.setting.startswith("frontend") else config.management
            look = partial(_serves, each, section.tls.certificate_file, timeout_s, now_ms)
            found.append(await trio.to_thread.run_sync(look, abandon_on_cancel=True))
    return found


def _fares(seen: NodeSeen) -> Iterator[Finding]:
    about = f"{seen.node} of {seen.dc}"
    troubled = [each for each in seen.dependencies if not each.is_working]
    if not any(each.is_needed for each in troubled):
        yield well(NODE, about, f"runs and is ready ({seen.phase})")
    for each in troubled:
        judge, effect = (wrong, "not ready") if each.is_needed else (odd, "ready all the same")
        way_out = f"see the other findings, and the node's log ({effect})"
        yield judge(NODE, f"{about}, {each.name}", each.reason, way_out)


def _serves(port: Port, file: str, timeout_s: float, now_ms: int) -> Finding:
    about = f"served at {port.setting} {port.host}:{port.number}"
    try:
        shown = certificates.served_at(*_address(port), timeout_s)
    except OSError as error:
        return wrong(CERTIFICATE, about, f"TLS fails: {error}", "restart the node, see its log")
    finding = certificates.judged(CERTIFICATE, about, shown, now_ms)
    try:
        is_of_file = shown == certificates.of_file(file)
    except (OSError, ValueError):
        # The check of files says what is wrong with it.
        return finding
    if is_of_file:
        return finding
    trouble = f"{finding.seen}, and it is not the one in {file}"
    return odd(CERTIFICATE, about, trouble, "restart the node so that it reads the file")


def _address(port: Port) -> tuple[str, int]:
    return _ANY.get(port.host, port.host), port.number
