"""Re-drives: asked for here, kept in the metadata, done by the consumers of each datacentre."""

from collections.abc import Mapping
from typing import Any

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.log.base import UnknownTopic
from hermes_actors.log.letters import LetterBox
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.changes import Changes
from hermes_actors.management.dead_letters.letters import (
    COUNT_MAX,
    Letters,
    matching,
    with_unreachable,
)
from hermes_actors.management.dead_letters.selection import RedriveRequest, selection_in
from hermes_actors.management.status.statuses import Statuses
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.commands import Absent, Alive, Change, StampIs, delete, put
from hermes_actors.metadata.keys import subscription_key
from hermes_actors.metadata.redrives import (
    LetterRange,
    Redrive,
    RedriveProgress,
    progress_of,
    redrive_body,
    redrive_group,
    redrive_key,
    redrive_of,
)
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.moments import iso_ms
from hermes_actors.runtime.clock import Clock


class Redrives:
    """Each subscription has at most one re-drive. Methods are trio coroutines, the caller first."""

    def __init__(
        self,
        metadata: Metadata,
        letters: Letters,
        changes: Changes,
        statuses: Statuses,
        clock: Clock,
    ) -> None:
        self._metadata = metadata
        self._statuses = statuses
        self._letters = letters
        self._changes = changes
        self._clock = clock

    async def start(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Ask for a re-drive of the open letters that the body means; `dryRun` only counts them.

        Raises Refused: also while an earlier one is not done. Raises Unavailable.
        """
        live = self._letters.owned(caller, topic, name, "re-drive the dead letters")
        request = selection_in(RedriveRequest, body, "re-drive")
        wanted = request.filter(self._clock.now_ms())

        async def count(box: LetterBox) -> tuple[LetterRange, int, bool]:
            place = await box.place()
            found, is_whole = await matching(box, wanted, COUNT_MAX)
            span = LetterRange(0, 0) if place is None else LetterRange(place.start, place.end)
            return span, len(found), is_whole

        results, unreachable = await self._letters.ask(live, count)
        meant = {dc: result for dc, result in results.items() if result[1] or not result[2]}
        answer: dict[str, Any] = {
            "dryRun": request.dry_run,
            "matching": sum(result[1] for result in meant.values()),
            "isComplete": all(result[2] for result in meant.values()) and not unreachable,
            "ratePerSecond": request.rate_per_second,
            "datacenters": [
                {"datacenter": dc, "matching": result[1]} for dc, result in meant.items()
            ],
        }
        answer = with_unreachable(answer, unreachable, is_useless=not results)
        if request.dry_run:
            return answer
        if not meant:
            raise Refused(
                f"Subscription {live.name} has no open dead letters that are meant; "
                "nothing was asked for",
                ErrorCode.OTHER,
                404,
            )
        await self._require_none_running(live)
        ranges = {dc: result[0] for dc, result in meant.items()}
        numbers: list[int] = []

        def decide() -> Change:
            key = redrive_key(live.name, live.incarnation)
            held = self._metadata.catalog.others.get(key)
            before = redrive_of(self._metadata.catalog, live.name, live.incarnation)
            redrive = Redrive(
                number=1 if before is None else before.number + 1,
                incarnation=live.incarnation,
                rate_per_s=request.rate_per_second,
                requested_at_ms=self._clock.now_ms(),
                requested_by=caller.name,
                ranges=ranges,
                letters=wanted,
            )
            numbers.append(redrive.number)
            return put(
                key,
                redrive_body(redrive),
                Absent(key) if held is None else StampIs(key, held.stamp),
                Alive(subscription_key(live.name), live.incarnation),
            )

        await self._changes.make(decide)
        return {"number": numbers[-1], **answer}

    async def progress(self, caller: Caller, topic: str, name: str) -> dict[str, Any]:
        """How far the subscription's last re-drive has come. Raises Refused, 404 without one."""
        live = self._letters.owned(caller, topic, name, "see the re-drive")
        redrive = redrive_of(self._metadata.catalog, live.name, live.incarnation)
        if redrive is None:
            raise Refused(f"Subscription {live.name} has no re-drive", ErrorCode.OTHER, 404)
        known, silent = await self._progress(live, redrive)
        unknown = {str(each["datacenter"]): str(each["reason"]) for each in silent}
        return {
            "number": redrive.number,
            "requestedAt": iso_ms(redrive.requested_at_ms),
            "requestedBy": redrive.requested_by,
            "ratePerSecond": redrive.rate_per_s,
            "isDone": all(dc in known and known[dc].is_done for dc in redrive.datacenters),
            "total": sum(each.total for each in known.values()),
            "redriven": sum(each.redriven for each in known.values()),
            "failed": sum(each.failed for each in known.values()),
            "skipped": sum(each.skipped for each in known.values()),
            **_cancellation(redrive),
            "datacenters": [
                _progress_view(
                    dc,
                    known.get(dc),
                    self._reason(live, redrive, dc, unknown),
                    is_cancelled=redrive.cancelled is not None,
                )
                for dc in redrive.datacenters
            ],
        }

    def _reason(
        self, live: LiveSubscription, redrive: Redrive, dc: str, unknown: Mapping[str, str]
    ) -> str:
        """Why it does not go on there, as far as is known; "" when it does."""
        if dc not in self._letters.logs.datacenters:
            return "there is no such datacentre"
        if dc in unknown:
            return unknown[dc]
        if redrive.cancelled is not None:
            at = iso_ms(redrive.cancelled.at_ms, "seconds")
            return f"cancelled by {redrive.cancelled.by or 'nobody known'} at {at}"
        return self._statuses.hold_up(live, dc)

    async def cancel(self, caller: Caller, topic: str, name: str) -> None:
        """Stop the re-drive; what is under way still ends. Raises Refused, 404 without one."""
        live = self._letters.owned(caller, topic, name, "cancel the re-drive")

        def decide() -> Change:
            key = redrive_key(live.name, live.incarnation)
            held = self._metadata.catalog.others.get(key)
            if held is None:
                raise Refused(f"Subscription {live.name} has no re-drive", ErrorCode.OTHER, 404)
            redrive = redrive_of(self._metadata.catalog, live.name, live.incarnation)
            if redrive is None:
                # Of an earlier life of the subscription, or not to be read.
                return delete(key, StampIs(key, held.stamp))
            if redrive.cancelled is not None:
                raise Refused(
                    f"Re-drive {redrive.number} of subscription {live.name} was cancelled already",
                    ErrorCode.OTHER,
                    404,
                )
            cancelled = redrive.cancelled_by(caller.name, self._clock.now_ms())
            return put(
                key,
                redrive_body(cancelled),
                StampIs(key, held.stamp),
                Alive(subscription_key(live.name), live.incarnation),
            )

        await self._changes.make(decide)

    async def _require_none_running(self, live: LiveSubscription) -> None:
        redrive = redrive_of(self._metadata.catalog, live.name, live.incarnation)
        if redrive is None:
            return
        known, _ = await self._progress(live, redrive)
        running = [dc for dc in sorted(redrive.ranges) if dc in known and not known[dc].is_done]
        if running:
            raise Refused(
                f"Re-drive {redrive.number} of subscription {live.name} is not done in "
                f"{', '.join(running)}; wait for it, or cancel it (hermes dlq cancel)",
                ErrorCode.OTHER,
                409,
            )

    async def _progress(
        self, live: LiveSubscription, redrive: Redrive
    ) -> tuple[dict[str, RedriveProgress], list[dict[str, Any]]]:
        group = redrive_group(live.name, self._metadata.namespace)

        async def look(box: LetterBox) -> RedriveProgress:
            try:
                commits = await box.log.committed(group, box.topic)
            except UnknownTopic:
                commits = {}
            found = [progress_of(commit, redrive) for commit in commits.values()]
            # The letters of one subscription lie in one partition.
            return max(found, key=lambda each: each.total, default=progress_of(None, redrive))

        there_are = self._letters.logs.datacenters
        asked = [dc for dc in redrive.datacenters if dc in there_are]
        return await self._letters.ask(live, look, asked)


def _progress_view(
    dc: str, progress: RedriveProgress | None, reason: str, *, is_cancelled: bool
) -> dict[str, Any]:
    if progress is None:
        return {"datacenter": dc, "state": "UNKNOWN", "reason": reason}
    state = "DONE" if progress.is_done else "RUNNING" if progress.total else "WAITING"
    if is_cancelled and not progress.is_done:
        state = "CANCELLED"
    return {
        "datacenter": dc,
        "state": state,
        "total": progress.total,
        "redriven": progress.redriven,
        "failed": progress.failed,
        "skipped": progress.skipped,
        **({"reason": reason} if reason and not progress.is_done else {}),
    }


def _cancellation(redrive: Redrive) -> dict[str, Any]:
    if redrive.cancelled is None:
        return {}
    return {
        "cancelledAt": iso_ms(redrive.cancelled.at_ms),
        "cancelledBy": redrive.cancelled.by,
    }
