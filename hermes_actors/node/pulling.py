"""Answers clients of pull subscriptions on any management node of a datacentre.

If the subscription's owner is another node, the request goes on to that node's pull listener, whose
address and key are in its status record. The key proves that a node of the datacentre asks, which
has checked the client's rights.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import trio
from msgspec.structs import replace

from hermes_actors.consumer.pulling.answers import answered
from hermes_actors.consumer.pulling.dispatch import NotOwned
from hermes_actors.errors import Unavailable
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.pulling import (
    AckRequest,
    Asked,
    ExtendRequest,
    NackRequest,
    PullRequest,
)
from hermes_actors.node.keyed import App, NoSuchCall, keyed_app
from hermes_actors.node.running import Node
from hermes_actors.runtime.bridge import TrioBridge
from hermes_actors.status.fold import StatusFold

PATIENCE_S = 6.0
"""How long a request waits for the subscription's next owner: a little longer than a fail-over."""

_HEADER = "Hermes-Pull-Key"
_PAUSE_S = 0.25
_ANSWER_TIMEOUT_S = 10.0
_CONNECTIONS_MAX = 1_000
_KINDS = {"/pull": PullRequest, "/ack": AckRequest, "/nack": NackRequest, "/extend": ExtendRequest}
_PATHS = {kind: path for path, kind in _KINDS.items()}


class _Elsewhere(Exception):
    """Not answered, but it may be soon, by this or by another node."""


class PullRoutes:
    """Finds the owner of a subscription, and has it answer."""

    def __init__(self, node: Node, status: StatusFold, client: httpx.AsyncClient) -> None:
        self._node = node
        self._status = status
        self._client = client

    async def ask(self, live: LiveSubscription, asked: Asked) -> bytes:
        """The answer of the subscription's owner, as JSON. Raises Unavailable."""
        began_s = trio.current_time()
        wait_s = asked.wait_ms / 1_000 if isinstance(asked, PullRequest) else 0.0
        while True:
            spent_s = trio.current_time() - began_s
            if isinstance(asked, PullRequest):
                asked = replace(asked, wait_ms=max(0, int((wait_s - spent_s) * 1_000)))
            try:
                return await self._ask_once(str(live.name), asked)
            except _Elsewhere as error:
                if spent_s >= max(wait_s, PATIENCE_S):
                    raise Unavailable(f"{error}; try again") from error
            await trio.sleep(_PAUSE_S)

    async def _ask_once(self, name: str, asked: Asked) -> bytes:
        try:
            return await _answer_here(self._node, name, asked)
        except NotOwned:
            return await self._pass_on(name, asked)

    async def _pass_on(self, name: str, asked: Asked) -> bytes:
        dc, coordination = self._node.config.dc, self._node.coordination
        assert coordination is not None, "management follows it"
        grants = coordination.state.grants(name)
        member = coordination.state.members.get(grants[0].boot) if grants else None
        if member is None:
            raise _Elsewhere(f"No node of {dc} owns subscription {name} now")
        header = self._status.header(dc, member.node)
        if member.node == self._node.config.node or header is None or not header.pull[0]:
            raise _Elsewhere(f"Node {member.node}, its owner, is not ready to deliver messages")
        wait_s = asked.wait_ms / 1_000 if isinstance(asked, PullRequest) else 0.0
        url, key = header.pull
        try:
            answer = await self._client.post(
                url.rstrip("/") + _PATHS[type(asked)],
                params={"subscription": name},
                headers={_HEADER: key},
                content=msgspec.json.encode(asked),
                timeout=wait_s + _ANSWER_TIMEOUT_S,
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _Elsewhere(
                f"Node {member.node}, its owner, cannot be reached at {url} "
                f"(consumers.pull.url): {str(error) or type(error).__name__}"
            ) from error
        if answer.status_code == 200:
            return answer.content
        text = answer.text[:300]
        if answer.status_code == 503:
            raise Unavailable(text)
        raise _Elsewhere(f"Node {member.node}, its owner, answers {answer.status_code}: {text}")


async def _answer_here(node: Node, name: str, asked: Asked) -> bytes:
    """The answer of this node. Raises NotOwned and Unavailable."""
    consumer = None if node.agent is None else node.agent.consumer(name)
    if consumer is None or consumer.hand_out is None:
        raise NotOwned
    return await answered(consumer.hand_out, asked, node.environment.clock)


@asynccontextmanager
async def open_pull_routes(node: Node, status: StatusFold) -> AsyncIterator[PullRoutes]:
    """Ask owners during the block."""
    # Plain HTTP only: loading the system's authorities takes tens of milliseconds.
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    limits = httpx.Limits(max_connections=_CONNECTIONS_MAX)
    client = httpx.AsyncClient(verify=nobody, limits=limits, trust_env=False)
    try:
        yield PullRoutes(node, status, client)
    finally:
        with trio.CancelScope(shield=True):
            await client.aclose()


def pull_app(node: Node, key: str, bridge: TrioBridge) -> App:
    """The ASGI app of the pull listener: it answers other nodes, which know the key, what this node
    owns.
    """

    async def answer(scope: Any, body: bytes) -> bytes:
        kind = _KINDS.get(scope["path"])
        if kind is None:
            raise NoSuchCall
        name = httpx.QueryParams(scope["query_string"]).get("subscription", "")
        asked = msgspec.json.decode(body, type=kind)
        return await bridge.call(_answer_here, node, name, asked)

    return keyed_app(_HEADER, key, answer)
