"""The routes of topics' schemas."""

from litestar import Response, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.catalog.topic_schemas import TopicSchemas
from hermes_actors.management.http.answers import Answer, AnyRequest, body_of, empty_answer
from hermes_actors.management.http.gate import Gate
from hermes_actors.management.routes.paths import Name

_SCHEMA = "/topics/{topic:str}/schema"


def schema_routes(gate: Gate, schemas: TopicSchemas) -> list[HTTPRouteHandler]:
    """/topics/{topic}/schema."""

    @get(_SCHEMA, summary="The schema that a topic's messages must fit; 204 when it has none")
    async def topic_schema(topic: Name) -> Answer:
        return _text_answer(await gate.read(schemas.newest, topic))

    @get(_SCHEMA + "/versions/{version:int}", summary="One version of a topic's schema")
    async def topic_schema_version(topic: Name, version: FromPath[int]) -> Answer:
        return _text_answer(await gate.read(schemas.version, topic, version))

    @get(_SCHEMA + "/ids/{schema_id:int}", summary="A topic's schema by its id")
    async def topic_schema_by_id(topic: Name, schema_id: FromPath[int]) -> Answer:
        return _text_answer(await gate.read(schemas.by_id, topic, schema_id))

    @post(_SCHEMA, summary="Make the body the newest version of a topic's schema")
    async def save_topic_schema(request: AnyRequest, topic: Name) -> Answer:
        await gate.act(request, schemas.save, topic, _text(await body_of(request)))
        return empty_answer(201)

    @delete(_SCHEMA, summary="Remove all versions of a topic's schema", status_code=200)
    async def remove_topic_schema(request: AnyRequest, topic: Name) -> Answer:
        await gate.act(request, schemas.remove, topic)
        return empty_answer(200)

    return [
        topic_schema,
        topic_schema_version,
        topic_schema_by_id,
        save_topic_schema,
        remove_topic_schema,
    ]


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise Refused("The schema must be UTF-8", ErrorCode.FORMAT_ERROR) from error


def _text_answer(schema: str | None) -> Answer:
    if schema is None:
        return empty_answer(204)
    return Response(schema.encode(), media_type="application/json", status_code=200)
