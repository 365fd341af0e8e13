"""Producer ids: a partition never begins one twice, and one partition's trouble is no other's.

A broker recognises a batch by producer id and number. So a partition whose next number is in doubt
must go on under an id that it has not used: under the old one its next batch could be taken for a
copy of a stored one, and be lost with a false acknowledgement. For the host loop.
"""

import asyncio

from aiokafka.protocol.transaction import InitProducerIdRequest

from hermes_actors.log.kafka.batches import NO_IDENTITY, Identity, Numbering
from hermes_actors.log.kafka.brokers import FAILURES, Brokers
from hermes_actors.log.kafka.translate import error_name

_TRANSACTION_TIMEOUT_MS = 2**31 - 1


class Identities:
    """Partitions begin under one common id; when it has been lost for one of them, the next to
    begin gets another. Those that use it already keep it.
    """

    def __init__(self, brokers: Brokers) -> None:
        self.reason = ""
        self.replaced: dict[str, int] = {}
        self._brokers = brokers
        self._current: Identity | None = None
        self._task: asyncio.Task[Identity | None] | None = None

    def prepare(self) -> None:
        """Have an id at hand, so that the next partition need not wait for one."""
        if self._current is None:
            self._ask_once()

    async def take(self, timeout_s: float) -> Identity | None:
        """The id to begin under, or None when none could be had in time; see `reason`."""
        if self._current is None:
            await asyncio.wait({self._ask_once()}, timeout=max(timeout_s, 0))
        return self._current

    def lose(self, numbering: Numbering, cause: str) -> None:
        """Nobody knows this partition's next number: its id is replaced. Counted by cause."""
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
            self.reason = f"no producer id to be had: {error_name(answer.error_code)}"
            return None
        self._current = Identity(answer.producer_id, answer.producer_epoch)
        return self._current
