"""Topics in memory on a node: which nodes hold their messages, and how they are asked.

While there is such a topic, a frontend claims a partition number in the metadata, with its address
and a key. All nodes of all datacentres read the claims there.
"""

import logging
import math
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import msgspec
import trio
from msgspec.structs import replace

from hermes_actors.actors.supervisor import Supervisor, run_until
from hermes_actors.config import Config
from hermes_actors.errors import HermesError
from hermes_actors.log.base import LogUnavailable
from hermes_actors.log.volatile.held import Asked, Held, MemoryPolicy, Told
from hermes_actors.log.volatile.log import Holder, VolatileLog
from hermes_actors.metadata.catalog import (
    CatalogChange,
    LiveTopic,
    OtherChanged,
    SubscriptionChanged,
    TopicChanged,
)
from hermes_actors.metadata.commands import Absent, Accepted, StampIs, put
from hermes_actors.metadata.keys import HOLDER, holder_key
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.subscription import SubscriptionState
from hermes_actors.model.topic import MemoryFull
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.keyed import App, NoSuchCall, keyed_app
from hermes_actors.runtime.bridge import TrioBridge
from hermes_actors.telemetry.metrics import Metrics, meanings

_logger = logging.getLogger(__name__)

MEMORY = meanings(
    "hermes_memory",
    bytes=("bytes", "Memory that the messages of PERFORMANCE topics take on this node"),
    undelivered=("messages", "Messages in memory that a subscription has not settled"),
    dropped=("messages", "Unsettled messages that made room for newer ones"),
)
_PATH = "/memory"
_HEADER = "Hermes-Memory-Key"
_CONNECTIONS_MAX = 1_000
_PAUSE_S, _FULL_PAUSE_S = 1.0, 60.0
PARTITIONS_MAX = 16
"""How many nodes of a datacentre may hold messages in memory."""
_PATIENCE_S = 3.0
_SETTLE_MAX_S, _SETTLE_POLL_S = 10.0, 0.05
_WAIT_SHARE = 0.8
"""A publisher waits for room for this share of its time limit; then it is refused."""
_told = msgspec.msgpack.Decoder(Told)


class Memory:
    """A node's part in the topics in memory; all nodes have it, frontends hold messages."""

    def __init__(self, config: Config, environment: NodeEnvironment) -> None:
        self.held: Held | None = None
        if "frontend" in config.roles:
            limit_ms = config.frontend.max_publish_request_duration_ms
            self.held = Held(config.dc, limit_ms * _WAIT_SHARE / 1_000)
        self.key = environment.ids.message_id()
        self._config = config
        self._clock = environment.clock
        own, remote = environment.log, environment.remote_logs
        now_s = environment.clock.monotonic_s
        self.log = VolatileLog(own, self._ask, now_s, self.held, self.key)
        self.remote_logs = {dc: VolatileLog(log, self._ask, now_s) for dc, log in remote.items()}
        self._url = ""
        self._listens = False
        self._topics: dict[str, LiveTopic] = {}
        self.client: httpx.AsyncClient | None = None

    def listen(self, url: str) -> None:
        """Other nodes reach this one there from now on, so it may hold messages."""
        self._url, self._listens = url, True

    async def settle(self) -> None:
        """Wait until all messages are delivered, for ten seconds at most."""
        if self.held is not None and (waiting := self.held.undelivered):
            text = "waiting up to %d s for %d messages in memory to be delivered"
            _logger.warning(text, _SETTLE_MAX_S, waiting)
        with trio.move_on_after(_SETTLE_MAX_S):
            while self.held is not None and self.held.undelivered:  # noqa: ASYNC110
                await trio.sleep(_SETTLE_POLL_S)

    # Who holds what.

    async def run(self, metadata: Metadata, stop: trio.Event) -> None:
        """Follow the topics and the claims, and claim, until asked to stop."""
        await run_until(stop, lambda: self._follow(metadata))

    async def _follow(self, metadata: Metadata) -> None:
        with metadata.watch() as watch:
            pause_s = math.inf
            while True:
                with trio.move_on_after(pause_s):
                    await watch.wait()
                if sum(map(self._concerns, watch.take_nowait())):
                    self._adopt(metadata)
                pause_s = math.inf
                held = self.held
                if self._topics and held is not None and held.partition is None:
                    pause_s = _PAUSE_S
                    if self._listens:
                        await self._claim(metadata, held)

    def _concerns(self, change: CatalogChange) -> bool:
        match change:
            case TopicChanged(name, live):
                was_one = self._topics.pop(name, None) is not None
                if live is None or not live.topic.is_in_memory:
                    return was_one
                self._topics[name] = live
                return True
            case SubscriptionChanged(name):
                return name.partition("$")[0] in self._topics
            case OtherChanged(key):
                return key.startswith(f"{HOLDER}/")
        return False

    def _adopt(self, metadata: Metadata) -> None:
        """Tell the logs who holds which partition, and the held messages what applies to them."""
        for log in (self.log, *self.remote_logs.values()):
            log.adopt(_claims(metadata, log.dc), {each.log_topic for each in self._topics.values()})
        held = self.held
        if held is None:
            return
        if held.partition is not None and self.log.holders[held.partition].key != self.key:
            lost = held.begin(None)
            _logger.error("another node has taken this node's partition in memory: %d lost", lost)
        bytes_max = self._config.frontend.memory.bytes_max // max(1, len(self._topics))
        held.adopt(
            {
                live.log_topic: MemoryPolicy(
                    bytes_max,
                    live.topic.memory_full is MemoryFull.WAIT,
                    tuple(
                        each.name.consumer_group(metadata.namespace)
                        for each in metadata.catalog.subscriptions_of(live.name)
                        if each.state is not SubscriptionState.SUSPENDED
                    ),
                )
                for live in self._topics.values()
            }
        )

    async def _claim(self, metadata: Metadata, held: Held) -> None:
        """Claim the partition that this node had before, else a free one, else that of a node that
        does not answer.
        """
        dc, node = self._config.dc, self._config.node
        claims = _claims(metadata, dc)
        mine = [number for number, each in claims.items() if each.node == node]
        free = [number for number in range(len(claims)) if not claims[number].key]
        number = next(iter(mine + free), len(claims))
        if number == PARTITIONS_MAX:
            number = await self._unanswered(claims)
        before = claims.get(number, Holder())
        life = max(self._clock.now_ms() // 1_000, before.life + 1)
        claim = Holder(node, life, self._url, self.key)
        try:
            if await self._write(metadata, number, claim):
                held.begin(number, claim.base)
                self._adopt(metadata)
        except HermesError as error:
            _logger.warning("no partition of the topics in memory is held yet: %s", error.message)

    async def _unanswered(self, claims: Mapping[int, Holder]) -> int:
        while True:
            for number, holder in claims.items():
                try:
                    await self._ask(holder, Asked(""))
                except LogUnavailable:
                    return number
            _logger.error("%d nodes hold messages in memory; no more can", PARTITIONS_MAX)
            await trio.sleep(_FULL_PAUSE_S)

    async def leave(self, metadata: Metadata) -> None:
        """Give up the partition at the stop of the node."""
        held = self.held
        if held is not None and held.partition is not None:
            number = held.partition
            if lost := held.begin(None):
                _logger.warning("%d messages of PERFORMANCE topics are lost", lost)
            given_up = replace(self.log.holders[number], url="", key="")
            with trio.move_on_after(_PATIENCE_S), suppress(HermesError):
                await self._write(metadata, number, given_up)
        if self.client is not None:
            await self.client.aclose()

    async def _write(self, metadata: Metadata, number: int, holder: Holder) -> bool:
        key = holder_key(self._config.dc, number)
        register = metadata.catalog.others.get(key)
        unchanged = Absent(key) if register is None else StampIs(key, register.stamp)
        outcome = await metadata.change(put(key, msgspec.json.encode(holder), unchanged))
        return isinstance(outcome, Accepted)

    # Asking other nodes.

    async def _ask(self, holder: Holder, asked: Asked) -> Told:
        if self.client is None:
            # Plain HTTP only: loading the system's authorities takes tens of milliseconds.
            nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            limits = httpx.Limits(max_connections=_CONNECTIONS_MAX)
            self.client = httpx.AsyncClient(verify=nobody, limits=limits, trust_env=False)
        where = f"node {holder.node}, which holds the messages,"
        try:
            answer = await self.client.post(
                holder.url.rstrip("/") + _PATH,
                headers={_HEADER: holder.key},
                content=msgspec.msgpack.encode(asked),
                timeout=asked.wait_ms / 1_000 + _PATIENCE_S,
            )
            if answer.status_code == 200:
                return _told.decode(answer.content)
        except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError) as error:
            raise LogUnavailable(
                f"{where} cannot be reached at {holder.url} (frontend.memory.url): "
                f"{str(error) or type(error).__name__}"
            ) from error
        raise LogUnavailable(f"{where} answers {answer.status_code}: {answer.text[:300]}")

    def app(self, bridge: TrioBridge) -> App:
        """The ASGI app that answers other nodes, which know the key."""

        async def answer(scope: Any, body: bytes) -> bytes:
            held, path = self.held, scope["path"]
            if held is None or path != _PATH:
                raise NoSuchCall
            asked = msgspec.msgpack.decode(body, type=Asked)
            return msgspec.msgpack.encode(await bridge.call(held.answer, asked))

        return keyed_app(_HEADER, self.key, answer)


def _claims(metadata: Metadata, dc: str) -> dict[int, Holder]:
    """The newest claim of each partition in a datacentre."""
    others = metadata.catalog.others
    found = ((number, others.get(holder_key(dc, number))) for number in range(PARTITIONS_MAX))
    return {
        number: msgspec.json.decode(register.body, type=Holder)
        for number, register in found
        if register is not None and register.body is not None
    }


@asynccontextmanager
async def open_memory(
    memory: Memory, metadata: Metadata, control: Supervisor, metrics: list[Metrics]
) -> AsyncIterator[None]:
    """Hold messages in memory, and know who else does, during the block."""
    if (held := memory.held) is not None:
        measured = Metrics("hermes_memory", meanings=MEMORY)
        measured.gauge("bytes", lambda: held.size_bytes)
        measured.gauge("undelivered", lambda: held.undelivered)
        measured.total("dropped", lambda: held.dropped)
        metrics.append(measured)
    control.start_task("memory", lambda stop: memory.run(metadata, stop))
    yield
    # Not in a `finally`: a cancelled node stops as if it had been killed.
    await control.stop("memory")
    await memory.leave(metadata)
