"""Suggests the field that a misspelt name may stand for, for error messages. Pure."""

import difflib
import typing
from collections.abc import Collection, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from hermes_actors.model.places import kind_at


def did_you_mean(root: type[Struct], place: str, name: str) -> str:
    """Return "; did you mean frontend.port?" for `prot` at `frontend`; empty if nothing is similar.

    `place` is the section's path, with `[name]` for entries of tables; empty for the root.
    """
    kind = kind_at(root, f".{place}" if place else "")
    near = difflib.get_close_matches(name, _fields(kind), n=1)
    prefix = f"{place}." if place else ""
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def did_you_mean_variable(
    root: type[Struct], prefix: str, others: Collection[str], variable: str
) -> str:
    """As `did_you_mean`, for a variable, whose name contains the whole path. `others` are variables
    that are not fields.
    """
    names = [*others, *(prefix + path.upper() for path in _paths(root, ""))]
    near = difflib.get_close_matches(variable, names, n=1, cutoff=0.8)
    return f"; did you mean {near[0]}?" if near else ""


def _paths(kind: type[Struct], above: str) -> Iterator[str]:
    for name, each in _fields(kind).items():
        if _fields(each):
            yield from _paths(each, f"{above}{name}_")
        elif not _of_entries(each):
            yield above + name


def _fields(kind: Any) -> dict[str, Any]:
    if not (isinstance(kind, type) and issubclass(kind, Struct)):
        return {}
    return {each.name: each.type for each in msgspec.structs.fields(kind)}


def _of_entries(kind: Any) -> Any:
    return typing.get_args(kind)[1] if typing.get_origin(kind) is dict else None
