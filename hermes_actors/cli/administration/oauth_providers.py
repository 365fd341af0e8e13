"""`hermes oauth-provider …`: providers of OAuth tokens through the management API."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.bodies import from_file as body_from_file
from hermes_actors.cli.command_line.bodies import merged, patch
from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.command_line.options import (
    MANAGEMENT_URL_DEFAULT,
    FromFileOption,
    ManagementOption,
    Output,
    OutputOption,
    PatchArgument,
    YesOption,
    examples,
)
from hermes_actors.cli.command_line.plain import PlainCommand, command_group
from hermes_actors.cli.connection.management import ManagementClient, quoted
from hermes_actors.cli.output.outcome import delete_object, show_changed, show_updated
from hermes_actors.cli.output.render import show_names, show_object

_PROVIDERS = "/oauth/providers"
_DEFAULTS = {
    "tokenRequestInitialDelay": 100,
    "tokenRequestMaxDelay": 60_000,
    "requestTimeout": 1_000,
}

ProviderArgument = Annotated[str, typer.Argument(metavar="PROVIDER", help="for example sso")]
SecretOption = Annotated[
    str | None,
    typer.Option(
        "--client-secret-file",
        metavar="FILE",
        help="The client's secret, one line; '-' reads stdin.",
    ),
]

app = command_group("Providers of OAuth tokens for subscriptions.")


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes oauth-provider create sso --token-endpoint https://id.example.com/token \\",
        "    --client-id hermes --client-secret-file secret.txt",
    ),
)
def create(
    provider: ProviderArgument,
    token_endpoint: Annotated[
        str | None, typer.Option("--token-endpoint", metavar="URL", help="Where tokens come from.")
    ] = None,
    client_id: Annotated[
        str | None, typer.Option("--client-id", metavar="ID", help="Who asks for them.")
    ] = None,
    client_secret_file: SecretOption = None,
    from_file: FromFileOption = None,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a provider. Delays and time-outs have defaults: 100 ms to 60 s, and 1 s."""
    options = {"name": provider, "tokenEndpoint": token_endpoint, "clientId": client_id}
    body = merged(_DEFAULTS, body_from_file(from_file))
    body = merged(body, {key: value for key, value in options.items() if value is not None})
    body = merged(body, _secret(client_secret_file))
    with ManagementClient(management) as client:
        answer = client.post(_PROVIDERS, body)
        line = f"created OAuth provider {provider}"
        show_changed(client, _path(provider), answer, line, output)


@app.command(cls=PlainCommand, name="list", epilog=examples("hermes oauth-provider list -o json"))
def list_providers(
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the providers."""
    with ManagementClient(management) as client:
        show_names(client.get(_PROVIDERS), "Provider", output)


@app.command(cls=PlainCommand, epilog=examples("hermes oauth-provider show sso"))
def show(
    provider: ProviderArgument,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a provider, its secret masked."""
    with ManagementClient(management) as client:
        show_object(client.get(_path(provider)), output)


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes oauth-provider update sso requestTimeout=2000",
        "hermes oauth-provider update sso --client-secret-file new-secret.txt",
    ),
)
def update(
    provider: ProviderArgument,
    pairs: PatchArgument = None,
    client_secret_file: SecretOption = None,
    from_file: FromFileOption = None,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Update a provider; what is not named stays, the secret too."""
    body = merged(body_from_file(from_file), patch(pairs or []))
    body = merged(body, _secret(client_secret_file))
    if not body:
        raise UsageWrong(
            "nothing to update: give key=value pairs (requestTimeout=2000), --client-secret-file "
            "or --from-file patch.json"
        )
    with ManagementClient(management) as client:
        answer = client.put(_path(provider), body)
        line = f"updated OAuth provider {provider}"
        show_updated(client, _path(provider), answer, line, output, body)


@app.command(cls=PlainCommand, epilog=examples("hermes oauth-provider delete sso --yes"))
def delete(
    provider: ProviderArgument,
    yes: YesOption = False,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete a provider that no subscription uses."""
    named = f"OAuth provider {provider}"
    delete_object(_path(provider), provider, named, yes, management, output)


def _path(provider: str) -> str:
    return f"{_PROVIDERS}/{quoted(provider)}"


def _secret(file: str | None) -> dict[str, Any]:
    """The patch of a secret that stands in a file: not on the command line, which others see."""
    if file is None:
        return {}
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageWrong(f"--client-secret-file {file}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageWrong(f"--client-secret-file {file}: is no text") from None
    secret = text.strip("\r\n")
    if not secret or "\n" in secret:
        raise UsageWrong(f"--client-secret-file {file}: expected one line, the secret")
    return {"clientSecret": secret}
