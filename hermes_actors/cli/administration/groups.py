"""`hermes group …`: groups of topics through the management API."""

from hermes_actors.cli.command_line.bodies import changes
from hermes_actors.cli.command_line.options import (
    MANAGEMENT_URL_DEFAULT,
    FromFileOption,
    GroupArgument,
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

app = command_group("Groups of topics.")


@app.command(cls=PlainCommand, epilog=examples("hermes group create shop"))
def create(
    group: GroupArgument,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a group."""
    with ManagementClient(management) as client:
        answer = client.post("/groups", {"groupName": group})
        show_changed(client, f"/groups/{quoted(group)}", answer, f"created group {group}", output)


@app.command(cls=PlainCommand, name="list", epilog=examples("hermes group list --output json"))
def list_groups(
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the groups."""
    with ManagementClient(management) as client:
        show_names(client.get("/groups"), "Group", output)


@app.command(cls=PlainCommand, epilog=examples("hermes group show shop"))
def show(
    group: GroupArgument,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a group."""
    with ManagementClient(management) as client:
        show_object(client.get(f"/groups/{quoted(group)}"), output)


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes group update shop owner.source=Plaintext owner.id=sales",
        "hermes group update shop --from-file group.json",
    ),
)
def update(
    group: GroupArgument,
    pairs: PatchArgument = None,
    from_file: FromFileOption = None,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Update a group: who owns it, and who may subscribe to its topics."""
    body = {"groupName": group} | changes(pairs, from_file)
    with ManagementClient(management) as client:
        path = f"/groups/{quoted(group)}"
        answer = client.put(path, body)
        show_updated(client, path, answer, f"updated group {group}", output, body)


@app.command(cls=PlainCommand, epilog=examples("hermes group delete shop --yes"))
def delete(
    group: GroupArgument,
    yes: YesOption = False,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete an empty group."""
    delete_object(f"/groups/{quoted(group)}", group, f"group {group}", yes, management, output)
