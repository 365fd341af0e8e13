"""The register of a subscription's re-drive: which dead letters are delivered again, in which
datacentres, and how fast. Each subscription has at most one; a newer one replaces it.

Progress is not stored here: each datacentre's consumer commits it in its own log.
"""

import msgspec
import trio
from msgspec import Struct

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.base import Commit
from hermes_actors.metadata.bodies import UndecodableBody
from hermes_actors.metadata.catalog import Catalog, LiveSubscription, OtherChanged
from hermes_actors.metadata.keys import REDRIVE, life_key, parse_key
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.dead_letter import LetterFilter
from hermes_actors.model.names import REDRIVE_SUFFIX, SubscriptionName


class LetterRange(Struct, frozen=True):
    """Offsets of one datacentre's letters, from `start` to below `end`, fixed when the re-drive was
    requested. So letters that fail again are not picked up by the same re-drive.
    """

    start: int
    end: int


class Cancellation(Struct, frozen=True):
    """When a re-drive was cancelled, by whom, and in which datacentres it was to run."""

    at_ms: int
    by: str
    datacenters: tuple[str, ...]


class Redrive(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One re-drive. `incarnation` is the subscription's, `number` counts its re-drives.

    A cancelled one is kept to show its progress. It has no `ranges`, so that no node runs it,
    whatever its version.
    """

    number: int
    incarnation: int
    rate_per_s: int
    requested_at_ms: int
    requested_by: str
    ranges: dict[str, LetterRange]
    letters: LetterFilter = LetterFilter()
    cancelled: Cancellation | None = None

    @property
    def datacenters(self) -> list[str]:
        """Where it runs, or ran until it was cancelled; sorted."""
        return sorted(self.ranges if self.cancelled is None else self.cancelled.datacenters)

    def cancelled_by(self, caller: str, at_ms: int) -> "Redrive":
        """Return this re-drive cancelled: its datacentres are kept, its ranges removed."""
        cancellation = Cancellation(at_ms, caller, tuple(self.datacenters))
        return msgspec.structs.replace(self, ranges={}, cancelled=cancellation)


class RedriveProgress(Struct, omit_defaults=True):
    """The progress of a re-drive in one datacentre; stored as the metadata of its consumer's
    commit.

    `redriven` letters were delivered. `failed` ones were given up again; they are open, with the
    new cause. `skipped` ones could not be tried: their messages were too large to keep, and are no
    longer in the topic's log.
    """

    number: int
    requested_at_ms: int
    total: int = 0
    redriven: int = 0
    failed: int = 0
    skipped: int = 0
    is_done: bool = False


def redrive_key(name: SubscriptionName, incarnation: int = 0) -> str:
    """The key of the re-drive of this incarnation of a subscription."""
    return life_key(REDRIVE, name, incarnation)


def redrive_body(redrive: Redrive) -> bytes:
    """Encode a re-drive."""
    return msgspec.json.encode(redrive)


def decode_redrive(body: bytes) -> Redrive:
    """Decode a re-drive. Raises UndecodableBody."""
    try:
        return msgspec.json.decode(body, type=Redrive)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UndecodableBody(str(error)) from error


def redrive_of(catalog: Catalog, name: SubscriptionName, incarnation: int) -> Redrive | None:
    """The re-drive of this incarnation of a subscription; None if there is none, or it cannot be
    decoded.
    """
    register = catalog.others.get(redrive_key(name, incarnation))
    if register is None or register.body is None:
        return None
    try:
        redrive = decode_redrive(register.body)
    except UndecodableBody:
        return None
    return redrive if redrive.incarnation == incarnation else None


def redrive_group(name: SubscriptionName, namespace: str = "") -> str:
    """The consumer group in which the progress of a subscription's re-drives is committed."""
    return f"{name.consumer_group(namespace)}{REDRIVE_SUFFIX}"


def progress_metadata(progress: RedriveProgress) -> str:
    """Encode the progress as a commit's metadata."""
    return msgspec.json.encode(progress).decode()


def progress_of(commit: Commit | None, redrive: Redrive) -> RedriveProgress:
    """The progress of this re-drive; zero if the commit belongs to another one."""
    beginning = RedriveProgress(redrive.number, redrive.requested_at_ms)
    if commit is None:
        return beginning
    try:
        progress = msgspec.json.decode(commit.metadata, type=RedriveProgress)
    except (msgspec.MsgspecError, ValueError):
        return beginning
    # Numbers start again after a cancelled re-drive and when a subscription is created again.
    is_same = (progress.number, progress.requested_at_ms) == (
        redrive.number,
        redrive.requested_at_ms,
    )
    return progress if is_same else beginning


class FollowedRedrives:
    """The re-drives in a datacentre's metadata, and the actor that follows them. One for each
    node.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._changed = trio.Event()

    def find(self, live: LiveSubscription) -> Redrive | None:
        """The re-drive of this incarnation of a subscription, or None."""
        return redrive_of(self._metadata.catalog, live.name, live.incarnation)

    async def wait_changed(self) -> None:
        """Wait until any subscription's re-drive changes."""
        await self._changed.wait()

    async def run(self, stop: trio.Event) -> None:
        """Follow the metadata until asked to stop."""
        await run_until(stop, self._follow)

    async def _follow(self) -> None:
        with self._metadata.watch() as watch:
            while await watch.wait():
                changes = watch.take_nowait()
                if any(
                    isinstance(change, OtherChanged) and parse_key(change.key).kind == REDRIVE
                    for change in changes
                ):
                    self._changed.set()
                    self._changed = trio.Event()
