"""GraphQL types from the product's structs, and from the table in answers.txt, so that both APIs
have the same fields.

In the table a field is a String unless it says otherwise; `?`: it may be null; `*`: a list. A lag
of -1 is unknown.
"""

from dataclasses import asdict
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import GenericAlias
from typing import Any, NewType

import msgspec
import strawberry
from msgspec import Struct
from strawberry import UNSET
from strawberry.scalars import JSON

from hermes_actors.model.subscription import BEYOND_HERMES, Subscription
from hermes_actors.model.topic import Topic

LONG = NewType("LONG", int)
_READ_ONLY = ("createdAt", "modifiedAt")
_LEAVES = {"IntType": int, "FloatType": float, "BoolType": bool, "StrType": str}
LEFT_OUT = {
    each.encode_name: msgspec.to_builtins(each.default)
    for struct in (Topic, Subscription)
    for each in msgspec.structs.fields(struct)
    if each.name in BEYOND_HERMES[struct] and isinstance(each.default, StrEnum | bool)
}
"""Defaults that REST leaves out, by field."""
ANSWERS: dict[str, Any] = {"": str, "Int": int, "Float": float, "Boolean": bool}
ANSWERS |= {"JSON": JSON, "Long": LONG}
"""The types of the table, by name."""


def object_of(name: str, kinds: dict[str, Any], of: type | None = None, options: Any = None) -> Any:
    """The type with fields of these kinds, and with those of the class `of`."""
    members = {key: each for key, each in vars(of or object).items() if not key.startswith("_")}
    members |= {each: strawberry.field(**(options or {}).get(each, {})) for each in kinds}
    decorate: Any = strawberry.input if name.endswith("Input") else strawberry.type
    return decorate(type(name, (), {**members, "__annotations__": kinds}))


def list_of(kind: Any) -> Any:
    """The type of lists of this type."""
    return GenericAlias(list, (kind,))


@cache
def kind_of(struct: type[Struct], name: str, of: type | None = None) -> Any:
    """The type of a struct, also with the fields of the class `of`. A name that ends with `Input`
    is of a type for arguments.
    """
    is_input, kinds, options = name.endswith("Input"), dict[str, Any](), dict[str, Any]()
    for each in msgspec.structs.fields(struct):
        if is_input and each.encode_name in _READ_ONLY:
            continue
        kind, choices = _kind(msgspec.inspect.type_info(each.type), is_input)
        option = {"description": f"One of {choices}."} if choices else {}
        # A pull subscription has no endpoint.
        is_sent = each.required or (each.encode_name in LEFT_OUT and not is_input)
        if not is_sent or (is_input and each.encode_name == "endpoint"):
            kind |= None
            option |= {"default": UNSET} if is_input else {}
        kinds[each.encode_name], options[each.encode_name] = kind, option
    return object_of(name, kinds, of, options)


def _kind(info: Any, is_input: bool) -> tuple[Any, str]:
    """The type of a field, and its values if it is an enum."""
    match type(info).__name__:
        case "UnionType":
            others = [e for e in info.types if type(e).__name__ not in ("NoneType", "UnsetType")]
            return _kind(others[0], is_input) if len(others) == 1 else (JSON, "")
        case "EnumType":
            return str, ", ".join(each.value for each in info.cls)
        case "ListType":
            inner, choices = _kind(info.item_type, is_input)
            return list_of(inner), choices
        case "StructType":
            return kind_of(info.cls, info.cls.__name__ + "Input" * is_input), ""
        case leaf:
            return _LEAVES.get(leaf, JSON), ""


def as_body(value: Any) -> dict[str, Any]:
    """An argument as the JSON that REST takes, without fields that the caller left out."""
    return asdict(value, dict_factory=lambda pairs: {k: v for k, v in pairs if v is not UNSET})


for _row in (files(__package__) / "answers.txt").read_text("utf-8").splitlines():
    _name, *_cells = _row.split()
    _kinds: dict[str, Any] = {}
    for _field, _, _of in (_cell.partition(":") for _cell in _cells):
        _type = ANSWERS[_of.rstrip("?*")]
        _type = list_of(_type) if "*" in _of else _type
        _kinds[_field] = _type | None if "?" in _of else _type
    ANSWERS[_name] = object_of(_name, _kinds)
