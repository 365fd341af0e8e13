"""A lease that a test closes and opens."""

import trio


class HandLease:
    is_lost = False

    def __init__(self):
        self.is_closed = False
        self._opened = trio.Event()

    def is_open(self):
        return not self.is_closed

    async def wait_opened(self):
        while self.is_closed:
            await self._opened.wait()

    def open(self):
        self.is_closed = False
        self._opened.set()
