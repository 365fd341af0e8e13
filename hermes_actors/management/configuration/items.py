"""The items of a configuration: its groups, OAuth providers, topics, subscriptions and workload
constraints, each in the wire form of the REST API. Pure; the command line uses it too.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.bodies.endpoint import MASKED_PASSWORD
from hermes_actors.model.group import Group
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.redaction import MASK
from hermes_actors.model.subscription import BatchPolicy, DeliveryType, SerialPolicy, Subscription
from hermes_actors.model.topic import Topic
from hermes_actors.model.workload import Constraints

READ_ONLY = frozenset(
    {
        "createdAt",
        "modifiedAt",
        "suspendedAt",
        "suspendedBy",
        "suspensionReason",
        "backoffMaxIntervalMillis",
    }
)
"""Fields that the broker shows, but does not take."""

# A topic's own field, and the client's for a file that contains it.
_Topic = msgspec.defstruct("Topic", [("schema", Any)], bases=(Topic,), kw_only=True)
_Constraint = msgspec.defstruct(
    "Constraint",
    [("topic_name", str), ("subscription_name", str), ("constraints", Constraints)],
    rename="camel",
)
KINDS: dict[str, type[Struct]] = {
    "oauthProviders": OAuthProvider,
    "groups": Group,
    "topics": _Topic,
    "subscriptions": Subscription,
    "workloadConstraints": _Constraint,
}
"""The lists of a configuration, in the order in which they are applied."""

_PATHS = {
    "oauthProviders": "oauth/providers/{}",
    "groups": "groups/{}",
    "topics": "topics/{}",
    "subscriptions": "topics/{}/subscriptions/{}",
    "workloadConstraints": "workload-constraints/subscription/{}/{}",
}
"""The path of each kind in the REST API, and below the fields with its names."""
_NAMES = {
    "oauthProviders": ("name",),
    "groups": ("groupName",),
    "topics": ("name",),
    "subscriptions": ("topicName", "name"),
    "workloadConstraints": ("subscriptionName",),
}


class Item(Struct, frozen=True):
    """One item: the list that it is in, its path in the REST API, its names in that path, and its
    JSON object. `parent` is the path of the group or topic that it is in, or empty.
    """

    kind: str
    resource: str
    names: tuple[str, ...]
    body: Mapping[str, Any]
    parent: str = ""


def item_of(kind: str, body: object, place: str) -> Item:
    """The item with this JSON object. `place` is where it is, for errors. Raises Refused."""
    if not isinstance(body, Mapping):
        raise Refused(f"{place} must be an object, with the fields of the API")
    path, fields = _PATHS[kind], _NAMES[kind]
    if kind == "workloadConstraints" and "topicName" in body:
        path, fields = "workload-constraints/topic/{}", ("topicName",)
    names: list[str] = []
    for field in fields:
        name = body.get(field)
        if not isinstance(name, str) or not name:
            raise Refused(f"{place}.{field} must be a name")
        names += name.split("$", 1) if field == "subscriptionName" else [name]
    if len(names) != path.count("{}"):
        raise Refused(f"{place}.subscriptionName must be <group>.<topic>$<subscription>")
    return Item(kind, path.format(*names), tuple(names), body, _parent(kind, names[0]))


def items_of(configuration: object) -> list[Item]:
    """All items of the configuration, in the order in which they are applied. Raises Refused with
    FORMAT_ERROR for unknown lists, and for items without a name or that come twice.
    """
    if not isinstance(configuration, Mapping):
        raise Refused(f"Expected an object with the lists {', '.join(KINDS)}")
    for name, listed in configuration.items():
        if name not in KINDS:
            raise Refused(f"{name} is unknown{nearest(name, KINDS)}", ErrorCode.FORMAT_ERROR)
        if not isinstance(listed, list | None):
            raise Refused(f"{name} must be a list", ErrorCode.FORMAT_ERROR)
    items: dict[str, Item] = {}
    for kind in KINDS:
        for at, body in enumerate(configuration.get(kind) or ()):
            item = item_of(kind, body, f"{kind}[{at}]")
            if items.setdefault(item.resource, item) is not item:
                raise Refused(f"{item.resource} appears twice", ErrorCode.FORMAT_ERROR)
    return [*items.values()]


def problems_of(item: Item, *, suggests: bool = True) -> Iterator[str]:
    """Yield what is wrong with an item by itself: unknown fields, and masks in place of secrets.
    `suggests`: also the nearest known names, which is slow.
    """
    kind = KINDS[item.kind]
    body = dict(item.body)
    is_policy_known = item.kind == "subscriptions" and "deliveryType" in body
    if is_policy_known:
        is_batch = body["deliveryType"] == DeliveryType.BATCH
        policy = body.pop("subscriptionPolicy", None)
        of_policy = BatchPolicy if is_batch else SerialPolicy
        yield from _unknown(of_policy, policy, "subscriptionPolicy", suggests)
    yield from _unknown(kind, body, "", suggests)
    for path in _masks(item.body, ""):
        yield (
            f"{path}: asterisks are not the secret; write ${{env:NAME}} or ${{file:PATH}}, or "
            "leave the field out to keep the stored one"
        )


def nearest(name: str, known: Iterable[str]) -> str:
    """Words that name the known name most like this one, or all of them."""
    names = list(known)
    found = get_close_matches(name, names, 1)
    return f"; did you mean {found[0]}?" if found else f"; known are {', '.join(names)}"


def _parent(kind: str, name: str) -> str:
    if kind == "topics":
        return f"groups/{name.rpartition('.')[0]}"
    return f"topics/{name}" if kind == "subscriptions" else ""


def _unknown(kind: Any, value: Any, path: str, suggests: bool) -> Iterator[str]:
    """Yield the fields in a JSON value that its type does not have."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _unknown(next(iter(get_args(kind)), Any), each, f"{path}[{index}]", suggests)
    if not isinstance(value, Mapping):
        return
    if get_origin(kind) is dict:
        for name, each in value.items():
            yield from _unknown(get_args(kind)[1], each, f"{path}.{name}", suggests)
    known = _fields(kind)
    for name, each in value.items() if known else ():
        at = f"{path}.{name}" if path else str(name)
        if name in known:
            yield from _unknown(known[name], each, at, suggests)
        elif name not in READ_ONLY:
            yield f"{at} is unknown{nearest(str(name), known) if suggests else ''}"


@cache
def _fields(kind: Any) -> dict[str, Any]:
    """The types of all fields of a Struct, or of the Structs in a union, by their names in JSON."""
    structs = [e for e in (kind, *get_args(kind)) if isinstance(e, type) and issubclass(e, Struct)]
    return {each.encode_name: each.type for one in structs for each in msgspec.structs.fields(one)}


def _masks(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of texts that hold the mask of a secret."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _masks(each, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _masks(each, f"{path}[{at}]")
    elif value == MASK or (isinstance(value, str) and f":{MASKED_PASSWORD}@" in value):
        yield path
