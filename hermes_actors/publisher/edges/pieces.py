"""A body that granian gives in pieces, and whether its end was its own or the connection's.

granian gives b"" for all of these: the regular end, a connection that broke, a frame of trailers.
Only after the regular end does it say at once that nothing is left; otherwise it wants to be asked
again. (RSGI has no word for it; `tests/publisher/test_torn_live.py` holds it to that.) Over HTTP/2
a client may also take back the rest of a body, which granian tells from an end by nothing at all.
"""

from collections.abc import Awaitable
from typing import Protocol


class ChunkStream(Protocol):
    """granian's iterator over a body."""

    def __anext__(self) -> Awaitable[bytes]:
        """The next piece. Raises StopAsyncIteration, without being awaited, after the end."""


class Pieces:
    """One body. `is_whole` is known when a read has given b"": the body ended as it should, with
    no trailers.
    """

    def __init__(self, stream: ChunkStream) -> None:
        self._stream = stream
        self.is_whole = False

    async def read(self) -> bytes:
        """The next piece; b"" is the end, whichever."""
        try:
            following = self._stream.__anext__()
        except StopAsyncIteration:
            return b""
        piece = await following
        if not piece:
            try:
                following = self._stream.__anext__()
            except StopAsyncIteration:
                self.is_whole = True
            else:
                await following
        return piece
