"""The dead letters of subscriptions in all datacentres that answer: listed, shown, and expired."""

import base64
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import trio
from msgspec import Struct

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.log.base import Log, LogUnavailable
from hermes_actors.log.letters import (
    SEARCH_TIMEOUT_S,
    LetterBox,
    OpenLetter,
    places_of,
    search_letters,
)
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.views import as_text, body_fields
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.dead_letters.selection import LetterSelection, check_id, selection_in
from hermes_actors.management.offsets.asking import Logs
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import (
    MARK_IDS_MAX,
    Letter,
    LetterFilter,
    Mark,
    MarkKind,
    dlq_topic,
)
from hermes_actors.model.message import UndecodableRecord, from_record, header_text, is_avro
from hermes_actors.model.moments import iso_ms
from hermes_actors.model.partitioner import partition_of
from hermes_actors.runtime.clock import Clock
from hermes_actors.schema.reading import AvroReader

_logger = logging.getLogger(__name__)

PAGE_MAX = 500
COUNT_MAX = 100_000
"""The maximum number of letters that a request counts or closes in each datacentre."""

TIMEOUT_S = 2 * SEARCH_TIMEOUT_S
EVERY = LetterFilter()
SEE = "see the dead letters of subscription"


class Newest(Struct, frozen=True):
    """The newest open letters of all datacentres that answered. `is_whole`: there are no more.
    `silent`: for each other datacentre, why it did not answer.
    """

    letters: list[OpenLetter]
    is_whole: bool
    silent: dict[str, str]


class Letters:
    """Finds the letters of subscriptions in the logs of all datacentres."""

    def __init__(self, logs: Logs, namespace: str) -> None:
        self.logs = logs
        self._namespace = namespace

    def box(self, log: Log, live: LiveSubscription) -> LetterBox:
        """The subscription's letters in this log."""
        return LetterBox(log, live.name, live.incarnation, self._namespace)

    async def newest(
        self,
        lives: Sequence[LiveSubscription],
        wanted: LetterFilter,
        most: int,
        *,
        below: Mapping[str, int] | None = None,
        datacenters: Sequence[str] | None = None,
    ) -> Newest:
        """The newest matching open letters of these subscriptions, at most `most`. In a datacentre
        of `below`, only letters below that offset. Each partition is read once, and each log for a
        limited time.
        """
        by_topic: dict[str, dict[bytes, int]] = defaultdict(dict)
        for live in lives:
            topic = dlq_topic(live.name.topic.group, self._namespace)
            by_topic[topic][str(live.name).encode()] = live.incarnation

        async def look(log: Log) -> tuple[list[OpenLetter], bool]:
            letters, is_whole = list[OpenLetter](), True
            until_s = trio.current_time() + SEARCH_TIMEOUT_S
            for topic, keys in by_topic.items():
                places = await places_of(log, topic)
                parts: dict[int, dict[bytes, int]] = defaultdict(dict)
                for key, life in keys.items() if places else ():
                    parts[partition_of(key, len(places))][key] = life
                for partition, meant in parts.items():
                    left_s = until_s - trio.current_time()
                    if left_s <= 0:
                        return letters, False
                    search = partial(
                        search_letters,
                        *(log, topic, places[partition], meant, wanted),
                        below=(below or {}).get(log.dc),
                        timeout_s=left_s,
                    )
                    some, has_all = await matching(search, most)
                    letters, is_whole = letters + some, is_whole and has_all
            return letters, is_whole

        answers = await self.logs.ask(look, datacenters, TIMEOUT_S)
        found = [each for some, _ in answers.known.values() for each in some]
        found.sort(key=lambda e: (e.timestamp_ms, e.letter.dc, e.offset), reverse=True)
        is_whole = len(found) <= most and all(whole for _, whole in answers.known.values())
        return Newest(found[:most], is_whole, answers.silent)

    async def whole(self, live: LiveSubscription, held: OpenLetter) -> Letter | None:
        """An open letter with its message. None if its log no longer holds that, or is silent."""
        dc = held.letter.dc
        answers = await self.logs.ask(lambda log: self.box(log, live).read(held), [dc], TIMEOUT_S)
        return answers.known.get(dc)

    def view(self, held: OpenLetter) -> dict[str, Any]:
        """A letter's JSON object, without its message."""
        letter = held.letter
        topic, _, subscription = letter.subscription.rpartition("$")
        return {
            "id": letter.id,
            "messageId": letter.message_id or None,
            "topicName": topic,
            "subscription": subscription,
            "discardedAt": iso_ms(letter.at_ms),
            "reason": letter.reason,
            "detail": letter.detail,
            "status": letter.status,
            "attempts": letter.attempts,
            "redrives": letter.redrives,
            "partition": letter.partition,
            "offset": letter.offset,
            "cluster": self.logs.cluster(letter.dc),
            "storedAt": iso_ms(letter.timestamp_ms),
            "sizeBytes": letter.missing_bytes or held.value_bytes,
            "isTruncated": bool(letter.missing_bytes),
            **({"isTombstone": True} if letter.is_tombstone else {}),
            **({"missedBy": list(letter.missed)} if letter.missed else {}),
        }


class DeadLetters:
    """Lists, shows and closes dead letters. Methods are trio coroutines."""

    def __init__(
        self,
        letters: Letters,
        subscriptions: Subscriptions,
        clock: Clock,
        reader: AvroReader,
    ) -> None:
        self._letters = letters
        self._subscriptions = subscriptions
        self._clock = clock
        self._reader = reader

    async def page(
        self,
        caller: Caller,
        topic: str,
        name: str,
        *,
        reason: str | None = None,
        status: str | None = None,
        message_id: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> dict[str, Any]:
        """One page of open dead letters, newest first. Raises Refused.

        `next` in the answer is the value of `before` for the next page, None at the end.
        """
        live = self._subscriptions.owned(caller, topic, name, SEE)
        _require_page(limit)
        wanted = LetterSelection(
            reason=reason, status=status, message_id=message_id or "", since=since, until=until
        ).filter(self._clock.now_ms())
        below = _read_cursor(before)
        found = await self._letters.newest([live], wanted, limit, below=below)
        for held in found.letters:
            below[held.letter.dc] = held.offset
        # A page without letters has no offset for the cursor.
        has_next = not found.is_whole and bool(found.letters)
        answer = {
            "deadLetters": [self._letters.view(held) for held in found.letters],
            "next": _cursor(below) if has_next else None,
            "isComplete": found.is_whole or has_next,
        }
        return with_unreachable(answer, found.silent)

    async def all(
        self,
        caller: Caller,
        *,
        topic_name: str | None = None,
        reason: str | None = None,
        status: str | None = None,
        message_id: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int = 50,
    ) -> dict[str, Any]:
        """List the newest open dead letters of all subscriptions that the caller manages, or of one
        topic's. Raises Refused.
        """
        _require_page(limit)
        lives = self._subscriptions.managed_by(caller, topic_name)
        wanted = LetterSelection(
            reason=reason, status=status, message_id=message_id or "", since=since, until=until
        ).filter(self._clock.now_ms())
        found = await self._letters.newest(lives, wanted, limit)
        answer = {
            "deadLetters": [self._letters.view(held) for held in found.letters],
            "isComplete": found.is_whole,
        }
        return with_unreachable(answer, found.silent)

    async def one(self, caller: Caller, topic: str, name: str, letter_id: str) -> dict[str, Any]:
        """One open dead letter with its message. Raises Refused (404 if it does not exist)."""
        live = self._subscriptions.owned(caller, topic, name, SEE)
        dc = check_id(letter_id).partition(":")[0]
        if dc not in self._letters.logs.datacenters:
            raise Refused(f"There is no datacentre '{dc}' here", ErrorCode.OTHER, 404)
        wanted = LetterFilter(ids=(letter_id,))
        found = await self._letters.newest([live], wanted, 1, datacenters=[dc])
        with_unreachable({}, found.silent, is_useless=True)
        if not found.letters:
            raise Refused(
                f"Subscription {live.name} has no open dead letter {letter_id}: it was re-driven, "
                "expired, or never there",
                ErrorCode.OTHER,
                404,
            )
        (held,) = found.letters
        letter = held.letter
        whole = await self._letters.whole(live, held)
        value = None if whole is None or whole.is_tombstone else whole.value
        shown = None
        if whole is not None and is_avro(whole.original):
            with suppress(UndecodableRecord):
                shown = await self._reader.shown(topic, from_record(whole.original))
        return {
            **self._letters.view(held),
            **as_text("key", letter.key),
            "headers": {header: header_text(header, raw) for header, raw in letter.headers},
            **body_fields("message", value, shown),
        }

    async def expire(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Close the selected dead letters. With `dryRun` they are only counted. Raises Refused and
        Unavailable.
        """
        action = "expire the dead letters of subscription"
        live = self._subscriptions.owned(caller, topic, name, action)
        selection = selection_in(LetterSelection, body, "expire")
        now_ms = self._clock.now_ms()
        wanted = selection.filter(now_ms)
        if not selection.dry_run:
            _logger.warning("%s: dead letters are expired by %s", live.name, caller.name)

        async def close(log: Log) -> tuple[int, bool]:
            box = self._letters.box(log, live)
            found, is_whole = await matching(partial(box.search, wanted), COUNT_MAX)
            ids = [held.letter.id for held in found]
            for first in range(0, 0 if selection.dry_run else len(ids), MARK_IDS_MAX):
                some = tuple(ids[first : first + MARK_IDS_MAX])
                try:
                    await box.close(Mark(MarkKind.EXPIRED, some, self._clock.now_ms()))
                except LogUnavailable as error:
                    raise LogUnavailable(
                        f"it took {first} of {len(ids)}: {error.message}; ask again"
                    ) from error
            return len(ids), is_whole

        answers = await self._letters.logs.ask(close, timeout_s=TIMEOUT_S)
        results = answers.known
        answer: dict[str, Any] = {
            "expired": sum(count for count, _ in results.values()),
            "dryRun": selection.dry_run,
            "isComplete": all(whole for _, whole in results.values()) and not answers.silent,
            "datacenters": [
                {"datacenter": dc, "expired": count} for dc, (count, _) in results.items()
            ],
        }
        return with_unreachable(answer, answers.silent, is_useless=not results)


def _require_page(limit: int) -> None:
    if not 1 <= limit <= PAGE_MAX:
        raise Refused(f"limit must be from 1 to {PAGE_MAX}")


def with_unreachable(
    answer: dict[str, Any], silent: Mapping[str, str], *, is_useless: bool = False
) -> dict[str, Any]:
    """Add the datacentres that did not answer. Raises Unavailable if there are any and the answer
    `is_useless` without them.
    """
    if silent and is_useless:
        raise Unavailable("; ".join(f"{dc}: {reason}" for dc, reason in silent.items()))
    unreachable = [{"datacenter": dc, "reason": reason} for dc, reason in silent.items()]
    return {**answer, "unreachable": unreachable} if unreachable else answer


async def matching(
    search: Callable[[Callable[[OpenLetter], bool]], Awaitable[bool]], most: int
) -> tuple[list[OpenLetter], bool]:
    """The first `most` letters that the search finds, and True if these are all."""
    found: list[OpenLetter] = []

    def take(held: OpenLetter) -> bool:
        if len(found) == most:
            return False
        found.append(held)
        return True

    is_whole = await search(take)
    return found, is_whole


def _cursor(below: Mapping[str, int]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(dict(sorted(below.items())))).decode()


def _read_cursor(text: str | None) -> dict[str, int]:
    if not text:
        return {}
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=dict[str, int])
    except (ValueError, msgspec.MsgspecError) as error:
        raise Refused("before: give the `next` of an earlier page, unchanged") from error
