"""The routes of the schema registry, below one path: those that Confluent's clients ask."""

from collections.abc import Awaitable
from typing import Annotated, Any

import msgspec
from litestar import HttpMethod, Response, delete, get, post, put, route
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, QueryParameter

from hermes_actors.errors import HermesError
from hermes_actors.management.catalog.registry import RegistryError, SchemaRegistry
from hermes_actors.management.http.answers import Answer, AnyRequest, object_of
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.routes.paths import Flag, Name
from hermes_actors.model.schema import SchemaKind

ROOT = "/schema-registry"

_SUBJECT = ROOT + "/subjects/{subject:str}"
_VERSION = _SUBJECT + "/versions/{version:str}"
_ID = ROOT + "/schemas/ids/{schema_id:int}"
_COMPATIBILITY = ROOT + "/compatibility/subjects/{subject:str}/versions"
_DefaultToGlobal = Annotated[bool, QueryParameter(name="defaultToGlobal")]
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


def registry_routes(gate: Gate, registry: SchemaRegistry) -> list[HTTPRouteHandler]:
    """/schema-registry."""
    return [*_reading(gate, registry), *_changing(gate, registry), *_levels(gate, registry)]


def elsewhere_routes(registry: str) -> list[HTTPRouteHandler]:
    """/schema-registry of a node whose schemas are kept elsewhere: it says where."""

    @route(
        [ROOT, ROOT + "/{rest:path}"],
        http_method=[HttpMethod.GET, HttpMethod.POST, HttpMethod.PUT, HttpMethod.DELETE],
        summary="The schema registry is another one",
    )
    async def elsewhere() -> Answer:
        message = f"Schemas are kept in the registry {registry}; ask that one"
        return _answer({"error_code": 50101, "message": message}, 501)

    return [elsewhere]


def _reading(gate: Gate, registry: SchemaRegistry) -> list[HTTPRouteHandler]:
    @get(ROOT + "/subjects", summary="Subjects of the schema registry")
    async def list_subjects() -> Answer:
        return await _told(gate.read(registry.names))

    @get(_SUBJECT + "/versions", summary="Versions of a subject")
    async def subject_versions(subject: Name) -> Answer:
        return await _told(gate.read(registry.versions, subject))

    @get(_VERSION, summary="One version of a subject: a number, or `latest`")
    async def subject_version(subject: Name, version: Name) -> Answer:
        return await _told(gate.read(registry.version, subject, version))

    @get(_VERSION + "/schema", summary="The text of one version of a subject")
    async def subject_text(subject: Name, version: Name) -> Answer:
        return await _told(gate.read(registry.version, subject, version), is_text=True)

    @post(_SUBJECT, summary="The version of a subject that is this schema", status_code=200)
    async def look_up(request: AnyRequest, subject: Name) -> Answer:
        return await _told(gate.read(registry.lookup, subject, await object_of(request)))

    @get(_ID, summary="A schema by its id")
    async def schema_by_id(schema_id: FromPath[int]) -> Answer:
        return await _told(gate.read(registry.by_id, schema_id))

    @get(_ID + "/schema", summary="The text of a schema by its id")
    async def text_by_id(schema_id: FromPath[int]) -> Answer:
        return await _told(gate.read(registry.by_id, schema_id), is_text=True)

    @get(_ID + "/versions", summary="The subjects and versions that are a schema")
    async def versions_by_id(schema_id: FromPath[int]) -> Answer:
        return await _told(gate.read(registry.versions_with, schema_id))

    @get(_ID + "/subjects", summary="The subjects that have a schema as a version")
    async def subjects_by_id(schema_id: FromPath[int]) -> Answer:
        return await _told(gate.read(registry.subjects_with, schema_id))

    @get(ROOT + "/schemas/types", summary="The languages of schemas")
    async def schema_types() -> Answer:
        return _answer(list(SchemaKind))

    @get(
        [ROOT + "/mode", ROOT + "/mode/{subject:str}"],
        summary="READWRITE: versions can be registered",
    )
    async def registry_mode() -> Answer:
        return _answer({"mode": "READWRITE"})

    return [
        list_subjects,
        subject_versions,
        subject_version,
        subject_text,
        look_up,
        schema_by_id,
        text_by_id,
        versions_by_id,
        subjects_by_id,
        schema_types,
        registry_mode,
    ]


def _changing(gate: Gate, registry: SchemaRegistry) -> list[HTTPRouteHandler]:
    @post(_SUBJECT + "/versions", summary="Register a version of a subject", status_code=200)
    async def register(request: AnyRequest, subject: Name) -> Answer:
        body = await object_of(request)
        return await _told(gate.act(request, registry.register, subject, body))

    @delete(_SUBJECT, summary="Delete all versions of a subject", status_code=200)
    async def delete_subject(request: AnyRequest, subject: Name) -> Answer:
        return await _told(gate.act(request, registry.delete, subject))

    @delete(_VERSION, summary="Delete one version of a subject", status_code=200)
    async def delete_version(request: AnyRequest, subject: Name, version: Name) -> Answer:
        return await _told(gate.act(request, registry.delete_version, subject, version))

    return [register, delete_subject, delete_version]


def _levels(gate: Gate, registry: SchemaRegistry) -> list[HTTPRouteHandler]:
    async def compared(request: AnyRequest, subject: str, version: str, verbose: bool) -> Answer:
        body = await object_of(request)

        async def compare() -> dict[str, Any]:
            return await registry.compatibility(subject, version, body, is_verbose=verbose)

        return await _told(gate.read(compare))

    @post(_COMPATIBILITY, summary="Whether a schema could be a new version", status_code=200)
    async def compatible(request: AnyRequest, subject: Name, verbose: Flag = False) -> Answer:
        return await compared(request, subject, "", verbose)

    @post(
        _COMPATIBILITY + "/{version:str}",
        summary="Whether a schema agrees with one version",
        status_code=200,
    )
    async def compatible_with(
        request: AnyRequest, subject: Name, version: Name, verbose: Flag = False
    ) -> Answer:
        return await compared(request, subject, version, verbose)

    @get(ROOT + "/config", summary="The compatibility level of subjects without one")
    async def level() -> Answer:
        return await _told(gate.read(registry.level, ""))

    @get(ROOT + "/config/{subject:str}", summary="The compatibility level of a subject")
    async def subject_level(subject: Name, default_to_global: _DefaultToGlobal = False) -> Answer:
        async def read() -> dict[str, Any]:
            return await registry.level(subject, or_default=default_to_global)

        return await _told(gate.read(read))

    @put(ROOT + "/config", summary="Set the level of subjects without one")
    async def set_level(request: AnyRequest) -> Answer:
        return await _told(gate.act(request, registry.set_level, "", await object_of(request)))

    @put(ROOT + "/config/{subject:str}", summary="Set the compatibility level of a subject")
    async def set_subject_level(request: AnyRequest, subject: Name) -> Answer:
        body = await object_of(request)
        return await _told(gate.act(request, registry.set_level, subject, body))

    @delete(ROOT + "/config/{subject:str}", summary="Take a subject's level back", status_code=200)
    async def drop_subject_level(request: AnyRequest, subject: Name) -> Answer:
        return await _told(gate.act(request, registry.drop_level, subject))

    return [
        compatible,
        compatible_with,
        level,
        subject_level,
        set_level,
        set_subject_level,
        drop_subject_level,
    ]


async def _told(asked: Awaitable[Any], *, is_text: bool = False) -> Answer:
    """The answer, or the error with its number."""
    try:
        value = await asked
    except RegistryError as error:
        return _answer({"error_code": error.number, "message": error.message}, error.status)
    except HermesError as error:
        number = error.status if error.status < 500 else error.status * 100 + 1
        return _answer({"error_code": number, "message": error.message}, error.status)
    if is_text:
        return Response(value["schema"].encode(), media_type="application/json", status_code=200)
    return _answer(value)


def _answer(value: object, status: int = 200) -> Answer:
    return Response(msgspec.json.encode(value), media_type=_MEDIA_TYPE, status_code=status)
