"""The routes of a subscription's signing secrets."""

from litestar import post
from litestar.handlers import HTTPRouteHandler

from hermes_actors.management.catalog.signing import SigningSecrets
from hermes_actors.management.http.answers import (
    Answer,
    AnyRequest,
    body_of,
    empty_answer,
    json_answer,
    object_of,
)
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.routes.paths import SUBSCRIPTION, Name

_SIGNING = SUBSCRIPTION + "/signing"


def signing_routes(gate: Gate, secrets: SigningSecrets) -> list[HTTPRouteHandler]:
    """How the secrets are changed without a moment in which subscribers know none of them."""

    @post(_SIGNING + "/rotate", summary="Sign with a new secret too", status_code=200)
    async def rotate(request: AnyRequest, topic: Name, name: Name) -> Answer:
        body = await object_of(request) if await body_of(request) else {}
        return json_answer(await gate.act(request, secrets.rotate, topic, name, body))

    @post(_SIGNING + "/retire", summary="Sign with the newest secret only", status_code=200)
    async def retire(request: AnyRequest, topic: Name, name: Name) -> Answer:
        await gate.act(request, secrets.retire, topic, name)
        return empty_answer(200)

    return [rotate, retire]
