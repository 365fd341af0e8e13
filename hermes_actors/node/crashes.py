"""Logs why an actor of a node failed, and when it runs again."""

import logging

from hermes_actors.actors.supervisor import Crash
from hermes_actors.errors import StartupError

_logger = logging.getLogger("hermes_actors.node")


def log_crash(crash: Crash) -> None:
    """Say which actor failed, why, and when it runs again."""
    again = "is not restarted" if crash.delay_s is None else f"restarts in {crash.delay_s:.1f} s"
    if isinstance(crash.error, StartupError):
        # Its message says what to mend; where in the code it was found mends nothing.
        _logger.error("%s %s: %s", crash.name, again, crash.error.message)
        return
    _logger.error("%s failed and %s: %r", crash.name, again, crash.error, exc_info=crash.error)
