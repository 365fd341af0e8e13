"""`hermes group …`: groups of topics through the management API."""

from hermes_actors.cli.administration.arguments import GroupArgument
from hermes_actors.cli.administration.resource import GROUP
from hermes_actors.cli.command_line.options import Output, OutputOption
from hermes_actors.cli.command_line.plain import command_group
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient

app = command_group("Groups of topics.")


@management_command(app, "hermes group create shop")
def create(
    client: ManagementClient,
    group: GroupArgument,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a group."""
    GROUP.create(client, {"groupName": group}, output, group=group)


GROUP.add_list(app, "List the groups.", "Group", "hermes group list --output json")
GROUP.add_show(app, "Show a group.", "hermes group show shop")
GROUP.add_update(
    app,
    "Update a group: who owns it, and who may subscribe to its topics.",
    "hermes group update shop owner.source=Plaintext owner.id=sales",
    "hermes group update shop --from-file group.json",
    body=lambda names, patch: {"groupName": names["group"]} | patch,
)
GROUP.add_delete(app, "Delete an empty group.", "hermes group delete shop --yes")
