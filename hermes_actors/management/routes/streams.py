"""Endless answers, a bounded number of each kind."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVarTuple, Unpack

from litestar.response import Stream

from hermes_actors.errors import HermesError, Unavailable
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.http.answers import AnyRequest
from hermes_actors.management.http.gate import Gate
from hermes_actors.runtime.bridge import BridgeClosed

STREAMS_MAX = 64
"""The maximum number of open streams of one kind."""

A = TypeVarTuple("A")


class Chunked(Protocol):
    """A stream that has begun."""

    async def next_chunk(self) -> bytes:
        """The next part; empty at the end. A trio coroutine."""


class Streams:
    """The streams of one kind. They end with the node, or when the log fails."""

    def __init__(self, gate: Gate, kind: str, media_type: str) -> None:
        self._gate = gate
        self._kind = kind
        self._media_type = media_type
        self._open = 0

    async def answer(
        self,
        request: AnyRequest,
        begin: Callable[[Caller, Unpack[A]], Awaitable[Chunked]],
        *args: *A,
    ) -> Stream:
        """Answer with the chunks of the stream that `begin` opens. Raises Unavailable if too many
        are open.
        """
        if self._open >= STREAMS_MAX:
            raise Unavailable(
                f"{STREAMS_MAX} streams of {self._kind} are open already; try again later"
            )
        # `_chunks` counts only once it begins, so count the opening too.
        self._open += 1
        try:
            chunked = await self._gate.act(request, begin, *args)
        finally:
            self._open -= 1
        return Stream(self._chunks(chunked), media_type=self._media_type)

    async def _chunks(self, chunked: Chunked) -> AsyncIterator[bytes]:
        self._open += 1
        try:
            while chunk := await self._gate.read(chunked.next_chunk):
                yield chunk
        except (BridgeClosed, HermesError):
            # The answer has begun, so an error can only end it.
            return
        finally:
            self._open -= 1
