"""A subscription's dead letters: listed, shown, re-driven with their progress, and expired."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from hermes_actors.console.console import Console, form_of
from hermes_actors.console.pages.subscription import BELOW, place_of, shows
from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.dead_letters.selection import RATE_DEFAULT
from hermes_actors.management.http.answers import Answer, AnyRequest
from hermes_actors.model.dead_letter import DiscardReason

CRITERIA = ("reason", "status", "messageId", "since", "until")
"""The fields of the form that filters the list."""

_STEP = 50
_REASONS = [each.value for each in DiscardReason]
_BOX = f"{BELOW}/dead-letters"

Close = Callable[[Caller, str, str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


def dead_letter_pages(console: Console) -> list[HTTPRouteHandler]:
    """Below /console/topics/{topic}/subscriptions/{name}/dead-letters."""
    letters, redrives = console.parts.dead_letters, console.parts.redrives

    async def last_redrive(caller: Caller, topic: str, name: str) -> dict[str, Any]:
        redrive = None
        try:
            redrive = await redrives.progress(caller, topic, name)
        except Refused as error:
            if error.status != 404:
                raise
        state = console.parts.subscriptions.live(topic, name).subscription.state.value
        return place_of(topic, name) | {"redrive": redrive, "state": state}

    async def listed(
        caller: Caller, topic: str, name: str, given: Mapping[str, str]
    ) -> dict[str, Any]:
        wanted = {each: given[each] for each in CRITERIA if each != "messageId"}
        message_id, before = given["messageId"], given["before"]
        return await letters.page(
            caller, topic, name, message_id=message_id, before=before, limit=_STEP, **wanted
        )

    @get(_BOX)
    async def shown(request: AnyRequest, topic: FromPath[str], name: FromPath[str]) -> Answer:
        return await list_page(request, topic, name)

    async def list_page(
        request: AnyRequest, topic: str, name: str, error: Refused | None = None
    ) -> Answer:
        query = request.query_params
        given = {each: query.get(each, "").strip() for each in (*CRITERIA, "before")}
        found = await console.gate.act(request, last_redrive, topic, name)
        found |= {"given": given, "reasons": _REASONS, "found": {}, "manages": True}
        try:
            found["found"] = await console.gate.act(request, listed, topic, name, given)
        except Refused as refusal:
            error = refusal
        return await console.page(request, "dead_letters.html", error=error, **found)

    @get(f"{_BOX}/{{letter:str}}")
    async def one(
        request: AnyRequest, topic: FromPath[str], name: FromPath[str], letter: FromPath[str]
    ) -> Answer:
        found = await console.gate.act(request, letters.one, topic, name, letter)
        shown = place_of(topic, name) | {"letter": found}
        return await console.page(request, "dead_letter.html", **shown)

    def closing(path: str, close: Close, said: str) -> list[HTTPRouteHandler]:
        """The page that counts the selected letters and asks, and the one that closes them."""

        @get(f"{_BOX}/{path}", name=f"ask to {path} letters")
        async def ask(request: AnyRequest, topic: FromPath[str], name: FromPath[str]) -> Answer:
            query = request.query_params
            given = {each: query.get(each, "") for each in CRITERIA}
            if query.get("which") != "all":
                given = {"ids": ",".join(query.getall("id", []))}
            shown = place_of(topic, name) | {"hidden": given, "rate": RATE_DEFAULT}
            try:
                body = _selection(given) | {"dryRun": True}
                shown["counted"] = await console.gate.act(request, close, topic, name, body)
            except Refused as error:
                return await list_page(request, topic, name, error)
            return await console.page(request, f"dead_letters_{path}.html", **shown)

        @post(f"{_BOX}/{path}", name=f"{path} letters")
        async def do(request: AnyRequest, topic: FromPath[str], name: FromPath[str]) -> Answer:
            given = await form_of(request)
            try:
                done = await console.gate.act(request, close, topic, name, _selection(given))
            except Refused as error:
                return await list_page(request, topic, name, error)
            return console.done(
                place_of(topic, name)["base"] + "/dead-letters", said.format_map(done)
            )

        return [ask, do]

    @post(f"{_BOX}/cancel")
    async def cancel(request: AnyRequest, topic: FromPath[str], name: FromPath[str]) -> Answer:
        await console.gate.act(request, redrives.cancel, topic, name)
        where = place_of(topic, name)["base"] + "/dead-letters"
        return console.done(where, "The re-drive is cancelled. Letters in flight are finished.")

    return [
        shows(console, "/dead-letters/live", "redrive_live.html", last_redrive),
        *(shown, one, cancel),
        *closing(
            "redrive", redrives.start, "Re-drive {number} has begun. Dead letters: {matching}."
        ),
        *closing("expire", letters.expire, "Dead letters expired: {expired}."),
    ]


def _selection(given: Mapping[str, str]) -> dict[str, Any]:
    """The body of a request: the letters with these ids, or those that match the criteria, or all.

    Raises Refused if there should be ids and there are none.
    """
    if "ids" in given:
        if not given["ids"]:
            raise Refused("No dead letter is selected: tick some first, or choose all")
        body: dict[str, Any] = {"ids": given["ids"].split(",")}
    else:
        criteria = {each: given[each] for each in CRITERIA if given.get(each)}
        body = criteria or {"all": True}
    if rate := given.get("ratePerSecond"):
        body["ratePerSecond"] = rate
    return body
