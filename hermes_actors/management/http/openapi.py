"""The OpenAPI document. Litestar creates it from the types of the routes; the rest is adapted for
generators of clients.
"""

import re
import tomllib
from collections.abc import Sequence
from enum import StrEnum
from http import HTTPStatus
from importlib.resources import files
from typing import Any

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.types.internal_types import PathParameterDefinition
from msgspec import UNSET, Struct

from hermes_actors import __version__
from hermes_actors.errors import ErrorCode
from hermes_actors.management.access.table import Access, rule_of
from hermes_actors.management.configuration.items import KINDS
from hermes_actors.management.http.answers import JSON
from hermes_actors.model.group import Group
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.subscription import BatchPolicy, SerialPolicy, Subscription
from hermes_actors.model.topic import Topic

TYPED = "hermes_typed"
"""The option of a route that holds its typed twin: a handler with the types of both bodies, the
request's and the answer's. The twin is only described, never called.
"""


def _partly(name: str, *kinds: type[Struct]) -> type[Struct]:
    """Define a Struct with all fields of these, all of them optional."""
    fields = {each.name: each for kind in kinds for each in msgspec.structs.fields(kind)}
    return msgspec.defstruct(
        name,
        [
            (each.name, each.type, msgspec.field(default=UNSET, name=each.encode_name))
            for each in fields.values()
        ],
        kw_only=True,
    )


def _with(kind: type[Struct], name: str, of: type) -> Any:
    """Define a Struct with an additional or replaced field."""
    return msgspec.defstruct(kind.__name__, [(name, of, UNSET)], bases=(kind,), kw_only=True)


# deliveryType decides which of the two policies it is.
_SubscriptionPolicy = _partly("SubscriptionPolicy", BatchPolicy, SerialPolicy)
WholeSubscription = _with(Subscription, "subscription_policy", _SubscriptionPolicy)
WholeTopic = _with(Topic, "schema", str)
SubscriptionPatch = _partly("SubscriptionPatch", WholeSubscription)
TopicPatch = _partly("TopicPatch", WholeTopic)
GroupPatch = _partly("GroupPatch", Group)
OAuthProviderPatch = _partly("OAuthProviderPatch", OAuthProvider)
_LISTS = [
    (kind, list[_partly(f"{of.__name__}Item", of)], UNSET)  # type: ignore[misc]
    for kind, of in (KINDS | {"subscriptions": WholeSubscription}).items()
]
Configuration = msgspec.defstruct(
    "Configuration", [*_LISTS, ("delete", msgspec.defstruct("Deletions", _LISTS), UNSET)]
)

REGISTRY = "/schema-registry"
REGISTRY_JSON = "application/vnd.schemaregistry.v1+json"
_SUBSCRIPTIONS = "/topics/{topic}/subscriptions"
_WORD = re.compile("[A-Za-z0-9]+")
_REFUSED = "Invalid, forbidden, not found, or (5XX) worth a retry; the message says which"
_Code = StrEnum("ErrorCode", {each.name: each.name for each in ErrorCode})  # type: ignore[misc]
_error = msgspec.defstruct("Error", [("message", str), ("code", _Code)])
# Confluent's errors have an error_code; errors of authentication and rights have a code.
_registry_error = msgspec.defstruct(
    "RegistryError", [("message", str), ("error_code", int, UNSET), ("code", _Code, UNSET)]
)


_TEXTS = tomllib.loads((files(__package__) / "examples.toml").read_text("utf-8"))
_TAGS = {first: tag for tag, (_, parts) in _TEXTS["tags"].items() for first in parts.split()}
_UNSAID = {each.description for each in HTTPStatus} | {"Additional response"}
_CREDENTIALS: list[dict[str, list[str]]] = [{name: []} for name in _TEXTS["schemes"]]


def document(routes: Sequence[HTTPRouteHandler]) -> bytes:
    """The document of these routes in JSON. It takes about 0.2 s, so all nodes of a process share
    it.
    """
    paths = frozenset(path for each in routes for path in each.paths)
    if paths not in _documents:
        _documents[paths] = msgspec.json.encode(_document(routes))
    return _documents[paths]


_documents: dict[frozenset[str], bytes] = {}


def _document(routes: Sequence[HTTPRouteHandler]) -> dict[str, Any]:
    # A separate app, because the framework's documentation pages load scripts from elsewhere.
    app = Litestar(
        [each.opt.get(TYPED, each) for each in routes],
        openapi_config=OpenAPIConfig(
            "hermes_actors management",
            __version__,
            description=_TEXTS["description"],
            operation_id_creator=_operation_id,
        ),
        logging_config=None,
    )
    described: dict[str, Any] = app.openapi_schema.to_schema()
    _, errors = msgspec.json.schema_components(
        (_error, _registry_error), ref_template="#/components/schemas/{name}"
    )
    described["components"]["schemas"] |= errors
    described["components"]["responses"] = {
        name: {
            "description": _REFUSED,
            "content": {
                each: {"schema": {"$ref": f"#/components/schemas/{name}"}} for each in kinds
            },
        }
        for name, kinds in {"Error": [JSON], "RegistryError": [JSON, REGISTRY_JSON]}.items()
    }
    described["components"]["securitySchemes"] = _TEXTS["schemes"]
    described["tags"] = [
        {"name": name, "description": text} for name, (text, _) in _TEXTS["tags"].items()
    ]
    for name, schema in described["components"]["schemas"].items():
        if example := _TEXTS["bodies"].get(name):
            schema["examples"] = [msgspec.json.decode(example)]
    # Sorted, because the framework's order of a handler's paths varies.
    described["paths"] = dict(sorted(described["paths"].items()))
    for path, item in described["paths"].items():
        for verb, operation in item.items():
            _finish(verb.upper(), path, operation)
    return described


def _operation_id(_: Any, method: str, path: Sequence[str | PathParameterDefinition]) -> str:
    names = [each if isinstance(each, str) else each.name for each in path]
    words = _WORD.findall(" ".join(names))
    return method.lower() + "".join(each[0].upper() + each[1:] for each in words)


def _finish(verb: str, path: str, operation: dict[str, Any]) -> None:
    """Add an operation's tag, its errors and who may call it, and describe its parameters."""
    rule = rule_of(verb, path)
    operation["x-role"], operation["x-changes"] = rule
    # `{}` means that credentials are optional.
    operation["security"] = {Access.OPEN: [], Access.ANYONE: [{}, *_CREDENTIALS]}.get(
        rule.access, _CREDENTIALS
    )
    first = "subscriptions" if path.startswith(_SUBSCRIPTIONS) else path.split("/")[1]
    operation["tags"] = [_TAGS.get(first, first)]
    operation.pop("deprecated")
    responses = operation["responses"]
    # The framework describes its own format for this error, which is not used.
    responses.pop("400", None)
    for status, response in responses.items():
        response.pop("headers", None)
        if response["description"] in _UNSAID:
            response["description"] = HTTPStatus(int(status)).phrase
    error = "RegistryError" if path.startswith(REGISTRY) else "Error"
    refused = {"$ref": f"#/components/responses/{error}"}
    if rule.access is not Access.OPEN:
        responses["401"] = refused
    if rule.changes or rule.access in (Access.OWNER, Access.ADMIN):
        responses["403"] = refused
    responses |= {"4XX": refused, "5XX": refused}
    for each in operation.get("parameters", ()):
        for unused in ("deprecated", "allowEmptyValue", "allowReserved"):
            each.pop(unused, None)
        # A parameter in a query can be missing, but not null.
        kinds = each["schema"].pop("oneOf", [{}])
        each["schema"].update(kinds[0])
        each["schema"].pop("description", None)
        if each["name"] in (texts := _TEXTS["parameters"].get(each["in"], {})):
            each["example"], each["description"] = texts[each["name"]]
