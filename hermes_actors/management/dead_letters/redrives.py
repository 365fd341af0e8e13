"""Re-drives: asked for here, kept in the metadata, done by the consumers of each datacentre."""

from collections.abc import Callable, Mapping
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
from hermes_actors.metadata.commands import Absent, Alive, Change, StampIs, put
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

_FIGURES = ("total", "redriven", "failed", "skipped")


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
            raise _missing(
                f"Subscription {live.name} has no open dead letters that are meant; "
                "nothing was asked for"
            )
        await self._require_none_running(live)
        number = 0

        def renewed(before: Redrive | None) -> Redrive:
            nonlocal number
            number = 1 if before is None else before.number + 1
            return Redrive(
                number=number,
                incarnation=live.incarnation,
                rate_per_s=request.rate_per_second,
                requested_at_ms=self._clock.now_ms(),
                requested_by=caller.name,
                ranges={dc: result[0] for dc, result in meant.items()},
                letters=wanted,
            )

        await self._store(live, renewed)
        return {"number": number, **answer}

    async def progress(self, caller: Caller, topic: str, name: str) -> dict[str, Any]:
        """How far the subscription's last re-drive has come. Raises Refused, 404 without one."""
        live = self._letters.owned(caller, topic, name, "see the re-drive")
        redrive = self._last(live)
        datacenters = await self._progress(live, redrive)
        cancelled = redrive.cancelled
        ended = {}
        if cancelled is not None:
            ended = {"cancelledAt": iso_ms(cancelled.at_ms), "cancelledBy": cancelled.by}
        return {
            "number": redrive.number,
            "requestedAt": iso_ms(redrive.requested_at_ms),
            "requestedBy": redrive.requested_by,
            "ratePerSecond": redrive.rate_per_s,
            "isDone": all(each["state"] == "DONE" for each in datacenters),
            **{figure: sum(each.get(figure, 0) for each in datacenters) for figure in _FIGURES},
            **ended,
            "datacenters": datacenters,
        }

    async def cancel(self, caller: Caller, topic: str, name: str) -> None:
        """Stop the re-drive; what is under way still ends. Raises Refused, 404 without one."""
        live = self._letters.owned(caller, topic, name, "cancel the re-drive")

        def cancelled(before: Redrive | None) -> Redrive:
            redrive = self._last(live) if before is None else before
            if redrive.cancelled is not None:
                raise _missing(
                    f"Re-drive {redrive.number} of subscription {live.name} was cancelled already"
                )
            return redrive.cancelled_by(caller.name, self._clock.now_ms())

        await self._store(live, cancelled)

    def _last(self, live: LiveSubscription) -> Redrive:
        redrive = redrive_of(self._metadata.catalog, live.name, live.incarnation)
        if redrive is None:
            raise _missing(f"Subscription {live.name} has no re-drive")
        return redrive

    async def _store(
        self, live: LiveSubscription, decide: Callable[[Redrive | None], Redrive]
    ) -> None:
        key = redrive_key(live.name, live.incarnation)

        def change() -> Change:
            held = self._metadata.catalog.others.get(key)
            before = redrive_of(self._metadata.catalog, live.name, live.incarnation)
            return put(
                key,
                redrive_body(decide(before)),
                Absent(key) if held is None else StampIs(key, held.stamp),
                Alive(subscription_key(live.name), live.incarnation),
            )

        await self._changes.make(change)

    async def _require_none_running(self, live: LiveSubscription) -> None:
        redrive = redrive_of(self._metadata.catalog, live.name, live.incarnation)
        if redrive is None or redrive.cancelled is not None:
            return
        found = await self._progress(live, redrive)
        running = [e["datacenter"] for e in found if e["state"] in ("WAITING", "RUNNING")]
        if running:
            raise Refused(
                f"Re-drive {redrive.number} of subscription {live.name} is not done in "
                f"{', '.join(running)}; wait for it, or cancel it (hermes dlq cancel)",
                ErrorCode.OTHER,
                409,
            )

    async def _progress(self, live: LiveSubscription, redrive: Redrive) -> list[dict[str, Any]]:
        """For each datacentre of the re-drive how far it has come, or why that is not known."""
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
        known, unreachable = await self._letters.ask(live, look, asked)
        unknown = {each["datacenter"]: each["reason"] for each in unreachable}
        return [
            self._view(live, redrive, dc, known[dc])
            if dc in known
            else {
                "datacenter": dc,
                "state": "UNKNOWN",
                "reason": unknown.get(dc, "there is no such datacentre"),
            }
            for dc in redrive.datacenters
        ]

    def _view(
        self, live: LiveSubscription, redrive: Redrive, dc: str, progress: RedriveProgress
    ) -> dict[str, Any]:
        cancelled = redrive.cancelled
        state, reason = "RUNNING" if progress.total else "WAITING", ""
        if progress.is_done:
            state = "DONE"
        elif cancelled is not None:
            at = iso_ms(cancelled.at_ms, "seconds")
            state, reason = "CANCELLED", f"cancelled by {cancelled.by or 'nobody known'} at {at}"
        else:
            reason = self._statuses.hold_up(live, dc)
        figures = {figure: getattr(progress, figure) for figure in _FIGURES}
        why = {"reason": reason} if reason else {}
        return {"datacenter": dc, "state": state, **figures, **why}


def _missing(message: str) -> Refused:
    return Refused(message, ErrorCode.OTHER, 404)
