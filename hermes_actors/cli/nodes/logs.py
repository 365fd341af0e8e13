"""The log lines of a process that runs nodes: times in UTC, each line names its node."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

from hermes_actors.config import LogConfig
from hermes_actors.model.moments import iso_ms

_UNKNOWN = ("", "")
_where: ContextVar[tuple[str, str]] = ContextVar("where")


@contextmanager
def named_node(dc: str, node: str) -> Iterator[None]:
    """Put both names on what is logged inside, and by the tasks that are started inside."""
    token = _where.set((dc, node))
    try:
        yield
    finally:
        _where.reset(token)


class Lines(logging.Formatter):
    """Writes each record as text, its traceback below, or as one JSON object.

    `process` are the DC and the node of what is logged outside `named_node`, as by threads.
    """

    def __init__(self, is_json: bool, process: tuple[str, str] = _UNKNOWN) -> None:
        super().__init__()
        self._is_json = is_json
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        dc, node = _where.get(self._process)
        line: dict[str, Any] = {
            "time": iso_ms(round(1_000 * record.created)),
            "level": record.levelname,
            "dc": dc,
            "node": node,
            "logger": record.name,
            "message": record.getMessage(),
        }
        # An audit's line has it: who, before, after.
        change = getattr(record, "change", None)
        exception = self.formatException(record.exc_info) if record.exc_info else ""
        if self._is_json:
            # Tracing has put the ids there.
            for name in ("trace_id", "span_id"):
                line[name] = getattr(record, name, "")
            line |= {"change": change, "exception": exception}
            known = {name: text for name, text in line.items() if text}
            return json.dumps(known, ensure_ascii=False)
        shown = json.dumps(change, ensure_ascii=False) if change else ""
        text = " ".join(filter(None, (*line.values(), shown)))
        return f"{text}\n{exception}" if exception else text


def line_handler(
    stream: TextIO, log_format: str = "text", process: tuple[str, str] = _UNKNOWN
) -> logging.Handler:
    """Writes each record as a line of text, or of JSON with `json`; with `auto` people get text, on
    a terminal, and whatever else reads the stream gets JSON.
    """
    if log_format == "auto":
        log_format = "text" if stream.isatty() else "json"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines(log_format == "json", process))
    return handler


def log_to(
    stream: TextIO,
    config: LogConfig,
    *,
    is_verbose: bool = False,
    process: tuple[str, str] = _UNKNOWN,
) -> None:
    """Log to the stream as configured. `process` are the DC and the name of the node, where the
    process is one; `is_verbose` is that of `set_level`.
    """
    logging.basicConfig(handlers=[line_handler(stream, config.format, process)])
    set_level(config, is_verbose=is_verbose)


def set_level(config: LogConfig, *, is_verbose: bool) -> None:
    """Log what the level says; verbose means at least INFO.

    Levels below WARNING are for our own lines: what libraries tell there is left out.
    """
    level: int = logging.getLevelNamesMapping()[config.level.upper()]
    if is_verbose:
        level = min(level, logging.INFO)
    logging.getLogger().setLevel(max(level, logging.WARNING))
    logging.getLogger("hermes_actors").setLevel(level)
