"""The text of a configuration, YAML or JSON, as one JSON object. Runs in a worker process."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.configuration.items import KINDS, nearest

BYTES_MAX = 262_144
CPU_S = 3.0

_REFERENCE = re.compile(rb"(?<!\$)\$\{(?:env|file):[^}]*\}")


class Loader(yaml.CSafeLoader):
    """Reads YAML. A time stays a text, as in JSON."""

    yaml_implicit_resolvers = {  # noqa: RUF012 -- declared so in the library
        first: [each for each in known if each[0] != "tag:yaml.org,2002:timestamp"]
        for first, known in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


def _require_no_twins(node: Any) -> None:
    """Raises ValueError for a key that appears twice, of which the parser would drop one."""
    if node.id == "scalar":
        return
    keys = [key.value for key, _ in node.value] if node.id == "mapping" else []
    for at, key in enumerate(keys):
        if isinstance(key, str) and key in keys[:at]:
            line = node.value[at][0].start_mark.line + 1
            raise ValueError(f"line {line}: {key} appears twice")
    for each in node.value:
        _require_no_twins(each[1] if node.id == "mapping" else each)


def items_in(text: str, *, is_json: bool) -> Iterator[tuple[str, Any, str]]:
    """Yield the list, the value and the place of each item in all documents of the text.

    Raises ValueError and YAMLError if the text has another form.
    """
    for document, lines in _documents(text, is_json=is_json):
        if not isinstance(document, dict):
            raise ValueError(f"expected an object with lists of items{nearest('', KINDS)}")
        for kind, listed in document.items():
            if kind not in KINDS:
                raise ValueError(f"{kind} is unknown{nearest(str(kind), KINDS)}")
            if not isinstance(listed, list | None):
                raise ValueError(f"{kind} must be a list")
            for at, item in enumerate(listed or ()):
                yield kind, item, f":{lines[kind][at]}" if lines else f" {kind}[{at}]"


def _documents(text: str, *, is_json: bool) -> Iterator[tuple[Any, dict[str, list[int]]]]:
    """Yield each document, and the lines of the items of its lists."""
    if is_json:
        yield json.loads(text), {}
        return
    loader = Loader(text)
    while loader.check_node():
        node: Any = loader.get_node()
        _require_no_twins(node)
        lists = node.value if node.id == "mapping" else ()
        lines = {
            str(kind.value): [item.start_mark.line + 1 for item in listed.value]
            for kind, listed in lists
            if listed.id == "sequence"
        }
        if (document := loader.construct_document(node)) is not None:
            yield document, lines


def configuration_of(text: str) -> bytes:
    """The lists of all documents together, as JSON. Raises Refused.

    References to variables and files are refused: only the client may read its own.
    """
    whole: dict[str, list[Any]] = {}
    try:
        if len(text.encode()) > BYTES_MAX:
            raise ValueError(f"it has more than {BYTES_MAX} bytes; apply a part of it at a time")
        is_json = text.lstrip().startswith("{")
        for event in () if is_json else yaml.parse(text, Loader=Loader):
            if isinstance(event, yaml.AliasEvent):
                # Nested aliases stand for a text that is far larger.
                raise ValueError(f"*{event.anchor} is an alias; write its content instead")
        for kind, item, _ in items_in(text, is_json=is_json):
            whole.setdefault(kind, []).append(item)
        found = msgspec.json.encode(whole)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Refused(f"The text cannot be read: {error}", ErrorCode.FORMAT_ERROR) from error
    if reference := _REFERENCE.search(found):
        raise Refused(
            f"{reference[0].decode()} can be resolved by `hermes apply` only; write the value",
            ErrorCode.FORMAT_ERROR,
        )
    return re.sub(rb"\$(\$\{(?:env|file):)", rb"\1", found)
