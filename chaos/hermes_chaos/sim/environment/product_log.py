"""The product's log lines in a run. Failures that no fault explains are findings."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hermes_actors.actors.supervisor import ActorCancelled
from hermes_chaos.sim.workload.passing import TOPIC

_PRODUCT = "hermes_actors"
_INJECTED = (
    ActorCancelled.__name__,
    "spool's disk",
    f"messages of {TOPIC.name} set aside: topic_gone",
)
"""Failures that were injected: crashed actors, disk faults, a removed topic."""


class _Listener(logging.Handler):
    def __init__(self, on_line: Callable[[str], None], on_failure: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._on_line = on_line
        self._on_failure = on_failure

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname.lower()} {record.getMessage()}"
        self._on_line(text)
        if record.levelno >= logging.ERROR and not any(each in text for each in _INJECTED):
            self._on_failure(text)


@contextmanager
def heard(on_line: Callable[[str], None], on_failure: Callable[[str], None]) -> Iterator[None]:
    """Pass each warning and error in the block to `on_line`, and unexplained failures to
    `on_failure`, too.
    """
    logger = logging.getLogger(_PRODUCT)
    listener = _Listener(on_line, on_failure)
    propagated, disabled = logger.propagate, logging.root.manager.disable
    logger.addHandler(listener)
    logger.propagate = False
    logging.disable(logging.NOTSET)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagated
        logging.disable(disabled)
