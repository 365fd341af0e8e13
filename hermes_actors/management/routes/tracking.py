"""The routes by which messages are looked up."""

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from hermes_actors.management.http.answers import Answer, AnyRequest, json_answer
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.messages.tracking import MessageTracking
from hermes_actors.management.routes.paths import SUBSCRIPTION, Name


def tracking_routes(gate: Gate, tracking: MessageTracking) -> list[HTTPRouteHandler]:
    """/tracking/{id}, and Hermes' traces of a message for one subscription."""

    @get("/tracking/{message_id:path}", summary="What became of a message, in all datacentres")
    async def of_message(request: AnyRequest, message_id: FromPath[str]) -> Answer:
        return json_answer(await gate.act(request, tracking.of_message, str(message_id)[1:]))

    @get(SUBSCRIPTION + "/events/{message_id:str}/trace", summary="A message's published and sent")
    async def of_subscription(
        request: AnyRequest, topic: Name, name: Name, message_id: FromPath[str]
    ) -> Answer:
        found = await gate.act(request, tracking.of_subscription, topic, name, message_id)
        return json_answer(found)

    return [of_message, of_subscription]
