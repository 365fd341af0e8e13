"""Reads the files of a configuration, YAML or JSON, and resolves their references."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from hermes_actors.cli.command_line.bodies import text_from_file
from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.output.render import counted, printable
from hermes_actors.errors import Refused
from hermes_actors.management.configuration.documents import items_in
from hermes_actors.management.configuration.items import Item, item_of, problems_of

SUFFIXES = (".yaml", ".yml", ".json")
# "$${env:…}" is the text "${env:…}".
REFERENCE = re.compile(r"\$(\$?)\{(env|file):([^}]*)\}")


class Found(Struct, frozen=True):
    """An item, and its file and line."""

    item: Item
    place: str


def read(names: list[str]) -> list[Found]:
    """Read all items of these files and folders. Raises UsageWrong after printing each error."""
    errors: list[str] = []
    found: dict[str, Found] = {}
    for path in _files(names):
        folder = Path() if path == "-" else Path(path).parent
        for kind, body, place in _bodies(path, errors):
            try:
                each = Found(item_of(kind, _resolved(body, folder), place), place)
            except (Refused, ValueError) as error:
                name = body.get("name", kind) if isinstance(body, dict) else kind
                text = error.message if isinstance(error, Refused) else f"{place} {name}: {error}"
                errors.append(text)
                continue
            name = each.item.resource
            errors += [f"{place} {name}: {problem}" for problem in problems_of(each.item)]
            if (first := found.setdefault(name, each)) is not each:
                errors.append(f"{place} {name}: is in {first.place} already")
    for text in errors:
        print(f"hermes: {printable(text)}", file=sys.stderr)
    if errors:
        raise UsageWrong(f"nothing was done: {counted(len(errors), 'error')} in the files")
    return [*found.values()]


def _files(names: list[str]) -> Iterator[str]:
    for name in names:
        if not Path(name).is_dir():
            yield name
            continue
        inside = [
            each
            for each in sorted(Path(name).rglob("*"))
            # A topic's schema may lie beside its file.
            if each.suffix in SUFFIXES
            and not each.name.endswith(".schema.json")
            and not any(part.startswith(".") for part in each.relative_to(name).parts)
        ]
        if not inside:
            raise UsageWrong(f"-f {name}: there is no file *{', *'.join(SUFFIXES)} in it")
        yield from map(str, inside)


def _bodies(path: str, errors: list[str]) -> Iterator[tuple[str, Any, str]]:
    """Yield each item's list, value and place; add why the file cannot be read to `errors`."""
    try:
        text = text_from_file("-f", path)
        for kind, body, place in items_in(text, is_json=path.endswith(".json")):
            yield kind, body, f"{path}{place}"
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        errors.append(f"{path} cannot be read: {error}")


def _resolved(value: Any, folder: Path, path: str = "") -> Any:
    """The value with its references resolved. Raises ValueError, which names the field."""
    if isinstance(value, dict):
        found = {str(k): _resolved(v, folder, f"{path}.{k}".lstrip(".")) for k, v in value.items()}
        if not path and "schemaFile" in found:
            if "schema" in found:
                raise ValueError("give schema or schemaFile")
            found["schema"] = _content(folder / str(found.pop("schemaFile")), "schemaFile")
        return found
    if isinstance(value, list):
        return [_resolved(each, folder, f"{path}[{at}]") for at, each in enumerate(value)]
    if not isinstance(value, str):
        return value

    def referred(match: re.Match[str]) -> str:
        escaped, source, name = match.groups()
        if escaped:
            return match[0][1:]
        if source == "file":
            return _content(folder / name, path).rstrip("\r\n")
        if name not in os.environ:
            raise ValueError(f"{path}: {match[0]}: the environment has no variable {name}")
        return os.environ[name]

    return REFERENCE.sub(referred, value)


def _content(file: Path, field: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"{field}: {file} cannot be read: {reason}") from error
