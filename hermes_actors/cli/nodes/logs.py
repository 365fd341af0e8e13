"""The log lines of a process that runs nodes: times in UTC, each line names its node."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

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


class TextLines(logging.Formatter):
    """Time, level, DC and node (where they are known), logger and text; tracebacks below.

    `process` are the DC and the node of what is logged outside `named_node`, as by threads.
    """

    def __init__(self, process: tuple[str, str] = _UNKNOWN) -> None:
        self._process = process
        super().__init__("%(asctime)s %(levelname)s %(where)s%(name)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """UTC in milliseconds, with its Z."""
        return iso_ms(round(1_000 * record.created))

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        record.where = "".join(f"{each} " for each in _where.get(self._process) if each)
        return super().format(record)


class JsonLines(logging.Formatter):
    """Writes each line as one JSON object: time, level, dc and node (where they are known), logger,
    message, the trace that a line about one message belongs to, and the traceback as `exception`
    where there is one.

    `process` as for `TextLines`.
    """

    def __init__(self, process: tuple[str, str] = _UNKNOWN) -> None:
        self._process = process
        super().__init__()

    def format(self, record: logging.LogRecord) -> str:
        """The line; whatever was logged, it is one."""
        dc, node = _where.get(self._process)
        line = {
            "time": iso_ms(round(1_000 * record.created)),
            "level": record.levelname,
            "dc": dc,
            "node": node,
            "logger": record.name,
            "message": record.getMessage(),
            # As `trace_ids` has put them there.
            "trace_id": getattr(record, "trace_id", ""),
            "span_id": getattr(record, "span_id", ""),
            "exception": self.formatException(record.exc_info) if record.exc_info else "",
        }
        return json.dumps({name: text for name, text in line.items() if text}, ensure_ascii=False)


def line_handler(
    stream: TextIO, log_format: str = "text", process: tuple[str, str] = _UNKNOWN
) -> logging.Handler:
    """Writes each record as a line of text, or of JSON with `json`; with `auto` people get text, on
    a terminal, and whatever else reads the stream gets JSON.
    """
    if log_format == "auto":
        log_format = "text" if stream.isatty() else "json"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(process) if log_format == "json" else TextLines(process))
    return handler


def log_to(
    stream: TextIO,
    config: LogConfig,
    *,
    is_verbose: bool = False,
    process: tuple[str, str] = _UNKNOWN,
) -> None:
    """Log to the stream as configured; verbose means at least INFO. `process` are the DC and the
    name of the node, where the process is one.

    Levels below WARNING are for our own lines: what libraries tell there is left out.
    """
    level: int = logging.getLevelNamesMapping()[config.level.upper()]
    if is_verbose:
        level = min(level, logging.INFO)
    handler = line_handler(stream, config.format, process)
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler])
    logging.getLogger("hermes_actors").setLevel(level)
