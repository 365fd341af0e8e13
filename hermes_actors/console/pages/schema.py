"""The schema of a topic: its versions, what differs between two of them, and a new version."""

from typing import Annotated, Any
from urllib.parse import quote

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, QueryParameter

from hermes_actors.console.console import Console, form_of
from hermes_actors.console.formats import difference, pretty
from hermes_actors.console.pages.topic import about
from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.http.answers import Answer, AnyRequest

_DIFF_CPU_S = 1.0
_Version = Annotated[int, QueryParameter(ge=0)]


def schema_pages(console: Console) -> list[HTTPRouteHandler]:
    """/console/topics/{topic}/schema."""
    parts, gate = console.parts, console.gate

    async def gathered(caller: Caller, topic: str, version: int, against: int) -> dict[str, Any]:
        shown = about(parts, caller, topic)
        await parts.subjects.look_up(topic)
        versions = parts.subjects.versions(topic)
        texts = {number: pretty(each.schema.text) for number, each in versions.items()}
        newest = max(texts, default=0)
        version = version if version in texts else newest
        lines: list[str] = []
        if against in texts and against != version:
            asked = (texts[against], texts[version])
            lines = await parts.pool.ask(topic, _DIFF_CPU_S, difference, *asked)
        return shown | {
            "versions": [versions[each] for each in sorted(versions, reverse=True)],
            "number": version,
            "against": against if against in texts else 0,
            "text": texts.get(version, ""),
            "given": texts.get(newest, ""),
            "lines": lines,
            "level": parts.subjects.level(topic).value,
            "topic": parts.topics.live(topic).topic,
        }

    async def saved(caller: Caller, topic: str, text: str) -> tuple[int, int]:
        """Save the schema. Returns its version, 0 if none is new, and the one before."""
        before = [0, *parts.subjects.versions(topic)]
        await parts.topic_schemas.save(caller, topic, text)
        return max({*parts.subjects.versions(topic)}.difference(before), default=0), max(before)

    @get("/topics/{topic:str}/schema")
    async def page(
        request: AnyRequest, topic: FromPath[str], version: _Version = 0, against: _Version = 0
    ) -> Answer:
        shown = await gate.act(request, gathered, topic, version, against)
        return await console.page(request, "schema.html", **shown)

    @post("/topics/{topic:str}/schema")
    async def save(request: AnyRequest, topic: FromPath[str]) -> Answer:
        given = (await form_of(request)).get("schema", "").replace("\r\n", "\n")
        try:
            new, old = await gate.act(request, saved, topic, given)
        except Refused as error:
            shown = await gate.act(request, gathered, topic, 0, 0)
            shown |= {"given": given, "problem": {"field": "schema", "text": error.message}}
            return await console.page(request, "schema.html", error=error, **shown)
        where = f"/console/topics/{quote(topic)}/schema"
        if not new:
            return console.done(where, "Nothing changed: the topic has this schema already.")
        return console.done(f"{where}?version={new}&against={old}", f"Version {new} is saved.")

    return [page, save]
