"""Producer ids: no partition starts twice with the same id. For the host loop.

A broker recognises a batch by producer id and sequence number. So a partition whose next number is
unknown must continue with an id that it has not used: with the old one, a broker could take its
next batch for a copy of a stored one, and acknowledge it without storing it.
"""

import asyncio

from aiokafka.protocol.transaction import InitProducerIdRequest

from hermes_actors.log.kafka.batches import NO_IDENTITY, Identity, Numbering
from hermes_actors.log.kafka.brokers import FAILURES, Brokers
from hermes_actors.log.kafka.translate import error_name

_TRANSACTION_TIMEOUT_MS = 2**31 - 1


class Identities:
    """Partitions share one id. If a partition loses its place in it, the partitions that start
    afterwards get a new id; those that already use the old id keep it.
    """

    def __init__(self, brokers: Brokers) -> None:
        self.reason = ""
        self.replaced: dict[str, int] = {}
        self._brokers = brokers
        self._current: Identity | None = None
        self._task: asyncio.Task[Identity | None] | None = None

    def prepare(self) -> None:
        """Request an id if there is none, so that the next partition need not wait for one."""
        if self._current is None:
            self._ask_once()

    async def take(self, timeout_s: float) -> Identity | None:
        """Return the id to start with. None if there was none in time; `reason` says why."""
        if self._current is None:
            await asyncio.wait({self._ask_once()}, timeout=max(timeout_s, 0))
        return self._current

    def lose(self, numbering: Numbering, cause: str) -> None:
        """Take the id away from a partition whose next number is unknown. Counted by cause."""
        if numbering.identity is NO_IDENTITY:
            return
        if numbering.identity == self._current:
            self._current = None
            self._ask_once()
        numbering.lose()
        self.replaced[cause] = self.replaced.get(cause, 0) + 1

    async def close(self) -> None:
        """Stop asking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ask_once(self) -> "asyncio.Task[Identity | None]":
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._ask())
        return self._task

    async def _ask(self) -> Identity | None:
        request = InitProducerIdRequest(None, _TRANSACTION_TIMEOUT_MS)
        try:
            answer = await self._brokers.ask_any(request, purpose="metadata")
        except FAILURES as error:
            self.reason = self._brokers.connection.explain(error)
            return None
        if answer.error_code:
            self.reason = f"Kafka gives no producer id: {error_name(answer.error_code)}"
            return None
        self._current = Identity(answer.producer_id, answer.producer_epoch)
        return self._current
