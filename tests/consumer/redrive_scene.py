"""A consumer's world with dead letters, for tests of re-drives."""

import msgspec
import trio

from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.log.base import EARLIEST, LATEST
from hermes_actors.metadata.redrives import LetterRange, Redrive, progress_of, redrive_group
from hermes_actors.model.dead_letter import LetterFilter, OpenLetters, read_entry
from hermes_actors.model.partitioner import partition_of

DLQ = "_hermes.dlq.shop"
NAME = "shop.orders$push"
PARTITION = partition_of(NAME.encode(), 4)
BAD, OK = SendOutcome(400), SendOutcome(200)


class Board:
    """The requested re-drives."""

    def __init__(self):
        self.redrive = None
        self._changed = trio.Event()

    def find(self, live):
        return self.redrive

    async def wait_changed(self):
        await self._changed.wait()

    def ask(self, redrive):
        self.redrive = redrive
        self._changed.set()
        self._changed = trio.Event()


class Scene:
    """A consumer's world with dead letters, and its actions."""

    def __init__(self, world):
        self.world = world
        self.board = Board()
        world.parts = msgspec.structs.replace(world.parts, redrives=self.board)
        self.is_down = True
        self.bad = set()
        world.sender.script = self.answer

    def answer(self, push):
        return BAD if self.is_down or push.body in self.bad else OK

    async def with_letters(self, *bodies, seconds=5):
        """Publish these while the endpoint refuses everything; then it recovers."""
        await self.world.publish(*bodies)
        async with self.world.consuming(keeps_letters=True):
            await trio.sleep(seconds)
        self.is_down = False
        self.world.sender.pushes.clear()
        self.world.sender.times_s.clear()

    async def ask(self, number=1, rate=1_000, **wanted):
        log = self.world.log
        end = (await log.positions(DLQ, LATEST))[PARTITION]
        start = (await log.positions(DLQ, EARLIEST))[PARTITION]
        redrive = Redrive(
            number=number,
            incarnation=7,
            rate_per_s=rate,
            requested_at_ms=self.world.clock.now_ms(),
            requested_by="me",
            ranges={"dc1": LetterRange(start, end)},
            letters=LetterFilter(**wanted),
        )
        self.board.ask(redrive)
        return redrive

    async def entries(self):
        log = self.world.log
        end = (await log.positions(DLQ, LATEST))[PARTITION]
        position = (await log.positions(DLQ, EARLIEST))[PARTITION]
        found = []
        async with log.reader(DLQ, {PARTITION: position}) as reader:
            while position < end:
                batch = await reader.next_batch(1_000, 10**9)
                found += [read_entry(record) for record in batch]
                position = batch[-1].offset + 1
        return found

    async def open(self):
        """The open letters by message, oldest first."""
        known = OpenLetters()
        found = [each for each in reversed(await self.entries()) if known.take(each)]
        return {each.value: each for each in reversed(found)}

    async def progress(self):
        group = redrive_group(self.world.live().name)
        commit = (await self.world.log.committed(group, DLQ)).get(PARTITION)
        return progress_of(commit, self.board.redrive)

    @property
    def bodies(self):
        return self.world.sender.bodies
