"""`hermes oauth-provider …`: providers of OAuth tokens through the management API."""

from typing import Annotated, Any

import typer

from hermes_actors.cli.administration import resource
from hermes_actors.cli.command_line.bodies import from_file as body_from_file
from hermes_actors.cli.command_line.bodies import merged, patch, text_from_file
from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.command_line.options import FromFileOption, PatchArgument, YesOption
from hermes_actors.cli.command_line.plain import command_group
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.connection.management import quoted
from hermes_actors.cli.output.render import show_names, show_object

_ALL = "/oauth/providers"
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
    provider: ProviderArgument,
    token_endpoint: Annotated[
        str | None, typer.Option("--token-endpoint", metavar="URL", help="URL that issues tokens.")
    ] = None,
    client_id: Annotated[
        str | None, typer.Option("--client-id", metavar="ID", help="OAuth client id.")
    ] = None,
    client_secret_file: SecretOption = None,
    from_file: FromFileOption = None,
) -> None:
    """Create a provider. Delays default to 100 ms up to 60 s, timeouts to 1 s."""
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
    resource.create(_ALL, _path(provider), body, f"OAuth provider {provider}")


@management_command(app, "hermes oauth-provider list -o json", name="list")
def list_providers() -> None:
    """List the providers."""
    show_names(management().get(_ALL), "Provider")


@management_command(app, "hermes oauth-provider show sso")
def show(provider: ProviderArgument) -> None:
    """Show a provider; its secret is masked."""
    show_object(management().get(_path(provider)))


@management_command(
    app,
    "hermes oauth-provider update sso requestTimeout=2000",
    "hermes oauth-provider update sso --client-secret-file new-secret.txt",
)
def update(
    provider: ProviderArgument,
    pairs: PatchArgument = None,
    client_secret_file: SecretOption = None,
    from_file: FromFileOption = None,
) -> None:
    """Update a provider; other fields stay, also the secret."""
    body = merged(body_from_file(from_file), patch(pairs or []))
    body = merged(body, _secret(client_secret_file))
    if not body:
        raise UsageWrong(
            "nothing to update: give key=value pairs (requestTimeout=2000), --client-secret-file "
            "or --from-file patch.json"
        )
    path = _path(provider)
    line = f"updated OAuth provider {provider}"
    resource.show_updated(path, management().put(path, body), line, body)


@management_command(app, "hermes oauth-provider delete sso --yes")
def delete(provider: ProviderArgument, yes: YesOption = False) -> None:
    """Delete a provider that no subscription uses."""
    resource.delete(_path(provider), provider, f"OAuth provider {provider}", yes)


def _path(provider: str) -> str:
    return f"{_ALL}/{quoted(provider)}"


def _secret(file: str | None) -> dict[str, Any]:
    """Return the patch for a secret in a file; other users could see it on a command line."""
    if file is None:
        return {}
    secret = text_from_file("--client-secret-file", file).strip("\r\n")
    if not secret or "\n" in secret:
        raise UsageWrong(f"--client-secret-file {file}: expected one line, the secret")
    return {"clientSecret": secret}
