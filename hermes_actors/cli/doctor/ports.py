"""The ports that a node listens on: free, or held by the very node that is looked after."""

import errno
import os
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

import httpx
import msgspec
import trio
from msgspec import Struct

from hermes_actors.cli.doctor.diagnosis import Diagnosis, fine, odd, wrong
from hermes_actors.cli.doctor.processes import listeners
from hermes_actors.config import Config
from hermes_actors.config.ports import Port, ports

CHECK = "ports"

_LOOKS = 8
"""Requests to a port that several processes share: each connection comes to any of them."""
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 -- where it listens


class NodeSeen(Struct, frozen=True):
    """A node as /status/details of its port tells of itself."""

    dc: str = ""
    node: str = ""
    phase: str = ""
    isReady: bool = False  # noqa: N815 -- as it is on the wire
    reason: str = ""
    notices: tuple[str, ...] = ()


class PortSeen(Struct, frozen=True, kw_only=True):
    """The findings at a port. `refusal` is the system's error number for listening there, 0 if one
    may; `holders` are the processes that do, None where that cannot be seen; `nodes` are those that
    tell who they are; `answer` is what else answers, in words.
    """

    refusal: int = 0
    holders: dict[int, str] | None = None
    nodes: list[NodeSeen] = []
    answer: str = ""


async def look_at_port(port: Port, timeout_s: float) -> PortSeen:
    """Try whether one may listen there, without doing so, and ask who does for so long."""
    if not port.number:
        return PortSeen()
    refusal = await trio.to_thread.run_sync(_refusal, port, abandon_on_cancel=True)
    if refusal != errno.EADDRINUSE:
        return PortSeen(refusal=refusal)
    holders = await trio.to_thread.run_sync(
        listeners, port.number, Path("/proc"), abandon_on_cancel=True
    )
    if not port.is_main:
        return PortSeen(refusal=refusal, holders=holders)
    nodes: list[NodeSeen] = []
    answers: list[str] = []
    async with trio.open_nursery() as nursery:
        for _ in range(_LOOKS if port.is_shared else 1):
            nursery.start_soon(_ask, port, timeout_s, nodes, answers)
    return PortSeen(refusal=refusal, holders=holders, nodes=nodes, answer="".join(answers[:1]))


def running_pids(config: Config, main: PortSeen) -> set[int]:
    """The process of the configuration's own node, among others if several share its port; none
    while it does not run, or is not seen.
    """
    is_ours = any(is_node_of(config, each) for each in main.nodes)
    return set(main.holders or ()) if is_ours else set()


def is_node_of(config: Config, node: NodeSeen) -> bool:
    """True for the configuration's own node."""
    return (node.dc, node.node) == (config.dc, config.node)


def judge_port(config: Config, port: Port, seen: PortSeen, main: PortSeen) -> Diagnosis:
    """One line for one port. `main` is what was found where the node tells who it is."""
    about = f"{port.setting} {port.host}:{port.number}"
    if not port.number:
        return fine(CHECK, about, "0: a start takes any free one")
    if not seen.refusal:
        return fine(CHECK, about, "free: no node of this configuration runs here")
    if seen.refusal != errno.EADDRINUSE:
        return wrong(
            CHECK, about, f"cannot be listened on: {os.strerror(seen.refusal)}", _why(seen)
        )
    held = f"held by {_who(seen)}"
    if port.is_main:
        return _judge_main(config, port, seen, about, held)
    pids = running_pids(config, main)
    if pids & set(seen.holders or ()):
        return _judge_holders(seen, about, f"held by {_node(config)} ({_who(seen)})")
    if not pids and not seen.holders and any(is_node_of(config, each) for each in main.nodes):
        return fine(CHECK, about, f"held while {_node(config)} runs; by which process is not seen")
    if set(seen.holders or ()) & set(main.holders or ()):
        main_setting = next(each.setting for each in ports(config) if each.is_main)
        return odd(CHECK, about, f"{held}, which has {main_setting} too", "see there")
    return wrong(
        CHECK,
        about,
        f"{held}, which is not {_node(config)}",
        f"stop that process, or set {port.setting}",
    )


def _judge_main(config: Config, port: Port, seen: PortSeen, about: str, held: str) -> Diagnosis:
    ours = [each for each in seen.nodes if is_node_of(config, each)]
    others = [each for each in seen.nodes if each not in ours and each.node]
    if others:
        other = others[0]
        return wrong(
            CHECK,
            about,
            f"{held}: node {other.node} of {other.dc}, not {_node(config)}",
            f"to look after that one, say HERMES_DC={other.dc} HERMES_NODE={other.node} "
            f"hermes doctor; to start another beside it, set {port.setting}",
        )
    if not ours:
        return wrong(
            CHECK,
            about,
            f"{held}, which does not answer as a node does: {seen.answer}",
            f"if it is the node, it hangs: start it again; else stop it, or set {port.setting}",
        )
    worst = min(ours, key=lambda each: (each.isReady, not each.notices))
    text = f"held by {_node(config)} ({_who(seen)}), which is"
    if not worst.isReady:
        text = f"{text} not ready, {worst.phase}: {worst.reason}"
        return wrong(CHECK, about, text, "see what else is wrong here, and what it logs")
    return _judge_holders(seen, about, f"{text} ready", worst.notices)


def _judge_holders(seen: PortSeen, about: str, text: str, notices: Sequence[str] = ()) -> Diagnosis:
    count, ways_out = len(seen.holders or ()), []
    if notices:
        text = f"{text} all the same: {'; '.join(notices)}"
        ways_out.append("see what else is wrong here, and what it logs")
    if count > 1:
        text = f"{text}: {count} processes share it, and each gets a part of the requests"
        ways_out.append("if one of them is left over from an earlier start, stop it")
    if not ways_out:
        return fine(CHECK, about, text)
    return odd(CHECK, about, text, "; ".join(ways_out))


def _node(config: Config) -> str:
    return f"node {config.node} of {config.dc}"


def _who(seen: PortSeen) -> str:
    if not seen.holders:
        return "a process that this user cannot see"
    listed = [f"{pid} {name}".strip() for pid, name in sorted(seen.holders.items())]
    return f"process {' and '.join(listed)}"


def _why(seen: PortSeen) -> str:
    if seen.refusal == errno.EACCES:
        return "ports below 1024 need a privilege: choose another port"
    return "its host must be an address of this machine; 0.0.0.0 is all of them"


def _refusal(port: Port) -> int:
    """Bind and let go: without listening nobody is kept from anything."""
    family = socket.AF_INET6 if ":" in port.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((port.host, port.number))
    except socket.gaierror:
        return errno.EADDRNOTAVAIL
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0


async def _ask(port: Port, timeout_s: float, nodes: list[NodeSeen], answers: list[str]) -> None:
    host = _ANY.get(port.host, port.host)
    url = f"http://{f'[{host}]' if ':' in host else host}:{port.number}/status/details"
    # It is plain HTTP: reading all authorities, as httpx would, takes longer than the answer.
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # An answer that comes byte by byte ends too.
        with trio.fail_after(timeout_s):
            async with httpx.AsyncClient(trust_env=False, timeout=timeout_s, verify=tls) as client:
                answer = await client.get(url)
    except (httpx.TimeoutException, trio.TooSlowError):
        answers.append(f"GET /status/details has no answer within {timeout_s:g} s")
        return
    except httpx.HTTPError as error:
        answers.append(str(error) or type(error).__name__)
        return
    try:
        found = msgspec.json.decode(answer.content, type=NodeSeen)
    except msgspec.MsgspecError:
        answers.append(f"GET /status/details is answered with {answer.status_code}")
        return
    if found not in nodes:
        nodes.append(found)
