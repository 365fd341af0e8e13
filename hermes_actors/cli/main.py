"""The `hermes` command: every failure is one line on stderr and a documented exit code."""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from hermes_actors import __version__
from hermes_actors.cli.command_line import lazy
from hermes_actors.cli.command_line.failures import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    first_of,
)
from hermes_actors.cli.command_line.options import examples
from hermes_actors.cli.command_line.plain import PlainGroup
from hermes_actors.errors import HermesError

_PACKAGE = "hermes_actors.cli"
_COMMANDS = {
    name: lazy.LazyCommand(name, f"{_PACKAGE}.{target}", about)
    for name, target, about in (
        ("dev", "nodes.dev:dev", "Run a whole cluster with two datacentres on this machine."),
        ("node", "nodes.node:node", "Run one node, with Kafka or with its own log."),
        ("publish", "publishing.publish:app", "Publish one message or many."),
        ("tail", "tail:app", "Print a topic's messages and follow new ones."),
        ("pull", "pull:app", "Pull a subscription's messages, and acknowledge them."),
        ("sink", "sink.command:app", "Run a test subscriber: accept pushes, print and count them."),
        ("group", "administration.groups:app", "Create, list, show, update and delete groups."),
        ("topic", "administration.topics:app", "Create, list, show, update and delete topics."),
        (
            "subscription",
            "subscriptions.commands:app",
            "Create, list, update, suspend, retransmit and diagnose subscriptions.",
        ),
        ("schema", "schemas:app", "Show, check, compare and save schemas."),
        ("dlq", "dlq:app", "List, show, re-drive and expire dead letters."),
        (
            "balancer",
            "balancer.commands:app",
            "Show which node runs which subscription; drain nodes.",
        ),
        ("audit", "audit:app", "List who changed what, when and why."),
        ("apply", "configuration.apply:app", "Apply groups, topics and subscriptions from files."),
        (
            "export",
            "configuration.export:app",
            "Export the configuration as files for 'hermes apply'.",
        ),
        ("metadata", "configuration.metadata:app", "Back up and restore all metadata."),
        ("trace", "trace:app", "Show what happened to a message, by its id."),
        ("status", "status:app", "List the nodes and their state."),
        ("top", "status:top_app", "Watch nodes, topics and subscriptions, worst first."),
        ("sizing", "sizing.command:app", "Say how many nodes and how much Kafka a load needs."),
        ("doctor", "doctor.command:app", "Find what is wrong with a node, and how to fix it."),
        (
            "oauth-provider",
            "administration.oauth_providers:app",
            "Create, list, show, update and delete OAuth providers.",
        ),
        ("spool", "nodes.spool:app", "Show and drain the spool."),
        ("user", "nodes.users:app", "Hash passwords and check a users file."),
        ("config", "nodes.configuration:app", "Check and show a configuration."),
    )
}


class HermesGroup(PlainGroup):
    """The root command: the built-in commands, then those of other packages.

    Only its `main` turns failures into error lines and exit codes.
    """

    def __init__(self, **attrs: Any) -> None:
        plugins = {
            each.name: lazy.LazyCommand(each.name, each.value) for each in lazy.installed_plugins()
        }
        # An installed package cannot replace a built-in command.
        super().__init__(**attrs | {"commands": {**_COMMANDS, **plugins, **_COMMANDS}})

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in their order, and load their lines of help."""
        for command in self.commands.values():
            if isinstance(command, lazy.LazyCommand):
                command.find_help()
        return list(self.commands)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command line and exit."""
        try:
            # Without standalone mode typer raises its failures, and returns exit codes.
            result = super().main(
                args, prog_name, complete_var, False, windows_expand_args, **extra
            )
            code = result if isinstance(result, int) else 0
        except BaseExceptionGroup as group:
            if group.split((KeyboardInterrupt, OSError))[1] is not None:
                raise
            code = _code_of(first_of(group))
        except (typer.TyperException, HermesError, typer.Abort, OSError) as failure:
            code = _code_of(failure)
        try:
            # Otherwise a full disk or a closed pipe would be noticed too late.
            sys.stdout.flush()
        except OSError as failure:
            code = _system_refused(failure)
        sys.exit(code)


def _code_of(failure: BaseException) -> int:
    """Print the failure, and return its exit code."""
    match failure:
        case typer.TyperException():
            _show(failure)
            return failure.exit_code
        case HermesError():
            print(f"hermes: {failure.message}", file=sys.stderr)
        case typer.Abort():
            print("hermes: not confirmed: nothing was done", file=sys.stderr)
        case OSError():
            return _system_refused(failure)
        case KeyboardInterrupt():
            return EXIT_INTERRUPTED
    return EXIT_FAILED


def _system_refused(failure: OSError) -> int:
    """Print one line, except if the reader of stdout has ended (`hermes tail | head`)."""
    if not isinstance(failure, BrokenPipeError):
        what = f"{failure.filename}: " if failure.filename else ""
        print(f"hermes: {what}{failure.strerror or failure}", file=sys.stderr)
    # Python flushes again when it exits, and would print an error.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_FAILED


def _show(failure: typer.TyperException) -> None:
    """Print one line; for a wrong command line it mentions --help."""
    # The message is empty if typer has printed the help because there were no arguments.
    text = " ".join(failure.format_message().split())
    if not text:
        return
    # The library that checks the values of an option adds this to each error.
    text = text.replace(": Value error, ", ": ")
    context = getattr(failure, "ctx", None)
    if failure.exit_code == EXIT_USAGE and context is not None:
        text = f"{text.rstrip('.')}; see '{context.command_path} --help'"
    print(f"hermes: {text}", file=sys.stderr)


app = typer.Typer(
    name="hermes",
    cls=HermesGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"hermes {__version__}")
        raise typer.Exit


@app.callback(
    epilog=examples(
        "hermes dev                  (run the first two in separate terminals)",
        "hermes sink --port 9000",
        "hermes topic create shop.orders --create-group",
        "hermes subscription create shop.orders a --endpoint http://127.0.0.1:9000/",
        """hermes publish shop.orders '{"id": 1, "total": 9.5}'""",
    )
    + "\n\nExit codes: 0 success; 1 the server refused or could not be reached; "
    "2 wrong command line; 130 interrupted.",
)
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Publish and subscribe over HTTP, across datacentres."""


def main() -> None:
    """The console script. Never returns: exits with 0, 1, 2 or 130."""
    app(prog_name="hermes")
