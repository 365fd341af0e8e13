"""Reads the configuration from TOML and `HERMES_…` variables; unknown fields are errors."""

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
from hermes_actors.config.tree import Config
from hermes_actors.errors import ConfigError
from hermes_actors.model.places import explained, words_at

_log = logging.getLogger(__name__)

_ENV_PREFIX = "HERMES_"
# Variables of the CLI, which are not settings of a node.
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
# Variables that Kubernetes sets in every pod for a Service named `hermes…`; no field has such a
# name.
_INJECTED = re.compile(
    r"HERMES(_[A-Z0-9_]+)?_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)"
    r"|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_INJECTED_URL = re.compile(r"(tcp|udp|sctp)://.*")
_PAGE = "docs/configuration.md lists every field"
_decode = partial(msgspec.convert, type=Config)


def load(
    path: Path | None,
    environment: Mapping[str, str],
    defaults: Mapping[str, Mapping[str, Any]] = types.MappingProxyType({}),
) -> Config:
    """Read the file (None for defaults only), override it with `HERMES_SECTION_FIELD` variables,
    and check the result.

    Variables that Kubernetes sets for Services named `hermes…` are ignored. `defaults` (section →
    field → value, or nested sections) replace built-in defaults. Raises ConfigError.
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
            _log.debug("%s: ignored, because Kubernetes sets it for a Service", name)
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
        if words := words_at(Config, place):
            problem += f"; it is one of {', '.join(words)}"
        raise ConfigError(
            f"{source}: {where}{problem}; {_PAGE}, its default and its unit"
        ) from error
    check(config)
    return config


def _put_under(tree: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Add the defaults for fields that are missing in the tree, also in nested sections."""
    for name, value in defaults.items():
        if isinstance(value, Mapping):
            given = tree.setdefault(name, {})
            if isinstance(given, dict):
                _put_under(given, value)
        else:
            tree.setdefault(name, value)


def _overlay(tree: dict[str, Any], variable: str, text: str) -> str:
    """Put one environment variable into the tree; its sections are separated by underscores.

    Returns the field's path, such as `frontend.port`.
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
    return ConfigError(f"{variable}: no such field; {_PAGE}")


def _section(node: dict[str, Any], name: str) -> dict[str, Any]:
    section = node.setdefault(name, {})
    if not isinstance(section, dict):
        raise ConfigError(f"{name}: is a section, not a value; write [{name}] above its fields")
    return section


def _entry(table: dict[str, Any], rest: str, kind: type[Struct]) -> tuple[str, str] | None:
    """Return (name, field) of the table's entry that the rest of a variable names; None if no
    field matches.

    A variable refers to a name in the file with an underscore for each character other than letters
    and digits. A name that is not in the file is in lower case.
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
