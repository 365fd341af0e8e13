"""The log lines of a process that runs several datacentres: each names the one it is about."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

_dc: ContextVar[str] = ContextVar("dc", default="")


@contextmanager
def named_dc(dc: str) -> Iterator[None]:
    """What is logged inside, and by the tasks that are started inside, carries the DC's name."""
    token = _dc.set(dc)
    try:
        yield
    finally:
        _dc.reset(token)


def line_handler(stream: TextIO) -> logging.Handler:
    """Writes a record as time, level, DC (where one is known), logger and text."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(dc)s%(name)s %(message)s"))
    handler.addFilter(_add_dc)
    return handler


def log_to(stream: TextIO, *, is_verbose: bool) -> None:
    """Log warnings to the stream; verbose adds our own INFO, not that of libraries."""
    logging.basicConfig(level=logging.WARNING, handlers=[line_handler(stream)])
    if is_verbose:
        logging.getLogger("hermes_actors").setLevel(logging.INFO)


def _add_dc(record: logging.LogRecord) -> bool:
    dc = _dc.get()
    record.dc = f"{dc} " if dc else ""
    return True
