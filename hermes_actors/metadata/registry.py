"""One datacentre's metadata as its node sees it, and the actor that keeps it so.

`Metadata` is made once for each node and datacentre and never goes away; `Registry` is the actor
that reads the log into it and may be restarted: the old catalog goes on serving meanwhile.
"""

import random
from collections.abc import Sequence

import trio
from msgspec import Struct

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.errors import StartupError
from hermes_actors.log.base import (
    Log,
    LogUnavailable,
    OffsetOutOfRange,
    TopicSettings,
    UnknownTopic,
)
from hermes_actors.metadata.backoff import Backoff
from hermes_actors.metadata.catalog import Catalog, CatalogChange
from hermes_actors.metadata.commands import (
    METADATA_TOPIC,
    TOPIC_RECORD_BYTES_MAX,
    Change,
    LogCreated,
    Outcome,
    encode,
)
from hermes_actors.metadata.comparison import holds_the_same
from hermes_actors.metadata.pending import OutcomeUnknown, PendingChanges
from hermes_actors.metadata.state import Folded, Register, State
from hermes_actors.metadata.watch import Watch
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import Clock, IdSource

__all__ = ["Health", "Metadata", "OutcomeUnknown", "Refold", "Registry", "metadata_topic"]

_SETTINGS = TopicSettings(
    partitions=1, retention_ms=None, record_bytes_max=TOPIC_RECORD_BYTES_MAX, log_append_time=True
)
# About 20 µs for each register: a chunk stays far below what the loop may be held for.
_CHUNK = 100
_BATCH_RECORDS_MAX = 1_000
_BATCH_BYTES_MAX = 4_194_304


class Health(Struct, frozen=True):
    """Whether the catalog follows its log. `reason` says why not; "" when it does."""

    is_current: bool
    reason: str = ""


class Refold(Struct, frozen=True):
    """Ask the registry to read its log again from the beginning."""


def metadata_topic(namespace: str = "") -> str:
    """The log topic that holds the commands."""
    return f"{namespace}_{METADATA_TOPIC}" if namespace else METADATA_TOPIC


class Metadata:
    """The metadata of the datacentre whose log this is.

    `catalog` is always there to read, empty before the first fold; it is one object for ever.
    `standins` are other datacentres' metadata: while the own log has not been read yet and cannot
    be, the catalog shows the first of them that is current, so that a node can start.
    """

    def __init__(
        self,
        log: Log,
        *,
        clock: Clock,
        ids: IdSource,
        rng: random.Random,
        namespace: str = "",
        standins: "tuple[Metadata, ...]" = (),
        pending_max: int = 1_000,
    ) -> None:
        self.log = log
        self.topic = metadata_topic(namespace)
        self.namespace = namespace
        self.standins = standins
        self.catalog = Catalog(namespace)
        self.clock = clock
        self.ids = ids
        self.rng = rng
        self._state = State()
        self._is_installed = False
        self._shown: dict[str, Register] = {}
        self._showing = trio.Lock()
        self._watches: list[Watch] = []
        self._pending = PendingChanges(log, self.topic, clock, rng, pending_max)
        self._problems: dict[str, str] = {"fold": "the metadata log has not been read yet"}
        self._changed_health = trio.Event()

    @property
    def dc(self) -> str:
        """The datacentre whose metadata this is."""
        return self.log.dc

    @property
    def health(self) -> Health:
        """Whether the catalog follows its log now, and if not why."""
        reason = "; ".join(self._problems.values())
        return Health(not reason, reason)

    @property
    def is_current(self) -> bool:
        """True while the log is being followed: read to its end, and answering."""
        return not self._problems

    @property
    def is_readable(self) -> bool:
        """True once the catalog shows a whole state: the own log's, or a stand-in's."""
        return self._is_installed or bool(self._shown)

    @property
    def state(self) -> State:
        """The fold behind the catalog: its position, digest, and what was copied."""
        return self._state

    def register(self, key: str) -> Register | None:
        """What a key holds (perhaps a tombstone), for kinds that the catalog does not know."""
        return self._shown.get(key)

    async def wait_current(self) -> None:
        """Wait until the catalog follows its log."""
        await trio.lowlevel.checkpoint()
        while not self.is_current:
            await self._changed_health.wait()

    async def wait_readable(self) -> None:
        """Wait until the catalog shows a whole state."""
        await trio.lowlevel.checkpoint()
        while not self.is_readable:
            await self._changed_health.wait()

    async def change(
        self, change: Change, *, timeout_s: float = 10.0, command_id: str | None = None
    ) -> Outcome:
        """Append the change and wait until the own fold has reached it: Accepted or Rejected.

        When it returns, `catalog` shows the outcome. Give the `command_id` of an OutcomeUnknown to
        repeat that change safely. Raises Refused (the log will never take it: too large, or not
        a valid change), OutcomeUnknown after `timeout_s`, or Unavailable when certainly nothing
        was stored.
        """
        if command_id is None:
            command_id = self.ids.message_id()
        return await self._pending.change(
            change, command_id, timeout_s, lambda: self._state if self._is_installed else None
        )

    def watch(self) -> Watch:
        """The whole state as changes, then each difference. Close it, or use `with`."""
        watch = Watch(self.catalog, self._watches.remove)
        self._watches.append(watch)
        return watch

    # What follows is for the registry.

    def report(self, part: str, problem: str) -> None:
        """A part of the following has this problem now, or ("") none."""
        if self._problems.get(part, "") == problem:
            return
        if problem:
            self._problems[part] = problem
        else:
            del self._problems[part]
        self._notify_health()

    def show(self, folded: Folded) -> None:
        """Take over what one record changed, and answer whoever waits for its outcome."""
        if folded.changed is not None:
            self._shown[folded.changed.key] = folded.changed
            self._tell(self.catalog.apply(folded.changed))
        if folded.outcome is not None:
            self._pending.complete(folded.command_id, folded.outcome)

    async def install(self, state: State) -> None:
        """From now on this is the state; watchers get the true differences only."""
        async with self._showing:
            await self._show_all(state.registers)
            self._state = state
            self._is_installed = True
        self._pending.complete_from(state)
        self._notify_health()

    async def stand_in(self) -> bool:
        """While the own log has not been read, show a stand-in's state; False once it has been."""
        async with self._showing:
            if self._is_installed:
                return False
            for standin in self.standins:
                if standin.is_current:
                    await self._show_all(dict(standin.state.registers))
                    self._notify_health()
                    break
        return True

    async def _show_all(self, registers: dict[str, Register]) -> None:
        for count, key in enumerate([key for key in self._shown if key not in registers]):
            del self._shown[key]
            self._tell(self.catalog.forget(key))
            await _yield_each_chunk(count)
        for count, register in enumerate(registers.values()):
            if self._shown.get(register.key) != register:
                self._shown[register.key] = register
                self._tell(self.catalog.apply(register))
            await _yield_each_chunk(count)

    def _tell(self, changes: list[CatalogChange]) -> None:
        for change in changes:
            for watch in self._watches:
                watch.note(change)

    def _notify_health(self) -> None:
        self._changed_health.set()
        self._changed_health = trio.Event()


class _MustRefold(Exception):
    """What was folded is not what the log holds."""


class Registry:
    """Reads the log into one Metadata. Make a new one for each start.

    Each `verify_interval_s` it checks that the log answers and still holds what was folded last;
    a log that shrank, was made anew, or contradicts what other writers saw is folded again.
    """

    def __init__(
        self, metadata: Metadata, *, verify_interval_s: float = 5.0, answer_timeout_s: float = 5.0
    ) -> None:
        self._metadata = metadata
        self._log = metadata.log
        self._topic = metadata.topic
        self._verify_interval_s = verify_interval_s
        self._answer_timeout_s = answer_timeout_s
        self._state = State()
        self._is_following = False
        self._must_refold = False
        self._tailing = trio.CancelScope()
        self._backoff = Backoff(metadata.rng)
        self._fatal: StartupError | None = None

    async def run(self, inbox: Inbox[Refold]) -> None:
        """Follow the log until asked to stop. Raises StartupError if it is another DC's log."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follow, nursery.cancel_scope)
                nursery.start_soon(self._verify)
                nursery.start_soon(self._stand_in)
                async for _ in inbox:
                    self._refold()
                nursery.cancel_scope.cancel()
        finally:
            self._metadata.report("fold", "the metadata registry is not running")
            self._metadata.report("log", "")
        if self._fatal is not None:
            raise self._fatal

    def _refold(self) -> None:
        self._must_refold = True
        self._tailing.cancel()

    async def _follow(self, all_of_it: trio.CancelScope) -> None:
        report = self._metadata.report
        while self._fatal is None:
            if self._must_refold:
                self._must_refold = False
                self._state = State()
            with trio.CancelScope() as self._tailing:
                try:
                    await self._tail()
                except (_MustRefold, OffsetOutOfRange, UnknownTopic) as error:
                    self._must_refold = True
                    report("fold", f"the metadata log is read again: {error}")
                except LogUnavailable as error:
                    report("fold", f"the metadata log is unavailable: {error}")
                except trio.TooSlowError:
                    report("fold", "the metadata log does not answer")
            self._is_following = False
            await trio.sleep(self._backoff.next_s())
        all_of_it.cancel()

    async def _tail(self) -> None:
        """Fold from the state's position on, for ever."""
        log, metadata, state = self._log, self._metadata, self._state
        with trio.fail_after(self._answer_timeout_s):
            if await log.describe_topic(self._topic) is None:
                await log.create_topic(self._topic, _SETTINGS)
            end = (await log.end_positions(self._topic))[0]
            start = (await log.start_positions(self._topic))[0]
        if state.position > end:
            raise _MustRefold(f"it ends at {end}, {state.position} was read already")
        async with log.reader(self._topic, {0: max(state.position, start)}) as reader:
            while True:
                if max(state.position, start) >= end and not self._is_following:
                    if not state.log_id:
                        await self._create_log_id()
                        end += 1
                    else:
                        await self._start_following(state)
                batch = await reader.next_batch(_BATCH_RECORDS_MAX, _BATCH_BYTES_MAX)
                for at in range(0, len(batch), _CHUNK):
                    self._fold(batch[at : at + _CHUNK], settled_below=end)
                    await trio.lowlevel.checkpoint()
                if state.dc and state.dc != metadata.dc:
                    self._fatal = StartupError(
                        f"dc: the metadata log belongs to datacentre '{state.dc}', this node is "
                        f"configured as '{metadata.dc}'; give it its own log or the right name"
                    )
                    return

    async def _create_log_id(self) -> None:
        """Several nodes may do this at once: the first record counts."""
        metadata = self._metadata
        command = LogCreated(metadata.ids.message_id(), metadata.dc)
        record = encode(command, metadata.clock.now_ms())
        with trio.fail_after(self._answer_timeout_s):
            await self._log.append(self._topic, 0, [record], Ack.ALL)
            end = (await self._log.end_positions(self._topic))[0]
        if end <= self._state.position:
            raise LogUnavailable("its first record could not be written")

    async def _start_following(self, state: State) -> None:
        if state is not self._metadata.state:
            await self._metadata.install(state)
        self._is_following = True
        self._backoff.reset()
        self._metadata.report("fold", "")
        self._metadata.report("log", "")

    def _fold(self, records: Sequence[StoredRecord], settled_below: int) -> None:
        for record in records:
            folded = self._state.fold(record)
            if self._state is self._metadata.state:
                self._metadata.show(folded)
            # What was in the log before this reading began has been read as it is now.
            if folded.contradicts and record.offset >= settled_below:
                raise _MustRefold(f"the writer of {record.offset} had read something else")

    async def _verify(self) -> None:
        metadata = self._metadata
        while True:
            await trio.sleep(self._verify_interval_s)
            if not self._is_following:
                continue
            try:
                with trio.fail_after(self._answer_timeout_s):
                    is_same = await holds_the_same(self._log, self._topic, self._state)
            except trio.TooSlowError:
                metadata.report("log", "the metadata log does not answer")
            except LogUnavailable as error:
                metadata.report("log", f"the metadata log is unavailable: {error}")
            else:
                metadata.report("log", "")
                if not is_same:
                    self._refold()

    async def _stand_in(self) -> None:
        # The own log has a second's start; a healthy one needs far less.
        while True:
            await trio.sleep(1.0)
            if not await self._metadata.stand_in():
                return


async def _yield_each_chunk(count: int) -> None:
    if count % _CHUNK == _CHUNK - 1:
        await trio.lowlevel.checkpoint()
