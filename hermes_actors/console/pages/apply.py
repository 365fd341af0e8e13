"""A configuration, as for `hermes apply`: what it would change, and applying it."""

from collections import Counter
from typing import Any

from litestar import get, post
from litestar.handlers import HTTPRouteHandler

from hermes_actors.console.console import Console, form_of
from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.decoding import json_object
from hermes_actors.management.configuration.apply import Applied
from hermes_actors.management.configuration.documents import CPU_S, configuration_of
from hermes_actors.management.http.answers import Answer, AnyRequest

ROWS = 100
"""How many items are shown, those with errors first."""


def apply_pages(console: Console) -> list[HTTPRouteHandler]:
    """/console/apply."""
    parts = console.parts

    async def run(caller: Caller, text: str, is_dry: bool) -> list[Applied]:
        configuration = await parts.pool.ask("configuration", CPU_S, configuration_of, text)
        return await parts.apply.run(caller, json_object(configuration), dry_run=is_dry)

    async def page(
        request: AnyRequest, text: str, error: Refused | None = None, **shown: Any
    ) -> Answer:
        problem = {"field": "text", "text": error.message} if error else {}
        first: dict[str, Any] = {"rows": [], "counts": {}, "is_dry": True, "problem": problem}
        return await console.page(request, "apply.html", error=error, text=text, **first | shown)

    @get("/apply")
    async def form(request: AnyRequest) -> Answer:
        return await page(request, "")

    @post("/apply")
    async def applied(request: AnyRequest) -> Answer:
        given = await form_of(request)
        text, is_dry = given.get("text", "").replace("\r\n", "\n"), given.get("step") != "apply"
        try:
            found = await console.gate.act(request, run, text, is_dry)
        except Refused as error:
            return await page(request, text, error)
        counts = Counter("error" if each.error else each.action for each in found)
        rows = [each for each in found if each.action != "none"]
        rows.sort(key=lambda each: each.error is None)
        return await page(request, text, rows=rows[:ROWS], counts=counts, is_dry=is_dry)

    return [form, applied]
