"""The routes of the schema registry, with the API of Confluent's."""

from collections.abc import Awaitable
from functools import partial
from typing import Any

import msgspec
from litestar import HttpMethod, Response, route
from litestar.handlers import HTTPRouteHandler
from msgspec import Struct

from hermes_actors.errors import HermesError
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.catalog.registry import RegistryError, SchemaRegistry
from hermes_actors.management.http.answers import JSON, Answer
from hermes_actors.management.http.openapi import REGISTRY, REGISTRY_JSON
from hermes_actors.management.routes.route import Add, JsonObject
from hermes_actors.model.schema import Compatibility, SchemaKind


class SchemaText(Struct, rename="camel"):
    """The request to look up, compare or register a schema."""

    schema: str
    schema_type: SchemaKind = SchemaKind.AVRO


class Level(Struct):
    """The request to set a compatibility level."""

    compatibility: Compatibility


def elsewhere_routes(registry: str) -> list[HTTPRouteHandler]:
    """/schema-registry of a node with an external registry, which the answer (501) names."""

    @route(
        [REGISTRY, REGISTRY + "/{rest:path}"],
        http_method=[HttpMethod.GET, HttpMethod.POST, HttpMethod.PUT, HttpMethod.DELETE],
        include_in_schema=False,
    )
    async def elsewhere() -> Answer:
        message = f"Schemas are kept in the registry {registry}; use that one"
        return _answer({"error_code": 50101, "message": message}, 501)

    return [elsewhere]


def registry_routes(add: Add, registry: SchemaRegistry) -> list[HTTPRouteHandler]:
    """/schema-registry."""
    add = partial(add, below=REGISTRY, answering=_told, takes=SchemaText, media_type=REGISTRY_JSON)
    of_subject = partial(add, below=REGISTRY + "/subjects/{subject:str}")
    by_id = partial(add, below=REGISTRY + "/schemas/ids/{schema_id:int}")
    compared = partial(add, below=REGISTRY + "/compatibility/subjects/{subject:str}/versions")

    async def compatible(subject: str, body: JsonObject, verbose: bool = False) -> dict[str, Any]:
        """Whether a schema could be a new version."""
        return await registry.compatibility(subject, "", body, verbose=verbose)

    async def level() -> dict[str, Any]:
        """The compatibility level of subjects without one."""
        return await registry.level("")

    async def set_level(caller: Caller, body: JsonObject) -> dict[str, Any]:
        """Set the level of subjects without one."""
        return await registry.set_level(caller, "", body)

    async def types() -> list[str]:
        """The kinds of schemas."""
        return list(SchemaKind)

    async def root() -> dict[str, str]:
        """Whether the registry answers."""
        return {}

    async def mode(_subject: str = "") -> dict[str, str]:
        """READWRITE: versions can be registered."""
        return {"mode": "READWRITE"}

    as_text: Any = {"answering": _told_text, "media_type": JSON, "gives": dict[str, Any]}
    always = partial(add, needs_metadata=False)
    return [
        always("GET", root),
        add("GET /subjects", registry.names),
        of_subject("GET /versions", registry.versions),
        of_subject("GET /versions/{version:str}", registry.version),
        of_subject("GET /versions/{version:str}/schema", registry.version, **as_text),
        of_subject("POST", registry.lookup),
        of_subject("POST /versions", registry.register),
        of_subject("DELETE", registry.delete),
        of_subject("DELETE /versions/{version:str}", registry.delete_version),
        by_id("GET", registry.by_id),
        by_id("GET /schema", registry.by_id, **as_text),
        by_id("GET /versions", registry.versions_with),
        by_id("GET /subjects", registry.subjects_with),
        always("GET /schemas/types", types),
        always("GET /mode", mode, has_query=False),
        always("GET /mode/{subject:str}", mode, has_query=False),
        compared("POST", compatible),
        compared("POST /{version:str}", registry.compatibility),
        add("GET /config", level),
        add("GET /config/{subject:str}", registry.level),
        add("PUT /config", set_level, takes=Level),
        add("PUT /config/{subject:str}", registry.set_level, takes=Level),
        add("DELETE /config/{subject:str}", registry.drop_level),
    ]


async def _told(asked: Awaitable[Any], *, is_text: bool = False) -> Answer:
    """The answer, or the error in Confluent's format."""
    try:
        value = await asked
    except RegistryError as error:
        return _answer({"error_code": error.number, "message": error.message}, error.status)
    except HermesError as error:
        number = error.status if error.status < 500 else error.status * 100 + 1
        return _answer({"error_code": number, "message": error.message}, error.status)
    if is_text:
        return Response(value["schema"].encode(), media_type=JSON, status_code=200)
    return _answer(value)


_told_text = partial(_told, is_text=True)


def _answer(value: object, status: int = 200) -> Answer:
    return Response(msgspec.json.encode(value), media_type=REGISTRY_JSON, status_code=status)
