"""Credentials of a caller: a token's file, a user and his password's file, a certificate's.

The options belong to every command that asks a server something; a secret is never an option, nor
an environment variable, which other processes may see.
"""

import base64
import ssl
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.runtime.network_causes import TlsSettings, pem_cause

TLS_SETTINGS = TlsSettings("--ca-file FILE", "--cert-file FILE and --key-file FILE")
"""The options to give where a server's certificate, or ours, is not accepted."""

_given: ContextVar[dict[str, str]] = ContextVar("credentials of the command line")

SHOW_WHO = "say who you are with --user and --password-file, --token-file or --cert-file"
"""The way out where credentials are wanted."""


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
    ca_file: Annotated[
        str | None,
        typer.Option(
            "--ca-file",
            metavar="FILE",
            envvar=["HERMES_CA_FILE", "SSL_CERT_FILE"],
            help="Trust the authorities in this PEM file.",
        ),
    ] = None,
    cert_file: Annotated[
        str | None,
        typer.Option(
            "--cert-file",
            metavar="FILE",
            envvar="HERMES_CERT_FILE",
            help="Show the client certificate in this PEM file.",
        ),
    ] = None,
    key_file: Annotated[
        str | None,
        typer.Option(
            "--key-file",
            metavar="FILE",
            envvar="HERMES_KEY_FILE",
            help="Its key, where the certificate's file does not hold it.",
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


def authorization(*, asks: bool = True) -> str:
    """The Authorization header of this command's requests; "" when nobody was named. `asks`: the
    terminal may be asked for what no file holds.

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
        pair = f"{user}:{_password(user, given.get('password_file'), asks)}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ""


def tls_context() -> ssl.SSLContext | None:
    """Return whom this command trusts, and the certificate that it shows; None when nothing was
    named.

    Raises UsageWrong.
    """
    given = _given.get({})
    ca, cert, key = given.get("ca_file"), given.get("cert_file"), given.get("key_file")
    if key and not cert:
        raise UsageWrong(
            f"--key-file {key}: goes together with --cert-file FILE (HERMES_CERT_FILE)"
        )
    if not ca and not cert:
        return None
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise UsageWrong(
            f"--ca-file {ca} (or HERMES_CA_FILE, SSL_CERT_FILE): holds no certificates: "
            f"{error.strerror or error}"
        ) from error
    if cert:
        try:
            context.load_cert_chain(cert, key, _no_password)
        except (OSError, ssl.SSLError) as error:
            names = f"--cert-file {cert}" + (f" and --key-file {key}" if key else "")
            raise UsageWrong(
                f"{names}: cannot be used: {pem_cause(error)}; give the certificate and its key "
                "without a password, in PEM form"
            ) from error
    return context


def _no_password() -> str:
    # Without this OpenSSL would ask the terminal.
    return ""


def _password(user: str, file: str | None, asks: bool) -> str:
    if file:
        return _secret(file, "--password-file")
    if not asks or not sys.stdin.isatty():
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
