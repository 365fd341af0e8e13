"""Puts variables into a compose file's texts, by the Compose specification's rules."""

import re
from collections.abc import Mapping
from typing import Any

from hermes_local.failures import LaunchFailed

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r":-|:\?|:\+|-|\?|\+")


class ComposeWrong(LaunchFailed):
    """The compose file, or what is asked of it, cannot be run here; the message names the place."""


def interpolated(value: Any, variables: Mapping[str, str], place: str) -> Any:
    """The same tree with every text interpolated; keys stay as they are. Raises ComposeWrong."""
    if isinstance(value, str):
        return interpolate(value, variables, place)
    if isinstance(value, Mapping):
        return {
            key: interpolated(each, variables, f"{place}.{key}" if place else str(key))
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [interpolated(each, variables, f"{place}[{n}]") for n, each in enumerate(value)]
    return value


def interpolate(text: str, variables: Mapping[str, str], place: str) -> str:
    """One text: `$NAME`, `${NAME}`, and with `:-`, `-`, `:?`, `?`, `:+` or `+`; `$$` is a dollar.

    Stricter than Compose in one thing: a variable that is not set and has no default is an error
    here, where Compose warns and takes nothing. Raises ComposeWrong.
    """
    result, rest = _text(text, variables, place, is_nested=False)
    assert not rest, "only a nested text ends before its end"
    return result


def _text(
    text: str, variables: Mapping[str, str], place: str, *, is_nested: bool
) -> tuple[str, str]:
    """(what it comes to, what is left of it); a nested one ends before its closing brace."""
    pieces: list[str] = []
    while text:
        if is_nested and text.startswith("}"):
            break
        if text.startswith("$$"):
            pieces.append("$")
            text = text[2:]
        elif text.startswith("${"):
            piece, text = _braced(text[2:], variables, place)
            pieces.append(piece)
        elif text.startswith("$"):
            name = _NAME.match(text, 1)
            if name is None:
                raise ComposeWrong(f"{place}: a lone $ in '{text}'; write $$ for a dollar")
            pieces.append(_value(name[0], variables, place))
            text = text[name.end() :]
        else:
            pieces.append(text[0])
            text = text[1:]
    return "".join(pieces), text


def _braced(text: str, variables: Mapping[str, str], place: str) -> tuple[str, str]:
    """What stands after `${`, up to and with its closing brace."""
    name = _NAME.match(text)
    if name is None:
        raise ComposeWrong(f"{place}: '${{{text}' names no variable")
    rest = text[name.end() :]
    if rest.startswith("}"):
        return _value(name[0], variables, place), rest[1:]
    operator = _OPERATOR.match(rest)
    if operator is None:
        raise ComposeWrong(f"{place}: '${{{text}' is not understood; known are :- - :? ? :+ +")
    # The other side is read even where it is not used: its end has to be found.
    other_from = rest[operator.end() :]
    value = variables.get(name[0])
    is_given = bool(value) if operator[0].startswith(":") else value is not None
    kind = operator[0][-1]
    wants_other = is_given if kind == "+" else not is_given
    other, rest = _text(
        other_from, variables if wants_other else _Anything(), place, is_nested=True
    )
    if not rest.startswith("}"):
        raise ComposeWrong(f"{place}: '${{{text}' has no closing brace")
    rest = rest[1:]
    if kind == "?" and wants_other:
        raise ComposeWrong(f"{place}: the variable {name[0]} is needed: {other or 'set it'}")
    if kind == "+":
        return (other if wants_other else ""), rest
    return (other if wants_other else value or ""), rest


def _value(name: str, variables: Mapping[str, str], place: str) -> str:
    if name not in variables:
        raise ComposeWrong(
            f"{place}: the variable {name} is not set; set it, or write ${{{name}:-}} for nothing"
        )
    return variables[name]


class _Anything(dict[str, str]):
    """Every variable, empty: for the side of a choice that is not taken."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> str:
        return ""
