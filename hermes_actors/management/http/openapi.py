"""The OpenAPI document, which Litestar makes of the types of the routes."""

from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from msgspec import UNSET, Struct, UnsetType

from hermes_actors import __version__
from hermes_actors.model.group import Group
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.subscription import BatchPolicy, SerialPolicy, Subscription
from hermes_actors.model.topic import Topic

TYPED = "hermes_typed"
"""The option of a route that holds its typed twin: with the body that it takes and the value that
it answers with. The twin is described and never called.
"""


class Error(Struct, frozen=True):
    """The body of every refusal."""

    message: str
    code: str


def _partly(name: str, *kinds: type[Struct], **replaced: type[Struct]) -> type[Struct]:
    """A kind with all fields of these, none of them required."""
    fields = {each.name: each for kind in kinds for each in msgspec.structs.fields(kind)}
    return msgspec.defstruct(
        name,
        [
            (
                each.name,
                replaced.get(each.name, each.type) | UnsetType,
                msgspec.field(default=UNSET, name=each.encode_name),
            )
            for each in fields.values()
        ],
        kw_only=True,
    )


# Which of the two policies it is, deliveryType says.
_POLICY = {"subscription_policy": _partly("SubscriptionPolicy", BatchPolicy, SerialPolicy)}
WholeSubscription: Any = msgspec.defstruct(
    "Subscription",
    [
        (name, kind | UnsetType, msgspec.field(default=UNSET, name="subscriptionPolicy"))
        for name, kind in _POLICY.items()
    ],
    bases=(Subscription,),
    kw_only=True,
)
SubscriptionPatch = _partly("SubscriptionPatch", Subscription, **_POLICY)
TopicPatch = _partly("TopicPatch", Topic)
GroupPatch = _partly("GroupPatch", Group)
OAuthProviderPatch = _partly("OAuthProviderPatch", OAuthProvider)

_REFUSALS = {
    400: "The request is wrong, or what it names does not exist",
    401: "Credentials are needed, or do not hold",
    403: "The caller may not do this",
    404: "There is no such thing",
    503: "Try again later",
}
REFUSALS = {
    status: ResponseSpec(Error, description=text, generate_examples=False)
    for status, text in _REFUSALS.items()
}


def document(routes: Sequence[HTTPRouteHandler]) -> dict[str, Any]:
    """The document of these routes. It takes some 0.3 s to make."""
    # An app of its own: the framework's pages of documentation load scripts from outside.
    app = Litestar(
        [each.opt.get(TYPED, each) for each in routes],
        openapi_config=OpenAPIConfig("hermes_actors management", __version__),
        logging_config=None,
    )
    described: dict[str, Any] = app.openapi_schema.to_schema()
    return described
