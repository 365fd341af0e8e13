"""The log lines of a process that runs several nodes: each names the one that it is about."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

_where: ContextVar[str] = ContextVar("where", default="")


@contextmanager
def named_node(dc: str, node: str) -> Iterator[None]:
    """What is logged inside, and by the tasks that are started inside, carries both names."""
    token = _where.set(f"{dc} {node} ")
    try:
        yield
    finally:
        _where.reset(token)


def line_handler(stream: TextIO) -> logging.Handler:
    """Writes a record as time, level, DC and node (where they are known), logger and text."""
    handler = logging.StreamHandler(stream)
    line = "%(asctime)s %(levelname)s %(where)s%(name)s %(message)s"
    handler.setFormatter(logging.Formatter(line))
    handler.addFilter(_add_where)
    return handler


def log_to(stream: TextIO, *, is_verbose: bool) -> None:
    """Log warnings to the stream; verbose adds our own INFO, not that of libraries."""
    logging.basicConfig(level=logging.WARNING, handlers=[line_handler(stream)])
    if is_verbose:
        logging.getLogger("hermes_actors").setLevel(logging.INFO)


def _add_where(record: logging.LogRecord) -> bool:
    record.where = _where.get()
    return True
