"""Pulls messages from asyncio or trio, and extends their deadlines while they are processed."""

import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Self

import anyio

from hermes_client.errors import AckRefused, HermesError, NotAccepted, NotNow
from hermes_client.exchange import RETRIES, Retries, Servers, Steps, Urls
from hermes_client.pulling import HELD_MAX, Holdings, PulledMessage, Pulling
from hermes_client.transport import Auth, Tls, async_client, carry_out

WAIT_S, LAST_WAIT_S = 20.0, 1.0
_TICK_S = 0.3
_logger = logging.getLogger(__name__)

Pulled = PulledMessage[Awaitable[None]]
OnPulled = Callable[[Pulled], Awaitable[object]]


class PullConsumer:
    """A client of a pull subscription at the management servers `urls`.

    >>> async with PullConsumer("http://127.0.0.1:8090", "shop.orders", "worker") as consumer:
    ...     async for message in consumer:
    ...         print(message.json())
    ...         await message.ack()
    ...         break

    It fetches up to `prefetch` messages at once, and goes on through failures and restarts of the
    broker. Without `follow` it ends when no message is there. A message that is neither
    acknowledged nor given back is held for at most `hold_max_s`; at the end of the block it is
    given back.
    """

    def __init__(
        self,
        urls: Urls,
        topic: str,
        subscription: str,
        *,
        auth: Auth = None,
        tls: Tls = None,
        retries: Retries = RETRIES,
        prefetch: int = 10,
        follow: bool = True,
        hold_max_s: float = 3_600.0,
    ) -> None:
        self._pulling = Pulling(Servers(urls), retries, random.SystemRandom(), topic, subscription)
        self._client = async_client(auth, tls)
        self._prefetch = prefetch
        self._follow = follow
        self._hold_max_s = hold_max_s
        self._held = Holdings()
        self._fetched = deque[Pulled]()
        self._done = list[str]()
        self._acknowledging = anyio.Lock()

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._extend)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            # Without the block's exception, which the group would wrap.
            await self._tasks.__aexit__(None, None, None)
        finally:
            with anyio.move_on_after(2.0, shield=True):
                await self._try_settle("nack", list(self._held)[:HELD_MAX])
                await self._client.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Pulled:
        while True:
            while self._fetched:
                message = self._fetched.popleft()
                # Another client has those whose extension came too late.
                if message.ack_id in self._held:
                    return message
            if len(self._held) >= HELD_MAX:
                raise HermesError(f"{HELD_MAX} messages are neither acknowledged nor given back")
            if not await self._fetch() and not self._follow:
                raise StopAsyncIteration

    async def run(self, on_message: OnPulled, *, concurrency: int = 10) -> None:
        """Call the function for each message, up to `concurrency` at once; for ever, or until no
        message is there.

        The message is acknowledged when the function returns. If it raises, the message is given
        back: for the time of NotNow, or else the subscription's back-off.
        """
        failure: HermesError | None = None
        free = anyio.Semaphore(concurrency)
        async with anyio.create_task_group() as calls:
            try:
                await free.acquire()
                async for message in self:
                    calls.start_soon(self._process, on_message, message, free)
                    await free.acquire()
            except HermesError as error:
                # Raised after the group, which would wrap it.
                failure = error
        if failure is not None:
            raise failure

    async def _process(self, on_message: OnPulled, message: Pulled, free: anyio.Semaphore) -> None:
        try:
            await on_message(message)
        except NotNow as error:
            await self._try_settle("nack", [message.ack_id], error.retry_after_s)
        except Exception:
            _logger.exception("message %s could not be processed; it comes again", message.id)
            await self._try_settle("nack", [message.ack_id])
        # Not if the function has settled it. One call acknowledges all that are done meanwhile.
        if message.ack_id in self._held:
            self._done.append(message.ack_id)
            async with self._acknowledging:
                if message.ack_id in self._done:
                    done, self._done = self._done, []
                    await self._try_settle("ack", done)
        free.release()

    async def _fetch(self) -> bool:
        """Fetch messages; True if there are any."""
        wait_s = WAIT_S if self._follow else LAST_WAIT_S
        try:
            steps: Steps[list[Pulled]] = self._pulling.pull(self._prefetch, wait_s, self._settle)
            found = await carry_out(self._client, steps)
        except NotAccepted as error:
            if not self._follow:
                raise
            _logger.warning("messages cannot be pulled: %s; trying again", error)
            await anyio.sleep(self._pulling.retries.backoff_max_s)
            return True
        self._held.add([each.ack_id for each in found], anyio.current_time(), self._hold_max_s)
        self._fetched += found
        return bool(found)

    async def _settle(self, verb: str, ack_ids: list[str], delay_s: float | None = None) -> None:
        try:
            if ack_ids:
                await carry_out(self._client, self._pulling.settle(verb, ack_ids, delay_s))
        except AckRefused as error:
            lost = error.codes.keys() & self._held.keys()
            self._held.drop(error.codes)
            # Those acknowledged during an extension are no loss.
            if lost or verb != "extend":
                raise
        if verb != "extend":
            self._held.drop(ack_ids)

    async def _try_settle(self, verb: str, ack_ids: list[str], *delay_s: float | None) -> None:
        """Settle or extend messages. After a failure, which is logged, they come again."""
        try:
            await self._settle(verb, ack_ids, *delay_s)
        except HermesError as error:
            _logger.warning("%s: %s", verb, error)
            self._held.drop(ack_ids if verb != "extend" else ())

    async def _extend(self) -> None:
        while True:
            await anyio.sleep(_TICK_S)
            await self._try_settle("extend", self._held.due(anyio.current_time()))
