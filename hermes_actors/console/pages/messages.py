"""The messages of a topic: the newest, one by its place, and a test message."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from hermes_actors.console.console import Console, form_of
from hermes_actors.console.formats import pretty
from hermes_actors.console.pages.topic import about
from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.http.answers import Answer, AnyRequest
from hermes_actors.management.http.gate import credentials_of
from hermes_actors.model.moments import iso_ms

NEWEST = 20
"""How many of the newest messages are shown."""

CUT_CHARACTERS = 1_000
"""A longer body is cut in the list."""

_LINE_CHARACTERS = 300
_PRETTY_CHARACTERS_MAX = 65_536
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*:[ \t]*([^\x00-\x1f\x7f]*)")


def message_pages(console: Console) -> list[HTTPRouteHandler]:
    """/console/topics/{topic}/messages, and /console/topics/{topic}/publish."""
    parts, gate = console.parts, console.gate
    previews, trials = parts.previews, parts.publish_trials

    async def found(
        caller: Caller, topic: str, dc: str, partition: str = "", offset: str = ""
    ) -> list[dict[str, Any]]:
        number, at = _number("partition", partition), _number("offset", offset)
        if at is None:
            newest = await previews.newest(caller, topic, NEWEST, cluster=dc, partition=number)
            return [_shown(each, CUT_CHARACTERS) for each in reversed(newest)]
        if number is None:
            raise Refused("Message.partition must be given with an offset")
        return [_shown(await previews.at(caller, topic, dc, number, at))]

    async def head(caller: Caller, topic: str, action: str) -> dict[str, Any]:
        return about(parts, caller, topic, action)

    @get("/topics/{topic:str}/messages")
    async def page(request: AnyRequest, topic: FromPath[str]) -> Answer:
        asked = request.query_params
        place = {each: asked.get(each, "") for each in ("partition", "offset")}
        dc = asked.get("datacenter") or console.config.dc
        shown = await gate.act(request, head, topic, "see messages of topic")
        shown |= {"sent": asked.get("sent", ""), "datacenter": dc, "chosen": place}
        shown |= {"datacenters": previews.datacenters(), "messages": []}
        error = None
        try:
            shown["messages"] = await gate.act(
                request, found, topic, dc, place["partition"], place["offset"]
            )
        except Refused as refused:
            error = refused
        return await console.page(request, "messages.html", error=error, **shown)

    @get("/topics/{topic:str}/messages/live")
    async def live(request: AnyRequest, topic: FromPath[str]) -> Answer:
        shown = {"name": topic, "datacenter": console.config.dc}
        shown["sent"] = request.query_params.get("sent", "")
        messages = await gate.act(request, found, topic, console.config.dc)
        return await console.fragment("messages_live.html", messages=messages, **shown)

    async def form_page(
        request: AnyRequest,
        topic: str,
        given: dict[str, str],
        error: HermesError | None = None,
    ) -> Answer:
        shown = await gate.act(request, head, topic, "publish a test message to topic")
        nodes = (await gate.read(parts.statuses.nodes))["nodes"]
        return await console.page(
            request,
            "publish.html",
            200 if error is None else error.status,
            problem={"field": "", "text": error.message} if error else {},
            topic=await gate.read(parts.topics.get, topic),
            given={"body": "", "key": "", "headers": "", "contentType": ""} | given,
            is_possible=trials.is_possible(),
            publishing=[each for each in nodes if "frontend" in each["roles"]],
            **shown,
        )

    @get("/topics/{topic:str}/publish")
    async def form(request: AnyRequest, topic: FromPath[str]) -> Answer:
        return await form_page(request, topic, {})

    @post("/topics/{topic:str}/publish")
    async def publish(request: AnyRequest, topic: FromPath[str]) -> Answer:
        given = await form_of(request)
        try:
            headers = _headers(given)
            body = given.get("body", "").replace("\r\n", "\n").encode()
            id_, status = await gate.act(
                request, trials.make, topic, headers, body, credentials_of(request)
            )
        except HermesError as error:
            return await form_page(request, topic, given, error)
        dc = console.config.dc
        said = {201: f"The log of {dc} has it."}.get(
            status,
            f"It is on this node's disk, because no log accepts it now. It is sent to {dc} later.",
        )
        where = f"/console/topics/{quote(topic)}/messages?sent={quote(id_, safe='')}"
        return console.done(where, f"Message {id_} is published. {said}")

    return [page, live, form, publish]


def _number(name: str, text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Refused(f"Message.{name} must be a whole number from 0", ErrorCode.FORMAT_ERROR)
    return int(text)


def _headers(given: Mapping[str, str]) -> list[tuple[str, str]]:
    """The headers in the form. Raises Refused, which names the first line that is no header."""
    headers = []
    for line in filter(None, map(str.strip, given.get("headers", "").splitlines())):
        found = _HEADER.fullmatch(line)
        if found is None:
            raise Refused(f"Message.headers: '{line[:100]}' is not a header, such as Name: value")
        headers.append((found[1], found[2]))
    chosen = (("Content-Type", given.get("contentType")), ("Partition-Key", given.get("key")))
    return headers + [(name, value) for name, value in chosen if value]


def _shown(message: dict[str, Any], characters_max: int | None = None) -> dict[str, Any]:
    """The message as the page shows it: JSON indented, cut to `characters_max`."""
    text = message.get("body", message.get("bodyBase64"))
    line = (text or "")[:_LINE_CHARACTERS]
    if text is not None and len(text) <= _PRETTY_CHARACTERS_MAX:
        text = pretty(text)
    return message | {
        "time": iso_ms(message["timestamp"]),
        "line": line,
        "text": text if text is None else text[:characters_max],
        "characters": len(text or ""),
        "key": message.get("key", message.get("keyBase64")),
    }
