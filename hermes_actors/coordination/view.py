"""One datacentre's coordination, as the other parts of a node read and watch it."""

from collections.abc import Callable, Sequence

import trio
from msgspec import Struct

from hermes_actors.coordination.commands import Heartbeat, Said, coordination_topic
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import Changed
from hermes_actors.log.base import Log
from hermes_actors.log.watch import FoldWatch
from hermes_actors.model.record import StoredRecord


def _ignore(_names: Sequence[str] = ()) -> None:
    return


class ViewChanges(Struct, frozen=True):
    """The changes since the watcher's last look.

    `subscriptions` (sorted): their targets, grants or usable shares may have changed. `members`: a
    node joined or went.
    """

    subscriptions: tuple[str, ...]
    members: bool


class CoordinationWatch(FoldWatch):
    """Reports changes of members and ownership to one task, first the whole state.

    A context manager: `with coordination.watch() as watch`.
    """

    def __init__(
        self,
        state: CoordinationState,
        on_close: Callable[["CoordinationWatch"], None],
        on_change: Callable[[Sequence[str]], None],
    ) -> None:
        super().__init__(on_close)
        self._on_change = on_change
        self._names: dict[str, None] = {}
        self._members = self._is_other = False
        self.begin_anew(state)

    def note(self, changed: Changed) -> None:
        """Record a change; called by the fold."""
        self._names.update(dict.fromkeys(changed.subscriptions))
        self._members |= changed.members
        self._is_other |= changed.leader
        self._on_change(changed.subscriptions)
        self._wakeup.set()

    def begin_anew(self, state: CoordinationState) -> None:
        """Record that the state was replaced; called by the fold."""
        self._names.update(dict.fromkeys(state.subscriptions))
        self._members = True
        self._wakeup.set()

    @property
    def has_changes(self) -> bool:
        """True if there are changes to take."""
        return bool(self._names or self._members or self._is_other)

    def take_nowait(self) -> ViewChanges:
        """Return all changes since the last call; may be empty."""
        seen = ViewChanges(tuple(sorted(self._names)), self._members)
        self._names = {}
        self._members = self._is_other = False
        return seen


class Coordination:
    """The folded coordination log of one datacentre.

    Created once for each node; its reader may be restarted. `state` is always readable, but is
    replaced when the log turns out to be another one (`generation` counts that). It follows the log
    only while `is_current`; otherwise nothing may be decided or started because of it.
    """

    def __init__(self, log: Log, namespace: str = "") -> None:
        self.log = log
        self.topic = coordination_topic(namespace)
        self.state = CoordinationState()
        self.generation = 0
        self.undecodable = 0
        """Number of records that this version cannot decode."""
        self.last: StoredRecord | None = None
        """The record folded last; None if there was none since a snapshot."""
        self.has_listened = False
        """True if the reader listened to a cut log for the length of a lease before this state was
        used.
        """
        self._trouble = "the coordination log has not been read yet"
        self._changed_health = trio.Event()
        self._watches: list[CoordinationWatch] = []
        self._lease: Lease | None = None
        self._was_member = False
        self._on_doubt: Callable[[], None] = _ignore

    @property
    def dc(self) -> str:
        """The datacentre of this coordination log."""
        return self.log.dc

    @property
    def is_current(self) -> bool:
        """True while the log is being followed: read to its end, and answering."""
        return not self._trouble

    @property
    def trouble(self) -> str:
        """Why the log is not followed; empty string while it is."""
        return self._trouble

    async def wait_current(self) -> None:
        """Wait until the log is being followed."""
        await trio.lowlevel.checkpoint()
        while self._trouble:
            await self._changed_health.wait()

    async def until(self, condition: Callable[[CoordinationState], bool]) -> None:
        """Wait until the condition holds for the state. It is checked after each change."""
        await trio.lowlevel.checkpoint()
        with self.watch() as watch:
            while not condition(self.state):
                await watch.wait()
                watch.take_nowait()

    def watch(self, on_change: Callable[[Sequence[str]], None] = _ignore) -> CoordinationWatch:
        """Watch the whole state as a first change, then each change. Close the watch, or use
        `with`.

        `on_change` is called with the subscriptions that a record changes, while the record is
        folded: so it runs before a later heartbeat opens the lease. It must be quick.
        """
        watch = CoordinationWatch(self.state, self._watches.remove, on_change)
        self._watches.append(watch)
        return watch

    def hold(self, lease: Lease | None) -> None:
        """Use this lease: the node's own heartbeats open it. It is lost at the moment when a record
        shows that its member is gone, or the log is another one.
        """
        self._lease = lease
        self._was_member = False

    def doubt(self, trouble: str) -> None:
        """Lose the lease at once, and stop following until the reader has checked: the log does not
        seem to be the one that was read.
        """
        self.lose_lease()
        self.report(f"the coordination log is doubted: {trouble}")
        self._on_doubt()

    # For the reader.

    def lose_lease(self) -> None:
        """Lose the held lease, because its log is no longer known. If the node continued with it,
        new readers would see a stranger, and they wait until no stranger is active.
        """
        if self._lease is not None:
            self._lease.lose()

    def fold(self, stored: StoredRecord, said: Said | None) -> None:
        """Fold one record, and notify the watches."""
        state, lease = self.state, self._lease
        if said is None:
            self.undecodable += 1
        changed = state.apply(stored.offset, stored.timestamp_ms, said)
        self.last = stored
        if changed:
            for watch in self._watches:
                watch.note(changed)
        if lease is None:
            return
        if lease.boot in state.members:
            self._was_member = True
            if isinstance(said, Heartbeat) and said.boot == lease.boot:
                lease.folded(said.number)
        elif self._was_member:
            lease.lose()

    def begin_anew(
        self, state: CoordinationState, last: StoredRecord | None, *, has_listened: bool = False
    ) -> None:
        """Replace the state, and lose the lease: the log is another one, or is read for the first
        time.
        """
        self.has_listened = has_listened
        self.lose_lease()
        self.state = state
        self.last = last
        self.generation += 1
        for watch in self._watches:
            watch.begin_anew(state)

    def ask_when_doubted(self, look: Callable[[], None]) -> None:
        """Call `look` when the log is doubted."""
        self._on_doubt = look

    def report(self, trouble: str) -> None:
        """Record why the log is not followed; empty string if it is."""
        if trouble != self._trouble:
            self._trouble = trouble
            self._changed_health.set()
            self._changed_health = trio.Event()
