"""Retransmission: where to, what that would do to each partition, and then the move."""

from collections.abc import Iterator
from typing import Any

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from hermes_actors.console.console import Console, form_of
from hermes_actors.console.pages.subscription import BELOW, place_of
from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.http.answers import Answer, AnyRequest
from hermes_actors.model.moments import iso_ms, span_ms


def retransmission_page(console: Console) -> list[HTTPRouteHandler]:
    """/console/topics/{topic}/subscriptions/{name}/retransmit."""
    parts = console.parts

    async def dry_run(
        caller: Caller, topic: str, name: str, target: dict[str, str]
    ) -> dict[str, Any]:
        moved = await parts.retransmissions.move(caller, topic, name, target, True)
        lag = await parts.standings.lag(topic, name)
        rows = list(_rows(lag["datacenters"], moved))
        silent = [each for each in lag["datacenters"] if not each["isKnown"]]
        return {"target": target, "rows": rows, "silent": silent}

    async def owned(caller: Caller, topic: str, name: str) -> None:
        parts.subscriptions.owned(caller, topic, name, "move the offsets of subscription")

    @get(f"{BELOW}/retransmit")
    async def shown(
        request: AnyRequest,
        topic: FromPath[str],
        name: FromPath[str],
        to: FromQuery[str] = "",
        date: FromQuery[str] = "",
    ) -> Answer:
        plan, error = None, None
        await console.gate.act(request, owned, topic, name)
        if to:
            target = _target(to, date, console.clock.now_ms())
            try:
                plan = await console.gate.act(request, dry_run, topic, name, target)
            except Refused as refusal:
                error = refusal
        shown = place_of(topic, name) | {"to": to or "time", "date": date, "plan": plan}
        return await console.page(request, "retransmit.html", error=error, **shown)

    @post(f"{BELOW}/retransmit")
    async def move(request: AnyRequest, topic: FromPath[str], name: FromPath[str]) -> Answer:
        target, base = await form_of(request), place_of(topic, name)["base"]
        try:
            await console.gate.act(request, parts.retransmissions.move, topic, name, target)
        except Unavailable as error:
            if error.code is not ErrorCode.UNABLE_TO_MOVE_OFFSETS_EXCEPTION:
                raise
            # It is recorded, and the consumers move as soon as they can.
            return console.done(base, error.message)
        return console.done(base, f"{name} has moved: its consumers continue from there.")

    return [shown, move]


def _target(to: str, date: str, now_ms: int) -> dict[str, str]:
    """The body of the request. A relative time becomes a fixed one, so that the move is the same as
    its dry run.
    """
    if to != "time":
        return {"to": to}
    length_ms = span_ms(date)
    return {"retransmissionDate": date if length_ms is None else iso_ms(now_ms - length_ms)}


def _rows(
    datacenters: list[dict[str, Any]], moved: dict[str, list[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Each partition: where it is now, where it goes to, and by how many messages it goes back;
    negative if it goes forward.
    """
    for dc in datacenters:
        known = {each["partition"]: each for each in dc["partitions"]}
        for each in moved[dc["datacenter"]]:
            now, to = known.get(each["partition"], {}), each["offset"]
            position, end = now.get("position"), now.get("end")
            yield {
                "name": f"{dc['datacenter']} {each['partition']}",
                "from": position,
                "to": to,
                "back": None if position is None else position - to,
                "waits": None if end is None else max(0, end - to),
            }
