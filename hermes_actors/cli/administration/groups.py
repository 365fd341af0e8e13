"""`hermes group …`: groups of topics through the management API."""

from hermes_actors.cli.administration import resource
from hermes_actors.cli.administration.arguments import GroupArgument
from hermes_actors.cli.command_line.options import FromFileOption, PatchArgument, YesOption
from hermes_actors.cli.command_line.plain import command_group
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.connection.management import quoted
from hermes_actors.cli.output.render import show_names, show_object

app = command_group("Groups of topics.")


def _path(group: str) -> str:
    return f"/groups/{quoted(group)}"


@management_command(app, "hermes group create shop")
def create(group: GroupArgument) -> None:
    """Create a group."""
    resource.create("/groups", _path(group), {"groupName": group}, f"group {group}")


@management_command(app, "hermes group list --output json", name="list")
def list_groups() -> None:
    """List the groups."""
    show_names(management().get("/groups"), "Group")


@management_command(app, "hermes group show shop")
def show(group: GroupArgument) -> None:
    """Show a group."""
    show_object(management().get(_path(group)))


@management_command(
    app,
    "hermes group update shop owner.source=Plaintext owner.id=sales",
    "hermes group update shop --from-file group.json",
)
def update(
    group: GroupArgument, pairs: PatchArgument = None, from_file: FromFileOption = None
) -> None:
    """Update a group, for example its owner."""
    resource.update(_path(group), pairs, from_file, f"group {group}", groupName=group)


@management_command(app, "hermes group delete shop --yes")
def delete(group: GroupArgument, yes: YesOption = False) -> None:
    """Delete an empty group."""
    resource.delete(_path(group), group, f"group {group}", yes)
