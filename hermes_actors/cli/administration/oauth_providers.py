"""`hermes oauth-provider …`: providers of OAuth tokens through the management API."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes_actors.cli.administration.resource import Resource
from hermes_actors.cli.command_line.bodies import from_file as body_from_file
from hermes_actors.cli.command_line.bodies import merged, patch
from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.command_line.options import (
    FromFileOption,
    Output,
    OutputOption,
    PatchArgument,
)
from hermes_actors.cli.command_line.plain import command_group
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient

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

PROVIDER = Resource(
    "OAuth provider {provider}", "/oauth/providers/{provider}", {"provider": ProviderArgument}
)

_NEEDED = {
    "tokenEndpoint": "--token-endpoint",
    "clientId": "--client-id",
    "clientSecret": "--client-secret-file",
}

app = command_group("Providers of OAuth tokens for subscriptions.")


@management_command(
    app,
    "hermes oauth-provider create sso --token-endpoint https://id.example.com/token \\",
    "    --client-id hermes --client-secret-file secret.txt",
)
def create(
    client: ManagementClient,
    provider: ProviderArgument,
    token_endpoint: Annotated[
        str | None, typer.Option("--token-endpoint", metavar="URL", help="Where tokens come from.")
    ] = None,
    client_id: Annotated[
        str | None, typer.Option("--client-id", metavar="ID", help="Who asks for them.")
    ] = None,
    client_secret_file: SecretOption = None,
    from_file: FromFileOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a provider. Delays and time-outs have defaults: 100 ms to 60 s, and 1 s."""
    options = {"name": provider, "tokenEndpoint": token_endpoint, "clientId": client_id}
    body = merged(_DEFAULTS, body_from_file(from_file))
    body = merged(body, {key: value for key, value in options.items() if value is not None})
    body = merged(body, _secret(client_secret_file))
    missing = [field for field in _NEEDED if body.get(field) is None]
    if missing:
        raise UsageWrong(
            f"a provider needs {' and '.join(_NEEDED[field] for field in missing)}, "
            f"or --from-file with {' and '.join(missing)}"
        )
    PROVIDER.create(client, body, output, provider=provider)


PROVIDER.add_list(app, "List the providers.", "Provider", "hermes oauth-provider list -o json")
PROVIDER.add_show(app, "Show a provider, its secret masked.", "hermes oauth-provider show sso")


@management_command(
    app,
    "hermes oauth-provider update sso requestTimeout=2000",
    "hermes oauth-provider update sso --client-secret-file new-secret.txt",
)
def update(
    client: ManagementClient,
    provider: ProviderArgument,
    pairs: PatchArgument = None,
    client_secret_file: SecretOption = None,
    from_file: FromFileOption = None,
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
    PROVIDER.change(client, body, output, {"provider": provider})


PROVIDER.add_delete(
    app, "Delete a provider that no subscription uses.", "hermes oauth-provider delete sso --yes"
)


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
