"""Credentials of the caller: a token file, a user with a password file, or a certificate file.

Every command that calls a server has these options. A secret itself is never an option or an
environment variable, because other processes could see it.
"""

import base64
import ssl
import sys
from pathlib import Path
from typing import Any

import typer

from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.command_line.options import added_options, given
from hermes_actors.runtime.network_causes import TlsSettings, pem_cause

TLS_SETTINGS = TlsSettings("--ca-file FILE", "--cert-file FILE and --key-file FILE")
"""The options to mention when the server's or the client's certificate is not accepted."""

SHOW_WHO = "authenticate with --user and --password-file, --token-file or --cert-file"
"""The hint if credentials are required."""


def _option(name: str, help_: str, *variables: str, metavar: str = "FILE") -> Any:
    return typer.Option(None, name, metavar=metavar, envvar=list(variables), help=help_)


def _options(
    token_file: str | None = _option(
        "--token-file", "File with your bearer token.", "HERMES_TOKEN_FILE"
    ),
    user: str | None = _option("--user", "Your user name.", "HERMES_USER", metavar="NAME"),
    password_file: str | None = _option(
        "--password-file",
        "File with the password. Without it you are prompted.",
        "HERMES_PASSWORD_FILE",
    ),
    ca_file: str | None = _option(
        "--ca-file", "PEM file of the authorities to trust.", "HERMES_CA_FILE", "SSL_CERT_FILE"
    ),
    cert_file: str | None = _option(
        "--cert-file", "PEM file of your client certificate.", "HERMES_CERT_FILE"
    ),
    key_file: str | None = _option(
        "--key-file",
        "Its key, if the certificate's file lacks it.",
        "HERMES_KEY_FILE",
    ),
) -> None: ...


def credential_options() -> list[Any]:
    """Return the credential options, for a command class to add."""
    return added_options(_options, "Credentials")


def authorization(*, asks: bool = True) -> str:
    """Return the Authorization header of this command's requests; empty without credentials.

    `asks`: ask for a password on the terminal if there is no password file. Raises UsageWrong and
    CommandFailed.
    """
    token_file, user = given("token_file"), given("user")
    if token_file and user:
        raise UsageWrong(
            "--token-file and --user: give one of them; HERMES_TOKEN_FILE and HERMES_USER count too"
        )
    if token_file:
        return f"Bearer {_secret(token_file, '--token-file')}"
    if user:
        if ":" in user:
            raise UsageWrong(f"--user '{user}': a name cannot contain a colon")
        pair = f"{user}:{_password(user, asks)}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ""


def tls_context() -> ssl.SSLContext | None:
    """Return the TLS settings of the options; None if there are none. Raises UsageWrong."""
    ca, cert, key = given("ca_file"), given("cert_file"), given("key_file")
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
            # With a password callback OpenSSL does not ask on the terminal.
            context.load_cert_chain(cert, key, lambda: "")
        except (OSError, ssl.SSLError) as error:
            names = f"--cert-file {cert}" + (f" and --key-file {key}" if key else "")
            raise UsageWrong(
                f"{names}: cannot be used: {pem_cause(error)}; give the certificate and its key "
                "without a password, in PEM form"
            ) from error
    return context


def _password(user: str, asks: bool) -> str:
    if file := given("password_file"):
        return _secret(file, "--password-file")
    if not asks or not sys.stdin.isatty():
        raise UsageWrong(f"--user {user}: needs --password-file FILE, or a terminal to prompt on")
    return str(typer.prompt(f"Password of {user}", hide_input=True, err=True))


def _secret(file: str, option: str) -> str:
    try:
        text = Path(file).read_text().strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise CommandFailed(f"{option} {file}: {reason}") from error
    if not text or not text.isprintable():
        # The content is not shown: it may contain the secret.
        raise CommandFailed(f"{option} {file}: is empty or has more than one line")
    return text
