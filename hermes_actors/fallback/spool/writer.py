"""The one actor that writes to the spool's disk: what is offered together costs one fsync."""

from collections.abc import Sequence

import trio

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.fallback.spool.spool import Offer, Spool
from hermes_actors.fallback.spool.store import SpoolUnavailable

QUEUED_OFFERS_MAX = 20_000
"""The capacity of the writer's mailbox; the bound in bytes is the configuration's."""

_GROUP_BYTES_MAX = 4 * 1024 * 1024
_GROUP_OFFERS_MAX = 4_096


class SpoolWriter:
    """The actor that waits for the spool's disk. Its mailbox's capacity: QUEUED_OFFERS_MAX."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    async def run(self, inbox: Inbox[Offer | None]) -> None:
        """Write what is offered until the inbox ends; what waits then is written first."""
        spool = self._spool
        taken: list[Offer] = []
        try:
            await spool.tidy()
            spool.is_open = True
            while await self._wait(inbox):
                await spool.look()
                received = inbox.receive_nowait(_GROUP_OFFERS_MAX)
                taken = [each for each in received if each]
                while taken:
                    group = _group(taken)
                    taken = taken[len(group) :]
                    await spool.write(group)
                if received or not spool.tidy_in_s:
                    await spool.tidy()
            await spool.tidy(at_end=True)
        finally:
            spool.is_open = False
            error = SpoolUnavailable("closed", "the spool is stopped; the message was not stored")
            while left := [*taken, *inbox.receive_nowait(_GROUP_OFFERS_MAX)]:
                taken = []
                for offer in left:
                    if offer is not None:
                        spool.refuse(offer, error)

    async def _wait(self, inbox: Inbox[Offer | None]) -> bool:
        with trio.move_on_after(min(self._spool.tidy_in_s, self._spool.look_in_s)):
            return await inbox.wait()
        return True


def _group(offers: Sequence[Offer]) -> list[Offer]:
    """The first of them that are written together: at least one."""
    size_bytes = 0
    for count, offer in enumerate(offers):
        size_bytes += offer.size_bytes
        if count and size_bytes > _GROUP_BYTES_MAX:
            return list(offers[:count])
    return list(offers)
