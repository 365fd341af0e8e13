"""A subscription's dead letters in all datacentres that answer: listed, shown, and expired."""

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import trio
from msgspec.structs import replace

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.log.base import Log, LogUnavailable, Stored
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.dead_letters.query import (
    check_id,
    filter_of_body,
    filter_of_query,
    flag_of_body,
)
from hermes_actors.management.dead_letters.scan import (
    LetterPartition,
    OpenLetter,
    find_place,
    message_of,
    search,
)
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.dead_letter import (
    MARK_IDS_MAX,
    LetterFilter,
    Mark,
    MarkKind,
    dlq_topic,
    mark_record,
)
from hermes_actors.model.message import UndecodableRecord, from_record, header_text, is_avro
from hermes_actors.model.moments import iso_ms
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import Clock
from hermes_actors.schema.reading import AvroReader, ShownBody

T = TypeVar("T")

PAGE_MAX = 500
OUTLOOK_MAX = 1_000
OUTLOOK_TIMEOUT_S = 2.0
EXPIRE_MAX = 100_000
"""The most letters that one request closes in one datacentre; the answer says if there are more."""


class Letters:
    """Where the letters of all subscriptions are found: in the logs of all datacentres."""

    def __init__(
        self,
        metadata: Metadata,
        subscriptions: Subscriptions,
        logs: Sequence[Log],
    ) -> None:
        self._metadata = metadata
        self._subscriptions = subscriptions
        self.logs = {log.dc: log for log in logs}

    def live(self, caller: Caller, topic: str, name: str, action: str) -> LiveSubscription:
        """The subscription, for its owners and administrators. Raises Refused."""
        return self._subscriptions.owned(caller, topic, name, f"{action} of subscription")

    def subscription(self, topic: str, name: str) -> LiveSubscription:
        """The subscription, for everybody. Raises Refused."""
        return self._subscriptions.live(topic, name)

    async def place(self, log: Log, live: LiveSubscription) -> LetterPartition | None:
        """Where a log holds the subscription's letters. Raises LogUnavailable."""
        topic = dlq_topic(live.name.topic.group, self._metadata.namespace)
        return await find_place(log, topic, str(live.name), live.incarnation)

    async def in_each(
        self, work: Callable[[Log], Awaitable[T]], datacenters: Sequence[str] | None = None
    ) -> tuple[dict[str, T], list[dict[str, Any]]]:
        """Return what `work` gives for each datacentre, by default for all, and which of them did
        not answer, and why.
        """
        results: dict[str, T] = {}
        silent: dict[str, str] = {}

        async def ask(log: Log) -> None:
            try:
                results[log.dc] = await work(log)
            except LogUnavailable as error:
                silent[log.dc] = error.message

        asked = sorted(self.logs if datacenters is None else datacenters)
        async with trio.open_nursery() as nursery:
            for dc in asked:
                nursery.start_soon(ask, self.logs[dc])
        return (
            {dc: results[dc] for dc in asked if dc in results},
            [{"datacenter": dc, "reason": silent[dc]} for dc in asked if dc in silent],
        )


class DeadLetterBox:
    """Reads and closes dead letters. Methods are trio coroutines; the caller comes first."""

    def __init__(self, letters: Letters, clock: Clock, reader: AvroReader) -> None:
        self._letters = letters
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
        """One page of the open letters that are meant, newest first. Raises Refused.

        `next` is what to give as `before` for the page after it, None at the end.
        """
        live = self._letters.live(caller, topic, name, "see the dead letters")
        query = {"reason": reason, "status": status, "messageId": message_id}
        query |= {"since": since, "until": until}
        wanted = filter_of_query(query, self._clock.now_ms())
        if not 1 <= limit <= PAGE_MAX:
            raise Refused(f"limit must be from 1 to {PAGE_MAX}")
        below = _read_cursor(before)

        async def look(log: Log) -> tuple[list[OpenLetter], bool]:
            found: list[OpenLetter] = []
            place = await self._letters.place(log, live)
            if place is None:
                return found, True

            def take(held: OpenLetter) -> bool:
                if len(found) == limit:
                    return False
                found.append(held)
                return True

            return found, await search(place, wanted, take, below.get(log.dc))

        results, silent = await self._letters.in_each(look)
        merged = sorted(
            (held for found, _ in results.values() for held in found),
            key=lambda held: (held.timestamp_ms, held.letter.dc, held.offset),
            reverse=True,
        )
        shown = merged[:limit]
        for held in shown:
            below[held.letter.dc] = held.offset
        is_end = len(merged) == len(shown) and all(whole for _, whole in results.values())
        answer = {
            "deadLetters": [letter_view(held) for held in shown],
            # A page without letters has nowhere to go on from.
            "next": None if is_end or not shown else _cursor(below),
            "isComplete": is_end or bool(shown),
        }
        return with_silent(answer, silent)

    async def outlook(self, topic: str, name: str) -> dict[str, Any]:
        """How many letters are open and why the newest was given up, for who asks what ails a
        subscription: counted up to OUTLOOK_MAX, and as far as OUTLOOK_TIMEOUT_S goes.
        """
        live = self._letters.subscription(topic, name)
        found: list[OpenLetter] = []
        whole: list[bool] = []

        def take(held: OpenLetter) -> bool:
            found.append(held)
            return len(found) < OUTLOOK_MAX

        async def look(log: Log) -> None:
            place = await self._letters.place(log, live)
            whole.append(place is None or await search(place, LetterFilter(), take))

        silent: list[dict[str, Any]] = []
        with trio.move_on_after(OUTLOOK_TIMEOUT_S):
            _, silent = await self._letters.in_each(look)
        newest = max((held.letter for held in found), key=lambda each: each.at_ms, default=None)
        is_complete = len(whole) == len(self._letters.logs) and all(whole) and not silent
        answer: dict[str, Any] = {"open": len(found), "isComplete": is_complete}
        if newest is not None:
            answer["newest"] = {
                "id": newest.id,
                "discardedAt": iso_ms(newest.at_ms),
                "reason": newest.reason,
                "detail": newest.detail,
            }
        return {"deadLetters": answer}

    async def one(self, caller: Caller, topic: str, name: str, letter_id: str) -> dict[str, Any]:
        """One open letter with its message. Raises Refused (404 when there is none)."""
        live = self._letters.live(caller, topic, name, "see the dead letters")
        dc = check_id(letter_id).partition(":")[0]
        log = self._letters.logs.get(dc)
        if log is None:
            raise Refused(f"There is no datacentre '{dc}' here", ErrorCode.OTHER, 404)
        found: list[OpenLetter] = []

        def take(held: OpenLetter) -> bool:
            found.append(held)
            return False

        place = await self._letters.place(log, live)
        if place is not None:
            await search(place, LetterFilter(ids=(letter_id,)), take)
        if place is None or not found:
            raise Refused(
                f"Subscription {live.name} has no open dead letter {letter_id}: it was re-driven, "
                "expired, or never there",
                ErrorCode.OTHER,
                404,
            )
        return await self._with_message(place, found[0])

    async def _with_message(self, place: LetterPartition, held: OpenLetter) -> dict[str, Any]:
        letter = held.letter
        value = await message_of(place, held)
        original = letter.original
        shown = None
        if value is not None and is_avro(original):
            topic = letter.subscription.rpartition("$")[0]
            with suppress(UndecodableRecord):
                message = from_record(replace(original, value=value), str)
                shown = await self._reader.shown(topic, message)
        return {
            **letter_view(held),
            **as_text("key", letter.key),
            "headers": {header: header_text(header, raw) for header, raw in letter.headers},
            **body_fields("message", value, shown),
        }

    async def expire(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Close the open letters that the body means; `dryRun` only counts. Raises Refused."""
        live = self._letters.live(caller, topic, name, "expire the dead letters")
        wanted = filter_of_body(body, "expire", self._clock.now_ms())
        is_dry = flag_of_body(body, "dryRun")

        async def close(log: Log) -> tuple[int, bool]:
            place = await self._letters.place(log, live)
            if place is None:
                return 0, True
            ids, is_whole = await matching(place, wanted, EXPIRE_MAX)
            if not is_dry:
                await self._mark(place, ids)
            return len(ids), is_whole

        results, silent = await self._letters.in_each(close)
        answer: dict[str, Any] = {
            "expired": sum(count for count, _ in results.values()),
            "dryRun": is_dry,
            "isComplete": all(whole for _, whole in results.values()) and not silent,
            "datacenters": [
                {"datacenter": dc, "expired": count} for dc, (count, _) in results.items()
            ],
        }
        return with_silent(answer, silent, is_useless=not results)

    async def _mark(self, place: LetterPartition, ids: Sequence[str]) -> None:
        now_ms = self._clock.now_ms()
        for first in range(0, len(ids), MARK_IDS_MAX):
            some = tuple(ids[first : first + MARK_IDS_MAX])
            record = mark_record(place.subscription, Mark(MarkKind.EXPIRED, some, now_ms))
            (outcome,) = await place.log.append(place.topic, place.partition, [record], Ack.ALL)
            if not isinstance(outcome, Stored):
                raise LogUnavailable(
                    f"the log of datacentre {place.log.dc} took {first} of {len(ids)}: "
                    f"{outcome.reason}; ask again"
                )


def with_silent(
    answer: dict[str, Any], silent: Sequence[dict[str, Any]], *, is_useless: bool = False
) -> dict[str, Any]:
    """The answer with the datacentres that said nothing. Raises Unavailable if they make it
    useless.
    """
    if silent and is_useless:
        raise Unavailable("; ".join(str(each["reason"]) for each in silent))
    return {**answer, "unreachable": silent} if silent else answer


async def matching(
    place: LetterPartition, wanted: LetterFilter, most: int
) -> tuple[list[str], bool]:
    """The ids of the open letters that are wanted, and whether these are all of them."""
    ids: list[str] = []

    def take(held: OpenLetter) -> bool:
        if len(ids) == most:
            return False
        ids.append(held.letter.id)
        return True

    is_whole = await search(place, wanted, take)
    return ids, is_whole


def letter_view(held: OpenLetter) -> dict[str, Any]:
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
        "cluster": letter.dc,
        "storedAt": iso_ms(letter.timestamp_ms),
        "sizeBytes": letter.missing_bytes or held.value_bytes,
        "isTruncated": bool(letter.missing_bytes),
        **({"missedBy": list(letter.missed)} if letter.missed else {}),
    }


def body_fields(name: str, body: bytes | None, shown: ShownBody | None) -> dict[str, str | None]:
    """A body as fields of JSON: text, the JSON of Avro, or base64; of Avro with an `error`."""
    if shown is None or body is None:
        return as_text(name, body)
    if not shown.problem:
        return as_text(name, shown.json)
    return {"error": shown.problem, f"{name}Base64": base64.b64encode(body).decode()}


def as_text(name: str, value: bytes | None) -> dict[str, str | None]:
    """Return bytes as a field of JSON: text, or in base64 under a name that says so."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(value).decode()}


def _cursor(below: Mapping[str, int]) -> str:
    text = msgspec.json.encode(dict(sorted(below.items())))
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _read_cursor(text: str | None) -> dict[str, int]:
    if not text:
        return {}
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=dict[str, int])
    except (ValueError, msgspec.MsgspecError) as error:
        raise Refused("before: give the `next` of an earlier page, as it was") from error
