"""Re-drives: requested here, stored in the metadata, and done by each datacentre's consumers."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.log.base import Log, UnknownTopic
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.changes import Changes
from hermes_actors.management.dead_letters.letters import (
    COUNT_MAX,
    TIMEOUT_S,
    Letters,
    matching,
    with_unreachable,
)
from hermes_actors.management.dead_letters.selection import RedriveRequest, selection_in
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
    """The re-drives of subscriptions, one at a time for each. Methods are trio coroutines."""

    def __init__(
        self,
        metadata: Metadata,
        letters: Letters,
        changes: Changes,
        subscriptions: Subscriptions,
        clock: Clock,
    ) -> None:
        self._metadata = metadata
        self._letters = letters
        self._changes = changes
        self._subscriptions = subscriptions
        self._clock = clock

    async def start(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Deliver dead letters again, to this subscription only. With `dryRun` they are only
        counted.

        Raises Refused, also while an earlier re-drive is running, and Unavailable.
        """
        action = "re-drive the dead letters of subscription"
        live = self._subscriptions.owned(caller, topic, name, action)
        request = selection_in(RedriveRequest, body, "re-drive")
        wanted = request.filter(self._clock.now_ms())

        async def count(log: Log) -> tuple[LetterRange, int, bool]:
            box = self._letters.box(log, live)
            place = await box.place()
            found, is_whole = await matching(partial(box.search, wanted), COUNT_MAX)
            span = LetterRange(0, 0) if place is None else LetterRange(place.start, place.end)
            return span, len(found), is_whole

        answers = await self._letters.logs.ask(count, timeout_s=TIMEOUT_S)
        meant = {dc: each for dc, each in answers.known.items() if each[1] or not each[2]}
        answer: dict[str, Any] = {
            "dryRun": request.dry_run,
            "matching": sum(each[1] for each in meant.values()),
            "isComplete": all(each[2] for each in meant.values()) and not answers.silent,
            "ratePerSecond": request.rate_per_second,
            "datacenters": [{"datacenter": dc, "matching": each[1]} for dc, each in meant.items()],
        }
        answer = with_unreachable(answer, answers.silent, is_useless=not answers.known)
        if request.dry_run:
            return answer
        if not meant:
            raise _missing(
                f"Subscription {live.name} has no open dead letters that match; nothing was started"
            )
        await self._require_none_running(live)

        def renewed(before: Redrive | None) -> Redrive:
            return Redrive(
                number=1 if before is None else before.number + 1,
                incarnation=live.incarnation,
                rate_per_s=request.rate_per_second,
                requested_at_ms=self._clock.now_ms(),
                requested_by=caller.name,
                ranges={dc: each[0] for dc, each in meant.items()},
                letters=wanted,
            )

        return {"number": (await self._store(live, renewed)).number, **answer}

    async def progress(self, caller: Caller, topic: str, name: str) -> dict[str, Any]:
        """The progress of the subscription's last re-drive. Raises Refused, 404 without one."""
        live = self._subscriptions.owned(caller, topic, name, "see the re-drive of subscription")
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
        """Cancel the re-drive. Pushes in flight are completed. Raises Refused, 404 without one."""
        live = self._subscriptions.owned(caller, topic, name, "cancel the re-drive of subscription")

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
    ) -> Redrive:
        """Store the re-drive that `decide` makes of the last one (None if there is none), and
        return it.
        """
        key = redrive_key(live.name, live.incarnation)
        decided: Redrive

        def change() -> Change:
            nonlocal decided
            held = self._metadata.catalog.others.get(key)
            decided = decide(redrive_of(self._metadata.catalog, live.name, live.incarnation))
            return put(
                key,
                redrive_body(decided),
                Absent(key) if held is None else StampIs(key, held.stamp),
                Alive(subscription_key(live.name), live.incarnation),
            )

        await self._changes.make(change)
        return decided

    async def _require_none_running(self, live: LiveSubscription) -> None:
        redrive = redrive_of(self._metadata.catalog, live.name, live.incarnation)
        if redrive is None or redrive.cancelled is not None:
            return
        found = await self._progress(live, redrive)
        running = [e["datacenter"] for e in found if e["state"] in ("WAITING", "RUNNING")]
        if running:
            raise Refused(
                f"Re-drive {redrive.number} of subscription {live.name} is not done in "
                f"{', '.join(running)}; wait for it, or cancel the re-drive",
                ErrorCode.OTHER,
                409,
            )

    async def _progress(self, live: LiveSubscription, redrive: Redrive) -> list[dict[str, Any]]:
        """The progress in each datacentre of the re-drive, or why it is not known."""
        group = redrive_group(live.name, self._metadata.namespace)

        async def look(log: Log) -> RedriveProgress:
            try:
                commits = await log.committed(group, self._letters.box(log, live).topic)
            except UnknownTopic:
                commits = {}
            found = [progress_of(commit, redrive) for commit in commits.values()]
            # All letters of a subscription are in one partition.
            return max(found, key=lambda each: each.total, default=progress_of(None, redrive))

        logs = self._letters.logs
        answers = await logs.ask(look, {*redrive.datacenters} & {*logs.datacenters}, TIMEOUT_S)
        shown: list[dict[str, Any]] = []
        for dc in redrive.datacenters:
            if dc in answers.known:
                shown.append(_view(redrive, dc, answers.known[dc]))
            else:
                reason = answers.silent.get(dc, "there is no such datacentre")
                shown.append({"datacenter": dc, "state": "UNKNOWN", "reason": reason})
        return shown


def _view(redrive: Redrive, dc: str, progress: RedriveProgress) -> dict[str, Any]:
    cancelled = redrive.cancelled
    view = {"datacenter": dc, "state": "RUNNING" if progress.total else "WAITING"}
    if progress.is_done:
        view["state"] = "DONE"
    elif cancelled is not None:
        at = iso_ms(cancelled.at_ms, "seconds")
        view["state"] = "CANCELLED"
        view["reason"] = f"cancelled by {cancelled.by or 'an unknown account'} at {at}"
    return view | {figure: getattr(progress, figure) for figure in _FIGURES}


def _missing(message: str) -> Refused:
    return Refused(message, ErrorCode.OTHER, 404)
