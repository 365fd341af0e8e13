"""The routes of who may do what: the caller's roles, owners, and the mode of this node."""

from litestar import Response, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery

from hermes_actors.management.access.mode import AccessMode
from hermes_actors.management.catalog.owners import Owners
from hermes_actors.management.http.answers import Answer, AnyRequest, empty_answer, json_answer
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.routes.paths import SUBSCRIPTION, Name


def access_routes(gate: Gate, owners: Owners, access_mode: AccessMode) -> list[HTTPRouteHandler]:
    """/roles, /owners and /mode."""

    @get("/roles", summary="The caller's roles")
    async def roles(request: AnyRequest) -> Answer:
        return json_answer(await gate.greet(request, owners.roles))

    @get("/roles/topics/{topic:str}", summary="The caller's roles for a topic")
    async def topic_roles(request: AnyRequest, topic: Name) -> Answer:
        return json_answer(await gate.greet(request, owners.roles, topic))

    @get("/roles" + SUBSCRIPTION, summary="The caller's roles for a subscription")
    async def subscription_roles(request: AnyRequest, topic: Name, name: Name) -> Answer:
        return json_answer(await gate.greet(request, owners.roles, topic, name))

    @get("/owners/sources", summary="Directories of owners")
    async def owner_sources() -> Answer:
        return json_answer(await gate.read(owners.sources))

    @get("/owners/sources/{source:str}", summary="Search a directory for owners")
    async def find_owners(source: Name, search: FromQuery[str] = "") -> Answer:
        return json_answer(await gate.read(owners.found, source, search))

    @get("/owners/sources/{source:str}/{owner:str}", summary="One owner")
    async def get_owner(source: Name, owner: Name) -> Answer:
        return json_answer(await gate.read(owners.one, source, owner))

    @get("/mode", summary="readWrite, readOnly or readOnlyAdmin")
    async def get_mode() -> Answer:
        return Response((await gate.look(access_mode.get)).encode(), media_type="text/plain")

    @post("/mode", summary="Let nobody but administrators change something, or everybody again")
    async def set_mode(request: AnyRequest, mode: FromQuery[str]) -> Answer:
        await gate.act(request, access_mode.set, mode)
        return empty_answer(200)

    return [
        roles,
        topic_roles,
        subscription_roles,
        owner_sources,
        find_owners,
        get_owner,
        get_mode,
        set_mode,
    ]
