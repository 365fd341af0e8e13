"""`hermes user …`: lines of the users file, with hashed passwords."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.command_line.options import examples
from hermes_actors.cli.command_line.plain import PlainCommand, command_group
from hermes_actors.cli.output.render import show_rows
from hermes_actors.config.security import ManagementAuthenticationConfig
from hermes_actors.security.account import PUBLISHER
from hermes_actors.security.passwords import hash_password
from hermes_actors.security.users import WrongFile, parse_users, user_line

app = command_group("Users who publish or administer, for security.users_file.")


@app.command(
    cls=PlainCommand,
    name="hash",
    epilog=examples(
        "hermes user hash shop-app --role PUBLISHER >> users.toml",
        "hermes user hash ada --role ADMIN --group ops < password.txt",
    ),
)
def hash_user(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user, for example shop-app")],
    role: Annotated[
        list[str] | None,
        typer.Option("--role", metavar="ROLE", help=f"{PUBLISHER}, ADMIN or your own; repeatable."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="GROUP", help="A group, as in owner ids; repeatable."),
    ] = None,
) -> None:
    r"""Hash a password and print the user's line.

    The password is asked for, or is the first line of stdin. Put it below a line \[users].
    """
    if not name or ":" in name:
        raise UsageWrong(f"'{name}' is not a user: a name cannot be empty or contain a colon")
    roles = [_role(each) for each in role or []]
    password = _password(name)
    if not password:
        raise CommandFailed("the password is empty; nothing was hashed")
    print(user_line(name, hash_password(password), roles, group or []))


@app.command(cls=PlainCommand, epilog=examples("hermes user check users.toml"))
def check(file: Annotated[Path, typer.Argument(metavar="FILE", help="A users file.")]) -> None:
    """Check a users file."""
    try:
        users = parse_users(file.read_bytes())
    except WrongFile as error:
        raise CommandFailed(f"{file}: {error}") from error
    rows = [
        [
            each.name,
            ", ".join(sorted(each.roles)) or "-",
            ", ".join(sorted(each.groups)) or "-",
            "yes" if users.password_hash(each.name) else "no: a certificate",
        ]
        for each in users.accounts()
    ]
    show_rows(("User", "Roles", "Groups", "Password"), rows, f"{file}: no users")


def _role(text: str) -> str:
    """Return the role. Raises UsageWrong for a known one in the wrong case, which has no effect."""
    for known in (PUBLISHER, ManagementAuthenticationConfig().admin_role):
        if text.upper() == known and text != known:
            raise UsageWrong(
                f"--role {text}: roles are case-sensitive; did you mean {known}? "
                "The node's own are PUBLISHER and security.admin_role (ADMIN)"
            )
    return text


def _password(name: str) -> str:
    if sys.stdin.isatty():
        answer = typer.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
        return str(answer)
    return sys.stdin.readline().rstrip("\r\n")
