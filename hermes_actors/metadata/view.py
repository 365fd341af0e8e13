"""One datacentre's metadata for the other parts of its node: reading, watching, changing."""

import random
from collections.abc import Sequence

import trio
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.log.base import Log
from hermes_actors.metadata.audit import (
    BROKER,
    Author,
    log_change,
    log_overruled,
    present_author,
)
from hermes_actors.metadata.bodies import with_unknown
from hermes_actors.metadata.catalog import Catalog, CatalogChange
from hermes_actors.metadata.commands import METADATA_TOPIC, Accepted, Change, ChangeOutcome
from hermes_actors.metadata.keys import parse_key, topic_key
from hermes_actors.metadata.pending import PendingChanges, record_of
from hermes_actors.metadata.state import Folded, MetadataState, Register
from hermes_actors.metadata.trail import Entry, Place, Trail
from hermes_actors.metadata.watch import Watch
from hermes_actors.model.names import TopicName
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.clock import Clock, IdSource

CHUNK = 50
"""Registers between two yields: about 70 µs each to fold and decode, 3.5 ms in total (measured)."""
COMPARED_AT_ONCE = 1_000


class Health(Struct, frozen=True):
    """Whether the catalog follows its log. `reason` says why not; empty string if it does."""

    is_current: bool
    reason: str = ""


def metadata_topic(namespace: str = "") -> str:
    """The log topic with the metadata commands."""
    return f"{namespace}_{METADATA_TOPIC}" if namespace else METADATA_TOPIC


class Metadata:
    """The metadata of one datacentre.

    `catalog` is always readable, empty before the first fold, and always the same object.
    `standins` is the metadata of other datacentres: until the own log can be read for the first
    time, the catalog shows the first stand-in that is current, so that a node can start. `node` is
    the name of this node. `entries_max` is how many changes `trail` keeps.
    """

    def __init__(
        self,
        log: Log,
        *,
        clock: Clock,
        ids: IdSource,
        rng: random.Random,
        namespace: str = "",
        node: str = "",
        standins: "tuple[Metadata, ...]" = (),
        pending_max: int = 1_000,
        entries_max: int = 0,
    ) -> None:
        self.log = log
        self.topic = metadata_topic(namespace)
        self.namespace = namespace
        self.standins = standins
        self.catalog = Catalog(namespace)
        self.clock = clock
        self.ids = ids
        self.rng = rng
        self._broker = Author(BROKER, node)
        self.entries_max = entries_max
        self.trail = Trail(entries_max)
        self._noted = trio.Event()
        self._state = MetadataState()
        self._is_installed = False
        # By datacentre: what the own log may lack of its changes, and until when the node waits for
        # that.
        self._behind: dict[str, tuple[str, float]] = {}
        self._shown: dict[str, Register] = {}
        self._showing = trio.Lock()
        self.refolds = 0
        self.last_refold = ""
        self._refolded = trio.Event()
        self._watches: list[Watch] = []
        self._pending = PendingChanges(log, self.topic, clock, rng, pending_max)
        self._problem = "the metadata log has not been read yet"
        self._changed_health = trio.Event()

    @property
    def dc(self) -> str:
        """The datacentre whose metadata this is."""
        return self.log.dc

    @property
    def health(self) -> Health:
        """Whether the catalog follows its log now, and if not, why."""
        return Health(not self._problem, self._problem)

    @property
    def is_current(self) -> bool:
        """True while the log is being followed: read to its end, and answering."""
        return not self._problem

    @property
    def is_readable(self) -> bool:
        """True once the catalog shows a whole state: from the own log or a stand-in."""
        return self._is_installed or bool(self._shown)

    @property
    def is_own(self) -> bool:
        """True once the own log has been read to its end; before that the catalog may show a
        stand-in.
        """
        return self._is_installed

    @property
    def behind(self) -> str:
        """Why the catalog may lack changes that other datacentres hold; empty string if nothing
        suggests it.

        This is limited in time: after that the node continues with what it has, and `lacking`
        reports it.
        """
        return self._told_of_behind(is_over=False)

    @property
    def lacking(self) -> str:
        """As `behind`, for changes that the node no longer waits for."""
        return self._told_of_behind(is_over=True)

    def doubt_about(self, topic: str) -> str:
        """Why `group.topic`, which is not in the catalog, may exist; empty string if nothing
        suggests it.
        """
        behind = self.behind
        if behind:
            return behind
        group, _, name = topic.rpartition(".")
        if unknown := self.catalog.undecodable.get(topic_key(TopicName(group, name))):
            return f"this version cannot decode its settings, a newer one may: {unknown}"
        for standin in self.standins:
            live = standin.catalog.topics.get(topic)
            if live is None:
                continue
            there = standin.register(topic_key(live.name))
            if there is not None and there.supersedes(self.register(there.key)):
                return f"{standin.dc} has it, and its creation is on its way to {self.dc}"
        return ""

    def has_ended(self, topic: str, incarnation: int) -> bool:
        """True if this incarnation of `group.topic` has been deleted. Absence proves nothing: a log
        may have lost the topic, or not have received it yet.
        """
        register = self.register(topic_key(TopicName.parse(topic)))
        return register is not None and register.incarnation > incarnation

    @property
    def state(self) -> MetadataState:
        """The fold behind the catalog: its position, its digest, and what was copied."""
        return self._state

    def notices(self) -> list[str]:
        """Notices for an operator about the log, which the catalog follows nevertheless; often
        none.
        """
        notices: list[str] = []
        last = self._state.last_undecodable
        if last is not None:
            notices.append(
                f"{self._state.undecodable} commands of the metadata log of {self.dc} had no "
                f"effect, because this version cannot decode them; the last, at {last.offset}: "
                f"{last.reason}"
            )
        if self.refolds:
            notices.append(
                f"the metadata log of {self.dc} was read again {self.refolds} times; "
                f"the last time because {self.last_refold}"
            )
        return notices

    def register(self, key: str) -> Register | None:
        """Return a key's register (perhaps a tombstone), of any kind."""
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

    async def wait_own(self) -> None:
        """Wait until the own log has been read to its end."""
        await trio.lowlevel.checkpoint()
        while not self.is_own:
            await self._changed_health.wait()

    async def wait_noted(self, after: Place) -> None:
        """Wait until the trail has an entry after that place."""
        await trio.lowlevel.checkpoint()
        while self.trail.last <= after:
            await self._noted.wait()

    async def wait_refolded(self, refolds: int) -> None:
        """Wait until the log has been read again more than `refolds` times in total."""
        await trio.lowlevel.checkpoint()
        while self.refolds <= refolds:
            await self._refolded.wait()

    async def change(
        self, change: Change, *, timeout_s: float = 10.0, command_id: str | None = None
    ) -> ChangeOutcome:
        """Append the change and wait until the own fold has reached it. Returns Accepted or
        Rejected.

        The record names the author: the present one, or else this node. When it returns, `catalog`
        shows the outcome. To repeat a change safely after OutcomeUnknown, pass its `command_id`.
        Raises Refused (the log will never accept it: too large or invalid), OutcomeUnknown after
        `timeout_s`, or Unavailable if nothing was stored.
        """
        if command_id is None:
            command_id = self.ids.message_id()
        author, before = present_author() or self._broker, self.register(change.key)
        if before is not None and before.body is not None and change.body is not None:
            kind = parse_key(change.key).kind
            change = replace(change, body=with_unknown(kind, before.body, change.body))
        outcome = await self._pending.change(
            change,
            command_id,
            author,
            timeout_s,
            lambda: self._state if self._is_installed else None,
        )
        if isinstance(outcome, Accepted):
            log_change(author, change.key, None if before is None else before.body, change.body)
        return outcome

    def rehearsal(self) -> "Metadata":
        """A copy in which changes take effect at once, but are not written. It does not follow the
        log.
        """
        copy = _Rehearsal(
            self.log, clock=self.clock, ids=self.ids, rng=self.rng, namespace=self.namespace
        )
        copy.catalog, copy._state = self.catalog.branch(), self._state.branch()
        copy._shown = dict(self._shown)
        copy._is_installed, copy._problem = self._is_installed, self._problem
        return copy

    def watch(self) -> Watch:
        """Watch the whole state as changes, then each difference. Close it, or use `with`."""
        watch = Watch(self.catalog, self._watches.remove)
        self._watches.append(watch)
        return watch

    def _told_of_behind(self, *, is_over: bool) -> str:
        if not self._behind:
            return ""
        now_s = self.clock.monotonic_s()
        return "; ".join(
            text for text, until_s in self._behind.values() if (until_s <= now_s) is is_over
        )

    # For the registry.

    def report_behind(self, dc: str, text: str, until_s: float) -> None:
        """Record what the own log may lack of that datacentre's changes; empty string if it lacks
        nothing. The node waits for it until `until_s` (monotonic).
        """
        if text:
            self._behind[dc] = (text, until_s)
        else:
            self._behind.pop(dc, None)

    def report(self, problem: str) -> None:
        """Record why the log is not followed now; empty string if it is."""
        if problem != self._problem:
            self._problem = problem
            self._notify_health()

    def note_refold(self, reason: str) -> None:
        """Record that the log no longer holds what was folded, and is read from its beginning."""
        self.refolds += 1
        self.last_refold = reason
        self._refolded.set()
        self._refolded = trio.Event()

    def show(self, folded: Folded, entries: Sequence[Entry] = ()) -> None:
        """Apply one record's change, and complete the pending change that it answers. `entries` are
        those that the record added to the trail.
        """
        if folded.changed is not None:
            self._shown[folded.changed.key] = folded.changed
            self._tell(self.catalog.apply(folded.changed))
        if folded.outcome is not None:
            self._pending.complete(folded.command_id, folded.outcome)
        for entry in entries:
            if entry.winner is not None and entry.dc == self.dc:
                log_overruled(entry.key, entry.author, entry.winner.author, entry.winner.dc)
        if entries:
            self._notify_noted()

    async def install(self, state: MetadataState, trail: Trail) -> None:
        """Use the state that was folded from the own log; watchers get only the real
        differences.
        """
        async with self._showing:
            await self._show_all(state.registers)
            self._state, self.trail = state, trail
            self._is_installed = True
        self._pending.complete_from(state)
        self._notify_health()
        self._notify_noted()

    async def stand_in(self) -> bool:
        """Show a stand-in's state until the own log has been read. False once it has been."""
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

    def _notify_noted(self) -> None:
        self._noted.set()
        self._noted = trio.Event()

    def _notify_health(self) -> None:
        self._changed_health.set()
        self._changed_health = trio.Event()


async def _yield_each_chunk(count: int) -> None:
    if count % CHUNK == CHUNK - 1:
        await trio.lowlevel.checkpoint()


class _Rehearsal(Metadata):
    async def change(
        self, change: Change, *, timeout_s: float = 10.0, command_id: str | None = None
    ) -> ChangeOutcome:
        now_ms, command_id = self.clock.now_ms(), command_id or self.ids.message_id()
        record = record_of(change, command_id, self._state, now_ms)
        place = self._state.position
        folded = self._state.fold(StoredRecord(0, place, now_ms, record.key, record.value, ()))
        self.show(folded)
        await trio.lowlevel.checkpoint()
        assert folded.outcome is not None, "the command is new, and was decodable"
        return folded.outcome


async def lacking_in(own: Metadata, registers: Sequence[Register]) -> list[Register]:
    """Return the registers that the own datacentre lacks or has in an older version. Other tasks
    run meanwhile.
    """
    lacking: list[Register] = []
    for count, register in enumerate(registers):
        if register.supersedes(own.register(register.key)):
            lacking.append(register)
        if count % COMPARED_AT_ONCE == COMPARED_AT_ONCE - 1:
            await trio.lowlevel.checkpoint()
    return lacking
