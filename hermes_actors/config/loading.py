"""Reads the configuration from TOML and `HERMES_…` variables; unknown fields are refused."""

import logging
import re
import types
import typing
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes_actors.config.checks import check
from hermes_actors.config.misspelt import did_you_mean, did_you_mean_variable
from hermes_actors.config.tree import Config
from hermes_actors.errors import ConfigError
from hermes_actors.model.places import explained

_log = logging.getLogger(__name__)

_ENV_PREFIX = "HERMES_"
# The command line's own: where its commands send requests, not how a node runs.
_CLIENT_VARIABLES = frozenset(
    {
        "HERMES_MANAGEMENT_URL",
        "HERMES_PUBLISH_URL",
        "HERMES_TOKEN_FILE",
        "HERMES_USER",
        "HERMES_PASSWORD_FILE",
        "HERMES_CA_FILE",
        "HERMES_CERT_FILE",
        "HERMES_KEY_FILE",
    }
)
# What Kubernetes puts into every pod for a Service named `hermes…`; no field is named so.
_INJECTED = re.compile(
    r"HERMES(_[A-Z0-9_]+)?_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)"
    r"|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_INJECTED_URL = re.compile(r"(tcp|udp|sctp)://.*")
_PAGE = "docs/configuration.md lists every field"
_UNKNOWN = re.compile("Object contains unknown field `(.*)`")
_decode = partial(msgspec.convert, type=Config)


def load(
    path: Path | None,
    environment: Mapping[str, str],
    defaults: Mapping[str, Mapping[str, Any]] = types.MappingProxyType({}),
) -> Config:
    """Read the file (none: defaults), put `HERMES_SECTION_FIELD` variables over it, check all.

    Variables that Kubernetes sets for Services named `hermes…` are passed over. `defaults` (section
    → field → value, or a section in it) stand in for the built-in ones, under the file.
    Raises ConfigError.
    """
    tree: dict[str, Any] = {}
    if path is not None:
        try:
            tree = msgspec.toml.decode(path.read_bytes())
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot be read: {error.strerror}; name another file"
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not valid TOML: {error}") from error
    variables: dict[str, str] = {}
    for name, text in sorted(environment.items()):
        if not name.startswith(_ENV_PREFIX) or name in _CLIENT_VARIABLES:
            continue
        is_url = name.endswith("_PORT") and _INJECTED_URL.fullmatch(text)
        if is_url or _INJECTED.fullmatch(name):
            _log.debug("%s: passed over: Kubernetes sets it for a Service", name)
            continue
        variables[_overlay(tree, name, text)] = name
    _put_under(tree, defaults)
    try:
        config: Config = _decode(tree)
    except msgspec.ValidationError as error:
        place, problem = explained(tree, _decode, error)
        field_path = place.removeprefix(".").partition("[")[0]
        source = variables.get(field_path) or str(path or "configuration")
        section = place.removeprefix(".")
        where = f"{section}: " if section else ""
        unknown = _UNKNOWN.fullmatch(problem)
        meant = did_you_mean(Config, section, unknown[1]) if unknown else _choices(field_path)
        raise ConfigError(
            f"{source}: {where}{problem}{meant}; {_PAGE}, its default and its unit"
        ) from error
    check(config)
    return config


def _put_under(tree: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """The defaults where the tree holds nothing; sections within sections likewise."""
    for name, value in defaults.items():
        if isinstance(value, Mapping):
            given = tree.setdefault(name, {})
            if isinstance(given, dict):
                _put_under(given, value)
        else:
            tree.setdefault(name, value)


def _choices(field_path: str) -> str:
    """Return which words a field may hold, for people; "" when it may hold others."""
    kind: Any = Config
    for name in field_path.split("."):
        fields = {each.name: each.type for each in msgspec.structs.fields(kind)}
        if name not in fields:
            return ""
        kind = fields[name]
        if not _is_struct(kind):
            break
    if typing.get_origin(kind) is list:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is not typing.Literal:
        return ""
    return f"; it is one of {', '.join(typing.get_args(kind))}"


def _overlay(tree: dict[str, Any], variable: str, text: str) -> str:
    """Put one environment variable into the tree; sections are separated by one underscore.

    Gives the field's path, as `frontend.port`.
    """
    rest = variable.removeprefix(_ENV_PREFIX).lower()
    struct: type[Struct] = Config
    node = tree
    path = ""
    while True:
        fields = {each.name: each for each in msgspec.structs.fields(struct)}
        if rest in fields:
            kind = fields[rest].type
            if _is_struct(kind) or _is_table(kind):
                raise ConfigError(f"{variable}: names a section, not a field; add the field's name")
            node[rest] = _parse(variable, text, kind)
            return path + rest
        section = next((n for n in fields if rest.startswith(n + "_")), None)
        if section is None:
            raise _no_such(variable)
        kind, rest = fields[section].type, rest.removeprefix(section + "_")
        node = _section(node, section)
        path += f"{section}."
        if _is_table(kind):
            kind = typing.get_args(kind)[1]
            entry = _entry(node, rest, kind)
            if entry is None:
                raise _no_such(variable)
            name, rest = entry
            node = _section(node, name)
            path += f"{name}."
        if not _is_struct(kind):
            raise _no_such(variable)
        struct = kind


def _no_such(variable: str) -> ConfigError:
    meant = did_you_mean_variable(Config, _ENV_PREFIX, sorted(_CLIENT_VARIABLES), variable)
    return ConfigError(f"{variable}: no such field{meant}; {_PAGE}")


def _section(node: dict[str, Any], name: str) -> dict[str, Any]:
    section = node.setdefault(name, {})
    if not isinstance(section, dict):
        raise ConfigError(f"{name}: is a section, not a value; write [{name}] above its fields")
    return section


def _entry(table: dict[str, Any], rest: str, kind: type[Struct]) -> tuple[str, str] | None:
    """(name, field) of a table's entry that the rest of a variable names.

    A name that the file has may hold any character, each but letters and digits written as an
    underscore; a new one is in lower case.
    """
    for field_name in sorted((each.name for each in msgspec.structs.fields(kind)), key=len)[::-1]:
        if rest.endswith("_" + field_name):
            written = rest.removesuffix("_" + field_name)
            known = (name for name in table if re.sub(r"[^a-z0-9]", "_", name.lower()) == written)
            return next(known, written), field_name
    return None


def _is_table(kind: Any) -> bool:
    return typing.get_origin(kind) is dict


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _parse(variable: str, text: str, kind: Any) -> Any:
    if typing.get_origin(kind) in (list, types.GenericAlias):
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{variable}: '{text}' is not a boolean; write true or false")
        return text.lower() == "true"
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError as error:
            what = (
                "a whole number; write digits only" if kind is int else "a number; write 0.5, say"
            )
            raise ConfigError(f"{variable}: '{text}' is not {what}") from error
    return text
