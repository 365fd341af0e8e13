"""The routes of a subscription's offsets: retransmission, lag and consumer groups."""

from typing import Annotated, Any

from litestar import get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from hermes_actors.management.dead_letters.letters import DeadLetterBox
from hermes_actors.management.http.answers import Answer, AnyRequest, json_answer, object_of
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.offsets.retransmission import Retransmissions
from hermes_actors.management.offsets.standings import Standings
from hermes_actors.management.routes.paths import SUBSCRIPTION, Name

_DryRun = Annotated[bool, QueryParameter(name="dryRun", description="Only tell the offsets")]


def offset_routes(
    gate: Gate, retransmissions: Retransmissions, standings: Standings, box: DeadLetterBox
) -> list[HTTPRouteHandler]:
    """Where a subscription stands in its topic, and how it is taken elsewhere."""

    @put(SUBSCRIPTION + "/retransmission", summary="Go on at a time, at offsets, start or end")
    async def retransmit(
        request: AnyRequest, topic: Name, name: Name, dry_run: _DryRun = False
    ) -> Answer:
        body = await object_of(request)
        return json_answer(
            await gate.act(request, retransmissions.move, topic, name, body, dry_run)
        )

    @post(SUBSCRIPTION + "/moveOffsetsToTheEnd", summary="Skip all that is in the topic")
    async def move_to_the_end(request: AnyRequest, topic: Name, name: Name) -> Answer:
        return json_answer(await gate.act(request, retransmissions.move_to_the_end, topic, name))

    @get(SUBSCRIPTION + "/lag", summary="Position, end and lag of each partition everywhere")
    async def lag(topic: Name, name: Name) -> Answer:
        async def with_letters() -> dict[str, Any]:
            found = await standings.lag(topic, name)
            return {**found, **await box.outlook(topic, name)}

        return json_answer(await gate.read(with_letters))

    @get(SUBSCRIPTION + "/consumer-groups", summary="The consumer group in each datacentre")
    async def consumer_groups(topic: Name, name: Name) -> Answer:
        return json_answer(await gate.read(standings.consumer_groups, topic, name))

    return [retransmit, move_to_the_end, lag, consumer_groups]
