"""The `hermes` command: every failure is one line on stderr and a documented exit code."""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from hermes_actors import __version__
from hermes_actors.cli.command_line.failures import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from hermes_actors.cli.command_line.lazy import LazyCommand, PluginGroup
from hermes_actors.cli.command_line.options import examples
from hermes_actors.errors import HermesError

_PACKAGE = "hermes_actors.cli"
_COMMANDS = {
    name: LazyCommand(name, f"{_PACKAGE}.{target}", about)
    for name, target, about in (
        ("dev", "nodes.dev:dev", "Run a whole cluster on this machine, two DCs."),
        ("node", "nodes.node:node", "Run one node of a cluster, on Kafka or alone."),
        ("publish", "publishing.publish:app", "Publish one message, or many."),
        ("tail", "tail:app", "Print what lies in a topic, and what comes."),
        ("sink", "sink.command:app", "Be a subscriber: take pushes, print, count."),
        ("group", "administration.groups:app", "Create, list, show, update, delete groups."),
        ("topic", "administration.topics:app", "Create, list, show, update, delete topics."),
        (
            "subscription",
            "subscriptions.commands:app",
            "Create, list, update, suspend, retransmit, explain, delete subscriptions.",
        ),
        ("schema", "schemas:app", "Show, check, compare, save schemas."),
        ("dlq", "dlq.commands:app", "List, show, re-drive, expire dead letters."),
        (
            "balancer",
            "balancer.commands:app",
            "Show who runs what and why; drain nodes, constrain work.",
        ),
        ("trace", "trace:app", "Show what became of a message, by its id."),
        ("status", "status:app", "Show all nodes, and how they fare."),
        ("top", "status:top_app", "Watch nodes, topics, subscriptions, the worst first."),
        ("doctor", "doctor.command:app", "Say what is wrong with a node, and the way out."),
        (
            "oauth-provider",
            "administration.oauth_providers:app",
            "Create, list, show, update, delete providers of OAuth tokens.",
        ),
        ("spool", "nodes.spool:app", "Show and empty what waits for a log."),
        ("user", "nodes.users:app", "Hash passwords, check a users file."),
        ("config", "nodes.configuration:app", "Check and show a configuration."),
    )
}


class HermesGroup(PluginGroup):
    """The root command. Its `main` is the one place where failures become lines and codes."""

    def __init__(self, **attrs: Any) -> None:
        attrs["commands"] = dict(_COMMANDS)
        super().__init__(**attrs)

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
        code = 0
        try:
            # Without standalone mode typer hands its failures to us, and returns exit codes.
            result = super().main(
                args, prog_name, complete_var, False, windows_expand_args, **extra
            )
            code = result if isinstance(result, int) else 0
        except typer.TyperException as failure:
            code = failure.exit_code
            _show(failure)
        except HermesError as failure:
            code = EXIT_FAILED
            print(f"hermes: {failure.message}", file=sys.stderr)
        except typer.Abort:
            code = EXIT_FAILED
            print("hermes: nothing was done: not confirmed", file=sys.stderr)
        except OSError as failure:
            code = _system_refused(failure)
        except BaseExceptionGroup as group:
            code = _ended_by(group)
        try:
            # What a full disk or a closed pipe has not taken would else be found out too late.
            sys.stdout.flush()
        except OSError as failure:
            code = _system_refused(failure)
        sys.exit(code)


def _ended_by(group: BaseExceptionGroup[BaseException]) -> int:
    """The exit code for what trio wraps into a group inside nested nurseries; defects go on up."""
    others = group.split(KeyboardInterrupt)[1]
    if others is None:
        return EXIT_INTERRUPTED
    refused, defects = others.split(OSError)
    if defects is not None or refused is None:
        raise group
    failure: BaseException = refused
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    assert isinstance(failure, OSError), "that is what the group was split by"
    return _system_refused(failure)


def _system_refused(failure: OSError) -> int:
    """One line, but none for a reader of stdout that has seen enough (`hermes tail | head`)."""
    if not isinstance(failure, BrokenPipeError):
        what = f"{failure.filename}: " if failure.filename else ""
        print(f"hermes: {what}{failure.strerror or failure}", file=sys.stderr)
    # Python flushes once more at its end, and would complain itself.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_FAILED


def _show(failure: typer.TyperException) -> None:
    """One line; a wrong command line also says where its help is."""
    # An empty message is typer's "no arguments, so here is the help", which it has printed.
    text = " ".join(failure.format_message().split())
    if not text:
        return
    # What checks the words of an option says so of each of its errors.
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
        "hermes dev                  (the first two lines in terminals of their own)",
        "hermes sink --port 9000",
        "hermes topic create shop.orders --create-group",
        "hermes subscription create shop.orders a --endpoint http://127.0.0.1:9000/",
        """hermes publish shop.orders '{"id": 1, "total": 9.5}'""",
    )
    + "\n\nExit codes: 0 done; 1 the server said no or could not be reached; "
    "2 the command line is wrong; 130 interrupted.",
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
