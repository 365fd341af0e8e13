"""Logs members that have gone: a warning if the lease expired, information if the node left."""

import logging
from collections.abc import Sequence
from itertools import takewhile

from hermes_actors.coordination.values import LEASE_MS, Departed
from hermes_actors.coordination.view import Coordination

_logger = logging.getLogger(__name__)


async def log_departures(coordination: Coordination) -> None:
    """Log each departure from now on. Never returns."""
    with coordination.watch() as watch:
        watch.take_nowait()
        told = _newest(coordination.state.departed)
        while True:
            await watch.wait()
            if watch.take_nowait().members:
                departed = coordination.state.departed
                for each in _after(told, departed):
                    _log(coordination.dc, each)
                told = _newest(departed)


def _newest(departed: Sequence[Departed]) -> str:
    return departed[-1].boot if departed else ""


def _after(boot: str, departed: Sequence[Departed]) -> list[Departed]:
    """The departures after this boot's, oldest first; all of them if it is no longer in the
    list.
    """
    return list(takewhile(lambda each: each.boot != boot, reversed(departed)))[::-1]


def _log(dc: str, departed: Departed) -> None:
    if departed.is_expired:
        seconds = LEASE_MS // 1_000
        _logger.warning("node %s is gone from %s: silent for %d s", departed.node, dc, seconds)
    else:
        _logger.info("node %s has left %s", departed.node, dc)
