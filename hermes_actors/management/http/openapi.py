"""The OpenAPI 3.1 document: the routes as the framework sees them, the bodies as the model does."""

from typing import Any

import msgspec
from litestar import Litestar
from msgspec import Struct

from hermes_actors.coordination.views import (
    MemberView,
    MoveView,
    PlanView,
    SkewView,
    SubscriptionView,
)
from hermes_actors.management.balancing.operating import (
    DrainRequest,
    SubscriptionConstraints,
    TopicConstraints,
)
from hermes_actors.management.messages.filters import FilterTest
from hermes_actors.management.messages.trials import PushTest
from hermes_actors.model.group import Group
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.push_trial import PushTrial
from hermes_actors.model.subscription import BatchPolicy, SerialPolicy, Subscription
from hermes_actors.model.topic import Topic

_REF = "#/components/schemas/{name}"
_OBJECT: dict[str, Any] = {"type": "object"}
_NAMES: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
_STATE: dict[str, Any] = {"type": "string", "enum": ["ACTIVE", "PENDING", "SUSPENDED"]}
_CONSTRAINTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        field: {"type": "object", "additionalProperties": {"$ref": _REF.format(name="Constraints")}}
        for field in ("topicConstraints", "subscriptionConstraints")
    },
}
_BALANCER: dict[str, Any] = {
    "skew": {"$ref": _REF.format(name="SkewView")},
    "members": {"type": "array", "items": {"$ref": _REF.format(name="MemberView")}},
    "subscriptions": {"type": "array", "items": {"$ref": _REF.format(name="SubscriptionView")}},
}
_EXPLAINED: dict[str, Any] = {
    "why": _NAMES,
    "moves": {"type": "array", "items": {"$ref": _REF.format(name="MoveView")}},
}
_TRIAL: dict[str, Any] = {
    "allOf": [{"$ref": _REF.format(name="PushTrial")}],
    "properties": {"datacenter": {"type": "string"}, "node": {"type": "string"}},
}
_SECRET: dict[str, Any] = {
    "type": "object",
    "properties": {"secret": {"type": "string", "description": "Left out, a new one is made."}},
}
_ROTATED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "secret": {"type": "string", "description": "The new one, if the request named none."},
        "olderSecrets": {"type": "integer", "description": "So many go on signing beside it."},
    },
    "required": ["olderSecrets"],
}
_MASKED = "Secrets are shown as asterisks; sent back, asterisks mean the secret that is there."


class Error(Struct, frozen=True):
    """The body of every refusal."""

    message: str
    code: str


def document(app: Litestar) -> dict[str, Any]:
    """The document for the app's routes."""
    described: dict[str, Any] = app.openapi_schema.to_schema()
    described["components"] = {"schemas": _schemas()}
    for path, item in described["paths"].items():
        for verb, operation in item.items():
            _describe(path, verb, operation)
    return described


def _describe(path: str, verb: str, operation: dict[str, Any]) -> None:
    error = {"description": "Refused", "content": _json(_ref("Error"))}
    success = next(iter(operation["responses"].values()))
    success.pop("headers", None)
    is_told = verb == "get" or path.endswith(("/test", "/rotate"))
    answer = _answer(path) if is_told else None
    if answer is not None:
        success["content"] = answer
    else:
        success.pop("content", None)
    status = next(iter(operation["responses"]))
    operation["responses"] = {status: success, "default": error}
    body = _body(path) if verb in ("post", "put") else None
    if body is not None:
        is_required = body is not _SECRET
        operation["requestBody"] = {"required": is_required, "content": _json(body)}


def _answer(path: str) -> dict[str, Any] | None:
    """Return the schema, by media type, of the answer to a GET, or to a POST that asks."""
    if path.endswith("/messages"):
        return {"application/x-ndjson": {"schema": {"type": "string"}}}
    if path.endswith("/prometheus"):
        return {"text/plain": {"schema": {"type": "string"}}}
    schemas = {
        "/groups": _NAMES,
        "/groups/{group}": _ref("Group"),
        "/topics": _NAMES,
        "/topics/{topic}": _ref("Topic"),
        "/topics/owner/{source}/{owner}": {"type": "array", "items": _ref("Topic")},
        "/topics/{topic}/clients": _NAMES,
        "/topics/{topic}/subscriptions": _NAMES,
        "/topics/{topic}/subscriptions/{name}": _ref("Subscription"),
        "/topics/{topic}/subscriptions/{name}/state": _STATE,
        "/topics/{topic}/subscriptions/{name}/signing/rotate": _ROTATED,
        "/topics/{topic}/subscriptions/{name}/test": _TRIAL,
        "/subscriptions/owner/{source}/{owner}": {"type": "array", "items": _ref("Subscription")},
        "/oauth/providers": _NAMES,
        "/oauth/providers/{provider}": _ref("OAuthProvider"),
        "/workload-constraints": _CONSTRAINTS,
        "/balancer": _of_datacenters(_BALANCER),
        "/balancer/plan": {"type": "object", "properties": {"plan": _ref("PlanView")}},
        "/balancer/explain": _of_datacenters(_EXPLAINED),
    }
    if path.startswith("/roles"):
        return _json(_NAMES)
    return _json(schemas.get(path, _OBJECT))


def _body(path: str) -> dict[str, Any] | None:
    """Return the schema of the body that a POST or PUT takes; None when it takes none.

    A PUT is a patch, so it takes any part of the same fields.
    """
    if path.endswith("/state"):
        return _STATE
    if path.endswith(("/retire", "/moveOffsetsToTheEnd")):
        return None
    if path.endswith("/rotate"):
        return _SECRET
    if "/dead-letters" in path or path.endswith("/retransmission"):
        return _OBJECT
    if path.startswith("/filters"):
        return _ref("FilterTest")
    if path.endswith("/test"):
        return _ref("PushTest")
    if "/subscriptions" in path:
        return _ref("Subscription")
    if path.startswith("/oauth"):
        return _ref("OAuthProvider")
    if path.startswith("/balancer/drains"):
        return _ref("DrainRequest")
    if path.startswith("/workload-constraints"):
        of_topic = path.endswith("/topic")
        return _ref("TopicConstraints" if of_topic else "SubscriptionConstraints")
    if path.startswith("/topics"):
        return _ref("Topic")
    return _ref("Group") if path.startswith("/groups") else None


def _schemas() -> dict[str, Any]:
    fields = [
        (each.name, each.type, msgspec.field(default=None, name=each.encode_name))
        if not each.required
        else (each.name, each.type, msgspec.field(name=each.encode_name))
        for each in msgspec.structs.fields(Subscription)
        # Its two forms are told apart by deliveryType, which a union of structs cannot say.
        if each.name != "subscription_policy"
    ]
    subscription = msgspec.defstruct("Subscription", fields, kw_only=True)
    _, schemas = msgspec.json.schema_components(
        [
            Group,
            Topic,
            subscription,
            SerialPolicy,
            BatchPolicy,
            OAuthProvider,
            FilterTest,
            PushTest,
            PushTrial,
            TopicConstraints,
            SubscriptionConstraints,
            DrainRequest,
            MemberView,
            SubscriptionView,
            SkewView,
            MoveView,
            PlanView,
            Error,
        ],
        ref_template=_REF,
    )
    properties = schemas["Subscription"]["properties"]
    properties["subscriptionPolicy"] = {"anyOf": [_ref("SerialPolicy"), _ref("BatchPolicy")]}
    schemas["Subscription"]["description"] = f"A subscription. {_MASKED}"
    for kind in ("Topic", "Subscription"):
        for field in ("createdAt", "modifiedAt"):
            schemas[kind]["properties"][field] = {"type": "number", "readOnly": True}
    return dict(sorted(schemas.items()))


def _of_datacenters(properties: dict[str, Any]) -> dict[str, Any]:
    """An object with one of these for each datacentre."""
    each = {"type": "object", "properties": {"datacenter": {"type": "string"}, **properties}}
    return {"type": "object", "properties": {"datacenters": {"type": "array", "items": each}}}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REF.format(name=name)}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
