"""The brokers of one cluster: their addresses, the partitions' leaders, and shared connections.

For the host loop. Nothing here gives up for good: unreachable brokers are tried again, and if no
known address answers, the configured addresses are tried.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, TypeVar

import aiokafka.errors as kafka_errors
from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from hermes_actors.log.base import LogUnavailable, UnknownTopic, no_such_partition
from hermes_actors.log.kafka.connection import KafkaCluster
from hermes_actors.log.kafka.session import Session

T = TypeVar("T")
Address = tuple[str, int]

FAILURES: tuple[type[Exception], ...] = (KafkaError, OSError, NotImplementedError)
"""The errors of a request to a broker; TimeoutError is an OSError."""
_LOGIN_FAILURES: tuple[type[Exception], ...] = (*FAILURES, AssertionError, ValueError)

_SILENT_S = 0.9
_TOPICS_MAX = 20_000
_POOLED_MAX = 64
_ABANDONED_MAX = 32
_HOPELESS = (
    kafka_errors.TopicAuthorizationFailedError,
    kafka_errors.GroupAuthorizationFailedError,
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.UnsupportedVersionError,
    kafka_errors.UnsupportedCodecError,
    NotImplementedError,
)


class Brokers:
    """The known brokers and partition leaders of one cluster, looked up when they are needed.

    Requests with the same purpose to one broker share a connection. A broker answers a connection's
    requests one after the other, so requests that may take long have their own purpose.
    """

    def __init__(self, connection: KafkaCluster, rng: random.Random) -> None:
        self.connection = connection
        self.settings = connection.settings
        self._rng = rng
        self._nodes: dict[int, Address] = {}
        self._last: Address | None = None
        self._leaders: dict[str, tuple[float, dict[int, int]]] = {}
        self._open: dict[tuple[Address, str], Session] = {}
        self._opening: dict[tuple[Address, str], asyncio.Task[Session]] = {}
        self._pool: dict[Address, list[Session]] = {}
        self._lent: dict[Session, Address] = {}
        self._backoff: dict[Address, tuple[int, float]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._abandoned: set[Session] = set()
        self._is_closed = False

    @property
    def request_timeout_s(self) -> float:
        """Maximum duration of one request, with its retries."""
        return self.settings.request_timeout_ms / 1_000

    @property
    def addresses(self) -> dict[int, Address]:
        """Broker id → address, for the brokers that were up at the last answer."""
        return dict(self._nodes)

    async def close(self) -> None:
        """Close all connections; later requests fail as unavailable."""
        self._is_closed = True
        tasks = [*self._opening.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connections = [*self._open.values(), *self._lent]
        for pooled in self._pool.values():
            connections += pooled
        self._open.clear()
        self._pool.clear()
        self._lent.clear()
        # `KafkaCluster.close` waits for their end, with a time limit: a broker that hangs does not
        # answer the close of a TLS connection.
        for connection in connections:
            connection.close()

    # Tasks of the readers.

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine until it ends, or until `abandon` or `close`."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def abandon(self, work: Session | asyncio.Task[None] | None) -> None:
        """Give up a fetch that is no longer needed. Up to 32 abandoned requests may still wait for
        their answer, so that their connections can be used again; other connections are closed.
        """
        if isinstance(work, asyncio.Task):
            work.cancel()
        elif work in self._lent:
            if len(self._abandoned) < _ABANDONED_MAX:
                self._abandoned.add(work)
            else:
                work.close()

    def delay_s(self, tries: int) -> float:
        """Return the wait after `tries` failed attempts.

        If all brokers are backing off, this is the time until the first of them may be tried again:
        another wait would only add to it.
        """
        now_s = asyncio.get_running_loop().time()
        first_s = min(self._backoff.get(address, (0, 0.0))[1] for address in self._known())
        if first_s > now_s:
            return first_s - now_s
        return self.connection.reconnect_delay_s(tries, self._rng)

    # Asking.

    async def persist(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` after temporary failures, within the request timeout.

        Raises LogUnavailable with `what` and the cause.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.request_timeout_s
        tries = 0
        last: Exception | None = None
        while True:
            tries += 1
            try:
                async with asyncio.timeout_at(deadline):
                    return await attempt()
            except FAILURES as error:
                if not isinstance(error, TimeoutError) or last is None:
                    last = error
                delay_s = self.delay_s(tries)
                is_over = self._is_closed or loop.time() + delay_s >= deadline
                if is_over or isinstance(error, _HOPELESS):
                    raise self.unavailable(what, last) from error
            await asyncio.sleep(delay_s)

    def unavailable(self, what: str, error: BaseException) -> LogUnavailable:
        """Translate an aiokafka error into LogUnavailable."""
        return LogUnavailable(f"{what}: {self.connection.explain(error)}")

    async def ask(self, request: Any, *, node: int, purpose: str) -> Any:
        """Send a request to the broker with the id `node`. Raises FAILURES."""
        return await self._ask(await self._address_of(node), request, purpose)

    async def ask_any(self, request: Any, *, purpose: str) -> Any:
        """Send a request to the first broker that answers, beginning with the last one that did.
        Raises FAILURES.
        """
        addresses = self._candidates()
        error: Exception = kafka_errors.NoBrokersAvailable()
        share_s = max(1.0, self.request_timeout_s / len(addresses))
        for address in addresses:
            try:
                async with asyncio.timeout(share_s):
                    answer = await self._ask(address, request, purpose)
            except FAILURES as failure:
                error = failure
                continue
            self._last = address
            return answer
        raise error

    async def _ask(self, address: Address, request: Any, purpose: str) -> Any:
        connection = await self._connected(address, purpose)
        loop = asyncio.get_running_loop()
        sent_s = loop.time()
        try:
            return await connection.send(request)
        except (TimeoutError, asyncio.CancelledError):
            # A connection with an answer overdue would delay the next request.
            if loop.time() - sent_s > _SILENT_S:
                connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
            raise

    def _known(self) -> list[Address]:
        known = dict.fromkeys(self._nodes.values())
        for server in self.connection.bootstrap_servers:
            host, _, port = server.rpartition(":")
            known[(host.strip("[]"), int(port))] = None
        return list(known)

    def _candidates(self) -> list[Address]:
        now_s = asyncio.get_running_loop().time()
        return sorted(
            self._known(),
            key=lambda address: (
                self._backoff.get(address, (0, 0.0))[1] > now_s,
                address != self._last,
            ),
        )

    def doubt(self) -> None:
        """Ask another broker next: the last one has outdated metadata, for example because it is
        cut off from the controllers.
        """
        addresses = self._known()
        asked = addresses.index(self._last) if self._last in addresses else -1
        self._last = addresses[(asked + 1) % len(addresses)]

    # What is known of the cluster.

    async def nodes(self) -> list[int]:
        """The ids of the brokers that are up. Raises FAILURES."""
        await self.describe([])
        return sorted(self._nodes)

    async def leaders(self, topic: str, *, age_max_s: float = math.inf) -> dict[int, int]:
        """Partition → its leader's id, -1 if it has none; empty if there is no such topic.

        At most `age_max_s` and metadata_max_age_ms old. Raises FAILURES.
        """
        now_s = asyncio.get_running_loop().time()
        known = self._leaders.get(topic)
        age_max_s = min(age_max_s, self.settings.metadata_max_age_ms / 1_000)
        if known is not None and now_s - known[0] < age_max_s:
            return known[1]
        (described,) = await self.describe([topic])
        code, _, _, partitions = described
        self._leaders.pop(topic, None)
        if code == kafka_errors.UnknownTopicOrPartitionError.errno:
            return {}
        if code and code != kafka_errors.LeaderNotAvailableError.errno:
            raise kafka_errors.for_code(code)(topic)
        leaders = {number: leader for _, number, leader, *_ in sorted(partitions)}
        if len(self._leaders) >= _TOPICS_MAX:
            del self._leaders[next(iter(self._leaders))]
        self._leaders[topic] = (now_s, leaders)
        return leaders

    async def leaders_of(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        """As `leaders`. Raises FAILURES; UnknownTopic if the topic does not have all of
        `partitions`.
        """
        leaders = await self.leaders(topic)
        if not leaders or any(number not in leaders for number in partitions):
            leaders = await self.leaders(topic, age_max_s=0)
        if not leaders:
            raise UnknownTopic(topic)
        for number in partitions:
            if number not in leaders:
                raise UnknownTopic(no_such_partition(topic, number, len(leaders)))
        return leaders

    def forget(self, topic: str) -> None:
        """Drop the cached leaders of this topic."""
        self._leaders.pop(topic, None)

    async def describe(
        self, topics: list[str] | None, *, node: int | None = None
    ) -> list[tuple[int, str, bool, list[tuple[Any, ...]]]]:
        """Return (error, name, is internal, partitions) of each topic; of all topics for None.
        Raises FAILURES.

        Also updates the brokers' addresses.
        """
        request = MetadataRequest(topics, allow_auto_topic_creation=False)
        if node is not None:
            answer = await self.ask(request, node=node, purpose="metadata")
        else:
            answer = await self.ask_any(request, purpose="metadata")
        self._learn({broker: (host, port) for broker, host, port, *_ in answer.brokers})
        found: list[tuple[int, str, bool, list[tuple[Any, ...]]]] = answer.topics
        return found

    def _learn(self, nodes: dict[int, Address]) -> None:
        if not nodes:
            return
        gone = set(self._nodes.values()) - set(nodes.values())
        self._nodes = nodes
        for key in [key for key in self._open if key[0] in gone]:
            self._open.pop(key).close()
        for address in sorted(gone):
            self._backoff.pop(address, None)
            for pooled in self._pool.pop(address, []):
                pooled.close()

    async def _address_of(self, node: int) -> Address:
        if node not in self._nodes:
            await self.describe([])
        if node not in self._nodes:
            raise kafka_errors.BrokerNotAvailableError(f"broker {node} is not up")
        return self._nodes[node]

    # Connections.

    async def _connected(self, address: Address, purpose: str) -> Session:
        key = (address, purpose)
        connection = self._open.get(key)
        if connection is not None and connection.connected():
            return connection
        task = self._opening.get(key)
        if task is None:
            task = asyncio.ensure_future(self._connect(address, purpose, None))
            self._opening[key] = task
            task.add_done_callback(lambda done: self._opened(key, done))
        # Others that wait for the same connection must not be cancelled with this caller.
        return await asyncio.shield(task)

    def _opened(self, key: tuple[Address, str], task: asyncio.Task[Session]) -> None:
        del self._opening[key]
        if task.cancelled() or task.exception() is not None:
            return
        if self._is_closed:
            task.result().close()
        else:
            self._open[key] = task.result()

    async def _connect(self, address: Address, purpose: str, timeout_ms: int | None) -> Session:
        loop = asyncio.get_running_loop()
        failed, retry_at_s = self._backoff.get(address, (0, 0.0))
        where = f"{address[0]}:{address[1]}"
        if self._is_closed:
            raise kafka_errors.KafkaConnectionError("the log is closed")
        if retry_at_s > loop.time():
            raise kafka_errors.KafkaConnectionError(f"no connection to {where}")
        try:
            async with asyncio.timeout(self.request_timeout_s):
                connection = await self.connection.connect(
                    address[0], address[1], purpose, timeout_ms=timeout_ms
                )
        except _LOGIN_FAILURES as error:
            # aiokafka's log-in raises AssertionError for unexpected answers.
            delay_s = self.connection.reconnect_delay_s(failed + 1, self._rng)
            self._backoff[address] = (failed + 1, loop.time() + delay_s)
            if isinstance(error, FAILURES):
                raise
            raise kafka_errors.AuthenticationFailedError(f"{where}: {error}") from error
        self._backoff.pop(address, None)
        return connection

    def spare(self, node: int) -> Session | None:
        """As `borrow`, but only an open pooled connection; None if there is none."""
        address = self._nodes.get(node)
        if address is None:
            return None
        pooled = self._pool.get(address, [])
        while pooled:
            connection = pooled.pop()
            if connection.connected():
                self._lent[connection] = address
                return connection
        return None

    async def borrow(self, node: int) -> Session:
        """Lend a connection for one fetch at a time, whose requests may wait fetch_wait_ms for
        data. Return it with `give_back`. Raises FAILURES.
        """
        address = await self._address_of(node)
        spare = self.spare(node)
        if spare is not None:
            return spare
        timeout_ms = self.settings.request_timeout_ms + self.settings.fetch_wait_ms
        connection = await self._connect(address, "fetch", timeout_ms)
        if self._is_closed:
            connection.close()
            raise kafka_errors.KafkaConnectionError("the log is closed")
        self._lent[connection] = address
        return connection

    def give_back(self, connection: Session, *, is_usable: bool) -> None:
        """Take back a borrowed connection. `is_usable`: no answer is outstanding on it."""
        self._abandoned.discard(connection)
        address = self._lent.pop(connection, None)
        if address is None or not connection.connected():
            return
        pooled = self._pool.setdefault(address, [])
        if is_usable and len(pooled) < _POOLED_MAX and address in self._nodes.values():
            pooled.append(connection)
        else:
            connection.close()
