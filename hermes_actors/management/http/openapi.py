"""The OpenAPI document. Litestar creates it from the types of the routes; the rest is adapted for
generators of clients.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.types.internal_types import PathParameterDefinition
from msgspec import UNSET, Struct

from hermes_actors import __version__
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
_REFUSED = "Wrong, forbidden, absent, or (5XX) to be tried again: the message says which"
_error = msgspec.defstruct("Error", [("message", str), ("code", str)])
# Confluent's errors have an error_code; errors of authentication and rights have a code.
_registry_error = msgspec.defstruct(
    "RegistryError", [("message", str), ("error_code", int, UNSET), ("code", str, UNSET)]
)


_SCHEMES = {
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "certificate": {"type": "mutualTLS"},
}
_CREDENTIALS: list[dict[str, list[str]]] = [{name: []} for name in _SCHEMES]


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
            "hermes_actors management", __version__, operation_id_creator=_operation_id
        ),
        logging_config=None,
    )
    described: dict[str, Any] = app.openapi_schema.to_schema()
    _, errors = msgspec.json.schema_components((_error, _registry_error))
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
    described["components"]["securitySchemes"] = _SCHEMES
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
    """Add an operation's tag, its error responses, and who may call it."""
    rule = rule_of(verb, path)
    operation["x-role"], operation["x-changes"] = rule
    # `{}` means that credentials are optional.
    operation["security"] = {Access.OPEN: [], Access.ANYONE: [{}, *_CREDENTIALS]}.get(
        rule.access, _CREDENTIALS
    )
    group = "subscriptions" if path.startswith(_SUBSCRIPTIONS) else path.split("/")[1]
    operation["tags"] = [group]
    error = "RegistryError" if path.startswith(REGISTRY) else "Error"
    refused = {"$ref": f"#/components/responses/{error}"}
    # The framework describes its own format for this error, which is not used.
    operation["responses"].pop("400", None)
    operation["responses"].update({"4XX": refused, "5XX": refused})
    for each in operation.get("parameters", ()):
        # A parameter in a query can be missing, but not null.
        kinds = each["schema"].pop("oneOf", [{}])
        each["schema"].update(kinds[0])
