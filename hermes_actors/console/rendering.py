"""Renders the templates, and serves the files that pages refer to."""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import anyio
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from hermes_actors import __version__
from hermes_actors.console.formats import FILTERS
from hermes_actors.management.http.answers import Answer

STATIC = "/console/static"
_HERE = Path(__file__).parent
_ERROR = "error.html"
_PIECES_IN_A_TURN = 400
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Templates:
    """The templates. They escape whatever they are given."""

    def __init__(self, files: Mapping[str, str]) -> None:
        """`files`: the addresses of the files that pages refer to, by their names."""
        self._environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(FILTERS)
        self._environment.globals |= {"files": files, "version": __version__}
        self._compiled: dict[str, Template] = {}
        # At the start, because `render_error` cannot leave the loop.
        self._compile(_ERROR)

    async def render(self, name: str, shown: Mapping[str, Any]) -> bytes:
        """The page. Other tasks run between its pieces: rows of tables, not the inside of a
        macro. May be awaited on either loop.
        """
        if name not in self._compiled:
            await anyio.to_thread.run_sync(self._compile, name)
        pieces: list[str] = []
        for piece in self._compiled[name].generate(shown):
            pieces.append(piece)
            if len(pieces) % _PIECES_IN_A_TURN == 0:
                await anyio.lowlevel.checkpoint()
        return "".join(pieces).encode()

    def render_error(self, shown: Mapping[str, Any]) -> bytes:
        """The page for an error."""
        return self._compiled[_ERROR].render(shown).encode()

    def _compile(self, name: str) -> None:
        """Takes up to 0.2 s. All templates together take a second, so a node does not start with
        them.
        """
        # Rendering would compile the templates that this one refers to on the loop.
        for other in re.findall(r'"(\w+\.html)"', (_HERE / "templates" / name).read_text()):
            if other not in self._compiled:
                self._compile(other)
        self._compiled[name] = self._environment.get_template(name)


@cache
def templates() -> Templates:
    """Shared by the consoles of a process: `hermes dev` has one for each datacentre."""
    return Templates(Files().addresses)


class Files:
    """The files that pages refer to. Their names hold a digest, so browsers may keep them."""

    def __init__(self) -> None:
        self._contents: dict[str, tuple[bytes, str]] = {}
        self.addresses: dict[str, str] = {}
        for path in sorted((_HERE / "static").iterdir()):
            if path.suffix in _TYPES:
                content = path.read_bytes()
                digest = hashlib.blake2b(content, digest_size=6).hexdigest()
                name = f"{path.stem}.{digest}{path.suffix}"
                self._contents[name] = content, _TYPES[path.suffix]
                self.addresses[path.name] = f"{STATIC}/{name}"

    def route(self) -> HTTPRouteHandler:
        """The route of all files. They need no account."""

        @get("/static/{name:str}")
        async def file(name: FromPath[str]) -> Answer:
            content, media_type = self._contents.get(name, (b"", "text/plain"))
            if not content:
                return Response(b"", status_code=404, media_type=media_type)
            caching = {"cache-control": "public, max-age=31536000, immutable"}
            return Response(content, media_type=media_type, headers=caching)

        return file
