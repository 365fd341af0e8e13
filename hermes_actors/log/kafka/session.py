"""A connection that ends before its log-in does, so that no request is lost to that.

With connections.max.reauth.ms a broker ends a connection whose log-in has become too old, at its
next request and without a word: an append with acks "1" would be unknown for no reason.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.protocol.admin import SaslAuthenticateRequest

_USED_FOR = 0.8
"""Of the log-in's life; what is asked after that goes over another connection."""


class Session(AIOKafkaConnection):  # type: ignore[misc]
    """An AIOKafkaConnection that says it is not connected when its log-in will soon end.

    What is under way then is still answered; the connection closes when the log-in's time is up.
    """

    _used_until_s = float("inf")
    _end: asyncio.TimerHandle | None = None

    def connected(self) -> bool:
        """Can it be used for another request?"""
        if self._used_until_s < self._loop.time():
            return False
        return bool(super().connected())

    def send(self, request: Any, expect_response: bool = True) -> Awaitable[Any]:
        """As AIOKafkaConnection.send."""
        answer: Awaitable[Any] = super().send(request, expect_response)
        return self._logged_in(answer) if isinstance(request, SaslAuthenticateRequest) else answer

    def close(self, reason: Any = None, exc: BaseException | None = None) -> Any:
        """As AIOKafkaConnection.close."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        return super().close(reason, exc)

    async def _logged_in(self, answer: Awaitable[Any]) -> Any:
        response = await answer
        # Absent in the first version of the answer; 0: for as long as the connection lasts.
        life_s = getattr(response, "session_lifetime_ms", 0) / 1_000
        if life_s > 0:
            loop = asyncio.get_running_loop()
            self._used_until_s = loop.time() + life_s * _USED_FOR
            if self._end is not None:
                self._end.cancel()
            self._end = loop.call_later(life_s, self.close, CloseReason.IDLE_DROP)
        return response
