"""Who the caller of a command is: a token's file, or a user and his password's file.

The options belong to every command that asks a server something; a secret is never an option, nor
an environment variable, which other processes may see.
"""

import base64
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong

_given: ContextVar[dict[str, str]] = ContextVar("credentials of the command line")


def _options(
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            envvar="HERMES_TOKEN_FILE",
            help="Show the bearer token in this file.",
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", envvar="HERMES_USER", help="Who you are."),
    ] = None,
    password_file: Annotated[
        str | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            envvar="HERMES_PASSWORD_FILE",
            help="The user's password; without it you are asked.",
        ),
    ] = None,
) -> None: ...


def credential_options() -> list[Any]:
    """The options, to be put behind a command's own; what they are given, `authorization` uses."""
    # What the framework makes of annotations, without the command that it makes of the function.
    app = typer.Typer(add_completion=False)
    app.command()(_options)
    params: list[Any] = list(typer.main.get_command(app).params)
    for param in params:
        param.expose_value = False
        param.callback = _keep
    return params


def _keep(_context: Any, param: Any, value: Any) -> Any:
    given = dict(_given.get({}))
    given.pop(param.name, None)
    if value is not None:
        given[param.name] = value
    _given.set(given)
    return value


def authorization() -> str:
    """The Authorization header of this command's requests; "" when nobody was named.

    Raises UsageWrong and CommandFailed.
    """
    given = _given.get({})
    token_file, user = given.get("token_file"), given.get("user")
    if token_file and user:
        raise UsageWrong(
            "--token-file and --user: give one of them; HERMES_TOKEN_FILE and HERMES_USER count too"
        )
    if token_file:
        return f"Bearer {_secret(token_file, '--token-file')}"
    if user:
        if ":" in user:
            raise UsageWrong(f"--user '{user}': a name holds no colon")
        pair = f"{user}:{_password(user, given.get('password_file'))}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ""


def _password(user: str, file: str | None) -> str:
    if file:
        return _secret(file, "--password-file")
    if not sys.stdin.isatty():
        raise UsageWrong(f"--user {user}: needs --password-file FILE, or a terminal to ask on")
    return str(typer.prompt(f"Password of {user}", hide_input=True, err=True))


def _secret(file: str, option: str) -> str:
    try:
        text = Path(file).read_text().strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise CommandFailed(f"{option} {file}: {reason}") from error
    if not text or not text.isprintable():
        # Not shown: it may hold the secret beside what is wrong with it.
        raise CommandFailed(f"{option} {file}: is empty or has more than one line")
    return text
