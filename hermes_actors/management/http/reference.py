"""The reader's page of the OpenAPI document: one HTML page without scripts and foreign content."""

import json
import shlex
from base64 import b64encode
from collections import defaultdict
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

import anyio
from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from hermes_actors.management.http.answers import Answer

_STYLE = (files(__package__) / "reference.css").read_text("utf-8")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; "
    f"style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def reference_route(document: bytes) -> HTTPRouteHandler:
    """/docs, the page of this document."""

    @get("/docs", include_in_schema=False)
    async def reference() -> Answer:
        # It takes a tenth of a second, so a thread creates it when it is first needed.
        page = await anyio.to_thread.run_sync(_page, document)
        return Response(page, media_type="text/html", headers=_HEADERS)

    return reference


@cache
def _page(document: bytes) -> bytes:
    described = json.loads(document)
    schemas = described["components"]["schemas"]
    operations = defaultdict[str, list[dict[str, Any]]](list)
    for path, item in described["paths"].items():
        for verb, operation in item.items():
            bodies = operation.get("requestBody", {}).get("content", {}).values()
            taken: dict[str, Any] = next((each["schema"] for each in bodies), {})
            operation |= {"verb": verb.upper(), "path": path, "takes": taken}
            operation["curl"] = _curl(operation, _named(taken, schemas))
            operations[operation["tags"][0]].append(operation)
    texts = {each["name"]: each["description"] for each in described["tags"]}
    environment = Environment(
        loader=PackageLoader("hermes_actors.management.http", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["json"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    template = environment.get_template("reference.html")
    tags = {name: texts.get(name, "") for name in (*texts, *operations) if name in operations}
    return template.render(
        info=described["info"], style=_STYLE, tags=tags, operations=operations, schemas=schemas
    ).encode()


def _named(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema to which this one refers, or itself."""
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = schemas.get(name, schema)
    return found


def _curl(operation: dict[str, Any], body: dict[str, Any]) -> str:
    """A command that makes an example of a request."""
    path, query = operation["path"], {}
    for each in operation.get("parameters", ()):
        example = str(each.get("example", each["name"]))
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(example))
        elif each["required"]:
            query[each["name"]] = example
    url = f"localhost:8090{path}{'?' if query else ''}{urlencode(query)}"
    words = ["curl", *(["-X", operation["verb"]] if operation["verb"] != "GET" else []), url]
    if body:
        example = json.dumps(body.get("examples", [{}])[0], ensure_ascii=False)
        words += ["-H", "Content-Type: application/json", "-d", example]
    return shlex.join(words)
