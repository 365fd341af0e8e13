"""On SIGHUP, reloads everything that a node can change without a restart, and logs the results."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

from hermes_actors import config as configuration
from hermes_actors.cli.nodes.configuration import fields
from hermes_actors.cli.nodes.logs import set_level
from hermes_actors.config import Config
from hermes_actors.errors import ConfigError
from hermes_actors.security.watched import Watched

_logger = logging.getLogger(__name__)


async def reload(
    file: Path | None, running: Config, watched: Sequence[Watched[Any]], *, is_verbose: bool
) -> None:
    """Set the log level from the configuration file, and read `watched` again.

    `running` is the configuration with which the node was started.
    """
    try:
        found = await trio.to_thread.run_sync(configuration.load, file, os.environ)
    except ConfigError as error:
        _logger.error("SIGHUP: %s; nothing was changed", error.message)
    else:
        set_level(found.log, is_verbose=is_verbose)
        before, now = fields(running), fields(found)
        changed = {name for name in before | now if before.get(name) != now.get(name)}
        changed.discard("log.level")
        rest = (
            f"a restart is needed for {', '.join(sorted(changed))}"
            if changed
            else "nothing else has changed"
        )
        _logger.warning("SIGHUP: log.level is %s; %s", found.log.level, rest)
    for each in list(watched):
        _logger.warning("SIGHUP: %s: %s", each.name, await each.read_now())
