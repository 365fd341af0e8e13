"""The one actor that writes to the spool's disk: what is offered together costs one fsync."""

import logging
import math
from collections.abc import Sequence

import trio

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.fallback.spool.index import Place
from hermes_actors.fallback.spool.spool import Offer, Spool
from hermes_actors.fallback.spool.store import SpoolUnavailable

_logger = logging.getLogger(__name__)

QUEUED_OFFERS_MAX = 20_000
"""The capacity of the writer's mailbox; the bound in bytes is the configuration's."""

_GROUP_BYTES_MAX = 4 * 1024 * 1024
_GROUP_OFFERS_MAX = 4_096
_AFTER_FAILURE_S = 1.0
_TIDY_AGAIN_S = 5.0
_TIDY_TIMEOUT_S = 2.0
_LOOK_INTERVAL_S = 1.0
_MARKS_A_TIME_MAX = 10_000
_ROLL_BYTES = 1024 * 1024
"""A segment of which nothing is needed is deleted, but not for every message a new one begun."""
_COPIED_AT_MOST = 0.25
"""Of a segment that keeps others from being written, this share may be copied to be rid of it."""


class SpoolWriter:
    """The actor that waits for the spool's disk. Its mailbox's capacity: QUEUED_OFFERS_MAX."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._store = spool.store
        self._clock = spool.clock
        self._look_at_s = -math.inf

    async def run(self, inbox: Inbox[Offer | None]) -> None:
        """Write what is offered until the inbox ends; what waits then is written first."""
        spool = self._spool
        taken: list[Offer] = []
        try:
            await self._tidy()
            spool.is_open = True
            while await self._wait(inbox):
                await self._look()
                received = inbox.receive_nowait(_GROUP_OFFERS_MAX)
                taken = [each for each in received if each]
                while taken:
                    group = _group(taken)
                    taken = taken[len(group) :]
                    await self._write(group)
                if received or spool.tidy_at_s <= self._clock.monotonic_s():
                    await self._tidy()
            await self._tidy(at_end=True)
        finally:
            spool.is_open = False
            error = SpoolUnavailable("closed", "the spool is stopped; the message was not stored")
            while left := [*taken, *inbox.receive_nowait(_GROUP_OFFERS_MAX)]:
                taken = []
                for offer in left:
                    if offer is not None:
                        spool.refuse(offer, error)

    async def _wait(self, inbox: Inbox[Offer | None]) -> bool:
        look_at_s = math.inf if self._spool.lost else self._look_at_s
        next_s = min(self._spool.tidy_at_s, look_at_s) - self._clock.monotonic_s()
        with trio.move_on_after(max(next_s, 0.0)):
            return await inbox.wait()
        return True

    async def _look(self) -> None:
        """Look once a second whether the files are still those that are written to."""
        spool = self._spool
        now_s = self._clock.monotonic_s()
        if spool.lost or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_INTERVAL_S
        try:
            spool.lost = await self._store.lost()
        except OSError as error:
            spool.trouble = f"the spool's disk: {error}"
            return
        if spool.lost:
            spool.trouble = spool.lost
            _logger.error("spool: %s", spool.lost)

    async def _write(self, offers: Sequence[Offer]) -> None:
        """Write these with one fsync and say so to each."""
        spool = self._spool
        found: list[Place] | SpoolUnavailable = SpoolUnavailable(
            "closed", "the spool was stopped while it wrote the message, which may be stored yet"
        )
        started_s = self._clock.monotonic_s()
        try:
            found = await self._append([each for offer in offers for each in offer.payloads])
            if isinstance(found, SpoolUnavailable):
                self._failed(found)
        finally:
            at = 0
            for offer in offers:
                if isinstance(found, SpoolUnavailable):
                    spool.refuse(offer, found)
                else:
                    spool.written(offer, found[at : at + len(offer.waiting)])
                    at += len(offer.waiting)
        spool.measures.write.observe(self._clock.monotonic_s() - started_s)

    async def _append(self, payloads: Sequence[bytes]) -> list[Place] | SpoolUnavailable:
        """Where they lie, or why not; it may take too long, unless the process stood still."""
        timeout_s = self._spool.config.write_timeout_ms / 1_000
        found: list[Place] | SpoolUnavailable = SpoolUnavailable(
            "slow", f"the spool's disk did not write within {timeout_s:g} s"
        )

        async def give_up(scope: trio.CancelScope) -> None:
            # In two halves: a pause of the process ends only one of them, and a disk that works
            # has the other.
            for _half in range(2):
                await trio.sleep(timeout_s / 2)
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(give_up, nursery.cancel_scope)
            try:
                found = await self._store.append(payloads)
            except SpoolUnavailable as error:
                found = error
            nursery.cancel_scope.cancel()
        return found

    def _failed(self, error: SpoolUnavailable) -> None:
        spool = self._spool
        if not spool.trouble:
            _logger.error("spool: %s; messages that no log takes are refused", error.message)
        spool.trouble = error.message
        spool.failing_until_s = self._clock.monotonic_s() + _AFTER_FAILURE_S
        spool.tidy_soon()

    # House-keeping.

    async def _tidy(self, *, at_end: bool = False) -> None:
        """Record what is settled, and delete what nobody needs. What fails is tried again."""
        spool = self._spool
        if spool.lost:
            return
        spool.tidy_at_s = math.inf
        trouble = "the spool's disk is slow"
        try:
            with trio.move_on_after(_TIDY_TIMEOUT_S):
                await self._delete_unneeded(at_end=at_end)
                await self._mark_done()
                if not at_end:
                    await self._make_room()
                    # A new file that could be made also shows that the disk takes something again.
                    await self._store.prepare()
                trouble = ""
        except SpoolUnavailable as error:
            trouble = error.message
        spool.trouble = trouble
        if trouble:
            spool.tidy_at_s = self._clock.monotonic_s() + _TIDY_AGAIN_S

    async def _delete_unneeded(self, *, at_end: bool) -> None:
        spool, store, index = self._spool, self._store, self._spool.index
        if not index.entries and not index.being_written:
            sealed_bytes = sum(size for _number, size in store.sealed())
            if at_end or store.size_bytes - sealed_bytes > _ROLL_BYTES:
                await store.seal()
        gone = [number for number, _size in store.sealed() if not index.is_needed(number)]
        for number in gone:
            await store.delete(number)
        if gone:
            spool.done = [place for place in spool.done if place.segment not in gone]

    async def _mark_done(self) -> None:
        done = self._spool.done
        while done:
            places = done[:_MARKS_A_TIME_MAX]
            await self._store.mark_done(places)
            del done[: len(places)]

    async def _make_room(self) -> None:
        """Copy the little that is needed of a segment, when such segments take half the space."""
        spool, store = self._spool, self._store
        if store.size_bytes <= spool.config.disk_bytes_max / 2:
            return
        for number, size_bytes in store.sealed():
            needed = spool.index.unsettled(number)
            if sum(each.size_bytes for each in needed) > size_bytes * _COPIED_AT_MOST:
                continue
            read = await store.read([each.place for each in needed if each.place])
            payloads = [payload for payload in read if payload is not None]
            if len(payloads) < len(needed):
                continue  # The replayer will meet the damage, and set it aside.
            places = await store.append(payloads)
            for each, place in zip(needed, places, strict=True):
                if each.is_settled:
                    # While it was copied: the copy must not be found by the next run.
                    spool.done.append(place)
                else:
                    spool.index.move(each, place)
            spool.tidy_soon()
            return


def _group(offers: Sequence[Offer]) -> list[Offer]:
    """The first of them that are written together: at least one."""
    size_bytes = 0
    for count, offer in enumerate(offers):
        size_bytes += offer.size_bytes
        if count and size_bytes > _GROUP_BYTES_MAX:
            return list(offers[:count])
    return list(offers)
