"""Retransmission: moves a subscription to other offsets of its topic, in all datacentres."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import trio
from msgspec import Meta, Struct

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.log.base import EARLIEST, LATEST, Commit, Log
from hermes_actors.log.commits import decode
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.decoding import decode_plain
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.changes import Changes
from hermes_actors.management.offsets.asking import Logs
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.commands import Alive, Change, put
from hermes_actors.metadata.keys import seek_key, subscription_key
from hermes_actors.metadata.registry import Metadata
from hermes_actors.metadata.seek import SeekBody, seek_body
from hermes_actors.model.moments import FORMS, is_of_some_zone, moment_ms
from hermes_actors.model.subscription import SubscriptionState
from hermes_actors.runtime.clock import Clock

_END_MS = 2**53
_Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]

Positions = dict[str, dict[int, int]]
"""Datacentre → partition → offset."""


class Place(StrEnum):
    """The ends of a topic."""

    START = "start"
    END = "end"


class Retransmission(Struct, frozen=True, kw_only=True, rename="camel"):
    """The request to move a subscription. Exactly one field must be set."""

    retransmission_date: str | None = None
    to: Place | None = None
    offsets: dict[str, dict[int, _Offset]] | None = None


class Moment(Struct, frozen=True):
    """The first record at or after a time, in all datacentres. `is_end`: after the last record."""

    time_ms: int
    is_end: bool = False


def target_of(body: Mapping[str, Any], now_ms: int) -> Moment | Positions:
    """Decode the target of a retransmission; `now_ms` is for relative dates. Positions move only
    the partitions that they name. Raises Refused: 400.
    """
    asked = decode_plain(Retransmission, body)
    given = [way for way in ("retransmissionDate", "to", "offsets") if body.get(way) is not None]
    if len(given) != 1:
        found = f"it has {' and '.join(given)}" if given else "it has none of them"
        raise Refused(
            'The body needs one of {"retransmissionDate": "2030-01-31T12:00:00Z"}, '
            '{"to": "start"}, {"to": "end"} and {"offsets": {datacentre: {partition: offset}}}; '
            f"{found}"
        )
    if asked.to is not None:
        return Moment(_END_MS, is_end=True) if asked.to is Place.END else Moment(0)
    if asked.retransmission_date is not None:
        return _at_date(asked.retransmission_date, now_ms)
    positions = {dc: at for dc, at in (asked.offsets or {}).items() if at}
    if not positions:
        raise Refused("offsets names no partition, so nothing would be moved")
    return positions


def _at_date(date: str, now_ms: int) -> Moment:
    try:
        time_ms = moment_ms(date, now_ms)
    except ValueError as error:
        raise Refused(
            f"retransmissionDate '{date}' is not {FORMS}", ErrorCode.FORMAT_ERROR
        ) from error
    if is_of_some_zone(date):
        raise Refused(
            f"retransmissionDate '{date}' has no time zone; add one, for example "
            "2030-01-31T12:00:00Z",
            ErrorCode.FORMAT_ERROR,
        )
    return Moment(time_ms)


TAKEN_UP_WITHIN_S = 30.0
"""How long a caller waits for the consumers to move."""

_POLL_FIRST_S = 0.02
_POLL_MAX_S = 0.5


class Retransmissions:
    """Moves subscriptions in their topics. All methods are trio coroutines."""

    def __init__(
        self,
        metadata: Metadata,
        logs: Logs,
        changes: Changes,
        subscriptions: Subscriptions,
        clock: Clock,
    ) -> None:
        self._metadata = metadata
        self._logs = logs
        self._changes = changes
        self._subscriptions = subscriptions
        self._clock = clock

    async def move(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any], dry_run: bool = False
    ) -> dict[str, Any]:
        """Move a subscription in its topic. Returns the new offsets in each datacentre, as Hermes
        does.

        With `dry_run` nothing moves. A datacentre whose log does not answer has no offsets in the
        answer; a time is resolved there when its log is back. Returns when the consumers in all
        other datacentres have moved. Raises Refused; and Unavailable with
        UNABLE_TO_MOVE_OFFSETS_EXCEPTION if they have not within TAKEN_UP_WITHIN_S: the
        retransmission is stored nevertheless, and they will move later.
        """
        live = self._subscriptions.owned(caller, topic, name, "move the offsets of subscription")
        return await self._move(live, target_of(body, self._clock.now_ms()), dry_run)

    async def move_to_the_end(self, topic: str, name: str) -> dict[str, Any]:
        """Skip all messages. Old versions of Hermes have only this."""
        return await self._move(
            self._subscriptions.live(topic, name), target_of({"to": "end"}, self._clock.now_ms())
        )

    async def _move(
        self, live: LiveSubscription, target: Moment | Positions, dry_run: bool = False
    ) -> dict[str, Any]:
        topic = self._metadata.catalog.topics[str(live.name.topic)]
        if topic.topic.is_in_memory:
            raise Refused(
                f"Topic {topic.name} has durability PERFORMANCE: its messages are in memory only, "
                "and cannot be delivered again",
                ErrorCode.OTHER,
                status=409,
            )
        log_topic = topic.log_topic
        # Taken first, so that messages published meanwhile are not skipped in a silent datacentre.
        now_ms = self._clock.now_ms()
        positions, unreached = await self._resolve(target, log_topic)
        answer = {
            self._logs.cluster(dc): [
                {"topic": {"value": log_topic}, "partition": partition, "offset": offset}
                for partition, offset in sorted(positions.get(dc, {}).items())
            ]
            for dc in self._logs.datacenters
        }
        if not dry_run:
            time_ms = min(target.time_ms, now_ms) if isinstance(target, Moment) else None
            await self._write(live, positions, time_ms)
            reached = {dc: at for dc, at in positions.items() if at and dc not in unreached}
            await self._wait(live, log_topic, reached)
        return answer

    async def _resolve(
        self, target: Moment | Positions, log_topic: str
    ) -> tuple[Positions, set[str]]:
        """The offsets to move to, and the datacentres whose logs did not answer."""
        if isinstance(target, Moment):
            answers = await self._logs.ask(lambda log: _at(log, log_topic, target))
            return answers.known, {*answers.silent}
        named = {self._logs.datacenter(name): offsets for name, offsets in target.items()}
        bounds = await self._logs.ask(lambda log: _bounds(log, log_topic), named)
        found = {dc: _within(dc, named[dc], held) for dc, held in bounds.known.items()}
        # Stored as requested: the consumers there keep within their log's bounds.
        asked = {dc: dict(named[dc]) for dc in bounds.silent}
        return found | asked, {*bounds.silent}

    async def _write(
        self, live: LiveSubscription, positions: Positions, time_ms: int | None
    ) -> None:
        seek = SeekBody(live.incarnation, live.topic_incarnation, positions, time_ms)

        def decide() -> Change:
            latest = self._subscriptions.live(str(live.name.topic), live.name.name)
            if (latest.incarnation, latest.topic_incarnation) != (
                live.incarnation,
                live.topic_incarnation,
            ):
                raise Unavailable(
                    f"Subscription {live.name} was deleted and created again meanwhile; try again"
                )
            if latest.state is SubscriptionState.PENDING:
                raise Refused(
                    f"Subscription {live.name} is PENDING: no consumer of it has started yet, so "
                    "there is nothing to move; wait until it is ACTIVE, or suspend it",
                    ErrorCode.MOVING_SUBSCRIPTION_OFFSETS_VALIDATION_ERROR,
                )
            return put(
                seek_key(live.name, live.incarnation),
                seek_body(seek),
                Alive(subscription_key(live.name), live.incarnation),
            )

        await self._changes.make(decide)

    async def _wait(self, live: LiveSubscription, log_topic: str, positions: Positions) -> None:
        """Wait until all of these partitions have a commit made after the retransmission."""
        latest = self._subscriptions.live(str(live.name.topic), live.name.name)
        if latest.incarnation != live.incarnation or latest.seek is None:
            # The subscription was removed meanwhile.
            return
        group, number = live.name.consumer_group(), latest.seek.number
        behind = dict(positions)
        pause_s = _POLL_FIRST_S
        with trio.move_on_after(TAKEN_UP_WITHIN_S):
            while behind:
                commits = await self._logs.ask(lambda log: log.committed(group, log_topic), behind)
                for dc, found in commits.known.items():
                    if all(_has_taken_up(found.get(each), live, number) for each in behind[dc]):
                        del behind[dc]
                if behind:
                    await trio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _POLL_MAX_S)
        if behind:
            raise Unavailable(
                f"The consumers of subscription {live.name} in {', '.join(behind)} have not "
                f"moved to the new offsets within {TAKEN_UP_WITHIN_S:.0f} s. The retransmission "
                "is recorded, and they move as soon as they can: see GET "
                f"/topics/{live.name.topic}/subscriptions/{live.name.name}/why and …/lag",
                ErrorCode.UNABLE_TO_MOVE_OFFSETS_EXCEPTION,
                status=None,
            )


async def _at(log: Log, log_topic: str, moment: Moment) -> dict[int, int]:
    if moment.is_end:
        return await log.positions(log_topic, LATEST)
    if moment.time_ms <= 0:
        return await log.positions(log_topic, EARLIEST)
    return await log.positions(log_topic, moment.time_ms)


async def _bounds(log: Log, log_topic: str) -> dict[int, tuple[int, int]]:
    starts = await log.positions(log_topic, EARLIEST)
    ends = await log.positions(log_topic, LATEST)
    return {partition: (start, ends.get(partition, start)) for partition, start in starts.items()}


def _within(
    dc: str, asked: Mapping[int, int], bounds: dict[int, tuple[int, int]]
) -> dict[int, int]:
    """The requested offsets of one datacentre, moved into the range that its log holds."""
    unknown = sorted(asked.keys() - bounds.keys())
    if unknown:
        raise Refused(
            f"offsets.{dc}: the topic has no partition {', '.join(map(str, unknown))} there; it "
            f"has 0 to {len(bounds) - 1}",
            ErrorCode.PARTITIONS_NOT_FOUND_FOR_TOPIC,
        )
    return {
        partition: min(max(offset, bounds[partition][0]), bounds[partition][1])
        for partition, offset in asked.items()
    }


def _has_taken_up(commit: Commit | None, live: LiveSubscription, number: int) -> bool:
    owner = None if commit is None else decode(commit).ownership
    if owner is None or owner.incarnation != live.incarnation:
        return False
    return owner.seek >= number
