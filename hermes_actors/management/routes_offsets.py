"""The routes of a subscription's offsets: retransmission, lag and consumer groups."""

from typing import Annotated, Any

from litestar import Response, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, QueryParameter

from hermes_actors.management.administration import Administration
from hermes_actors.management.answers import AnyRequest, json_answer, object_of
from hermes_actors.management.gate import Gate

_Answer = Response[bytes]
_Name = FromPath[str]
_DryRun = Annotated[bool, QueryParameter(name="dryRun", description="Only tell the offsets")]

_SUBSCRIPTION = "/topics/{topic:str}/subscriptions/{name:str}"


def offset_routes(gate: Gate, administration: Administration) -> list[HTTPRouteHandler]:
    """Where a subscription stands in its topic, and how it is taken elsewhere."""
    retransmissions, standings = administration.retransmissions, administration.standings

    @put(_SUBSCRIPTION + "/retransmission", summary="Go on at a time, at offsets, start or end")
    async def retransmit(
        request: AnyRequest, topic: _Name, name: _Name, dry_run: _DryRun = False
    ) -> _Answer:
        body = await object_of(request)
        return json_answer(
            await gate.act(request, retransmissions.move, topic, name, body, dry_run)
        )

    @post(_SUBSCRIPTION + "/moveOffsetsToTheEnd", summary="Skip all that is in the topic")
    async def move_to_the_end(request: AnyRequest, topic: _Name, name: _Name) -> _Answer:
        return json_answer(await gate.act(request, retransmissions.move_to_the_end, topic, name))

    @get(_SUBSCRIPTION + "/lag", summary="Position, end and lag of each partition everywhere")
    async def lag(topic: _Name, name: _Name) -> _Answer:
        async def with_letters() -> dict[str, Any]:
            found = await standings.lag(topic, name)
            return {**found, **await administration.dead_letters.outlook(topic, name)}

        return json_answer(await gate.read(with_letters))

    @get(_SUBSCRIPTION + "/consumer-groups", summary="The consumer group in each datacentre")
    async def consumer_groups(topic: _Name, name: _Name) -> _Answer:
        return json_answer(await gate.read(standings.consumer_groups, topic, name))

    return [retransmit, move_to_the_end, lag, consumer_groups]
