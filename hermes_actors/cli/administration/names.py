"""Names for the shell to complete a command line with, as management tells them, or none."""

import json
import os
import threading
from collections.abc import Mapping
from typing import Any

import typer

from hermes_actors.cli.administration.arguments import Named
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.options import MANAGEMENT_URL_DEFAULT, MANAGEMENT_URL_VARIABLE
from hermes_actors.cli.connection.management import ManagementClient

TIMEOUT_S = 0.5
"""Longer than this nobody waits for a completion."""

NAMES_MAX = 1_000


def names_of(what: Named, given: Mapping[str, Any], incomplete: str) -> list[str]:
    """The names of such things that begin so, sorted; `given` is what the command line says so far.

    None where management cannot be asked, is late, or says no: the shell has no place for errors.
    """
    management = given.get("management") or os.environ.get(MANAGEMENT_URL_VARIABLE)
    try:
        path = _path(what, given)
        # Never a question: the terminal is the shell's now.
        client = ManagementClient(management or MANAGEMENT_URL_DEFAULT, asks=False)
    except typer.TyperException:
        return []
    found: list[str] = []

    def ask() -> None:
        try:
            with client:
                listed = json.loads(client.get(path))
        except (typer.TyperException, ValueError, RecursionError):
            return
        names = listed if isinstance(listed, list) else []
        found.extend(
            each for each in names if isinstance(each, str) and each.startswith(incomplete)
        )

    # A thread, which is left behind: a look-up of the host, say, has no limit of its own.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    return [] if thread.is_alive() else sorted(found)[:NAMES_MAX]


def _path(what: Named, given: Mapping[str, Any]) -> str:
    if what is Named.SUBSCRIPTION:
        return subscription_path(given.get("topic") or "")
    return "/groups" if what is Named.GROUP else "/topics"
