"""Every command's help has examples, and shows flags without a value and names without braces."""

import pytest
import typer

from hermes_actors.cli.command_line.lazy import installed_plugins
from hermes_actors.cli.main import app


def command_lines():
    """Every command line of our own, without its arguments."""
    others = {each.name for each in installed_plugins()}
    for name, command in getattr(typer.main.get_command(app), "commands", {}).items():
        if name in others:
            continue
        yield (name,)
        for below in getattr(command.real, "commands", {}):
            yield (name, below)


@pytest.mark.parametrize("words", [(), *command_lines()], ids=" ".join)
def test_help_has_examples_flags_without_a_value_and_names_without_braces(hermes, words) -> None:
    result = hermes(*words, "--help")
    assert result.exit_code == 0
    assert "bool" not in result.stdout
    usage = next(line for line in result.stdout.splitlines() if "Usage:" in line)
    assert not {"{", "}"} & set(usage)
    assert "......" not in usage.replace("]", "")
    examples = result.stdout.partition("Examples:")[2]
    assert "COMMAND" in usage or " ".join(("hermes", *words)) in examples


def test_the_usage_shows_what_is_required_plainly_and_what_is_not_in_brackets(hermes) -> None:
    assert "hermes publish [OPTIONS] TOPIC [MESSAGE]" in hermes("publish", "--help").stdout


def test_the_help_of_a_flag_is_still_there(hermes) -> None:
    shown = " ".join(hermes("topic", "create", "--help").stdout.split())
    assert "--tracking Record events." in shown
