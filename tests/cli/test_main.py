import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer

from hermes_actors import __version__
from hermes_actors.cli.command_line import lazy
from hermes_actors.cli.main import HermesGroup, app
from hermes_actors.errors import StartupError

works = typer.Typer(help="A plug-in that works.")


@works.command()
def greet(name: str) -> None:
    """Say hello."""
    typer.echo(f"hello {name}")


@works.command()
def break_down() -> None:
    """Fail as a node that cannot start does."""
    raise StartupError("the port is taken; choose another")


@works.command()
def interrupted() -> None:
    """End as trio ends on Ctrl-C inside a nursery."""
    raise BaseExceptionGroup("", [KeyboardInterrupt()])


@works.command()
def closed_pipe() -> None:
    """End as a closed stdout ends a command with trio."""
    raise ExceptionGroup("", [ExceptionGroup("", [BrokenPipeError(32, "Broken pipe")])])


@works.command()
def full_disk() -> None:
    """End as a full disk ends a command with trio."""
    raise ExceptionGroup("", [OSError(28, "No space left on device")])


@works.command()
def defect() -> None:
    """End as a defect does."""
    raise ExceptionGroup("", [OSError(28, "No space left on device"), KeyError("x")])


@works.command()
def interrupted_plainly() -> None:
    """End as Ctrl-C ends a command without trio."""
    raise KeyboardInterrupt


@pytest.fixture
def plugins(monkeypatch):
    found = []
    monkeypatch.setattr(lazy, "installed_plugins", lambda: found)

    def add(name, value):
        found.append(EntryPoint(name, value, lazy.PLUGIN_GROUP))

    # The module that pytest runs, under a name that an entry point can load.
    monkeypatch.setitem(sys.modules, "plugin_under_test", sys.modules[__name__])
    return add


def test_the_version_is_the_packages(hermes):
    assert hermes("--version").stdout == f"hermes {__version__}\n"


def test_help_lists_every_command_and_the_exit_codes(hermes, plugins):
    result = hermes("--help")
    assert result.exit_code == 0
    for name in (
        "dev",
        "publish",
        "tail",
        "sink",
        "group",
        "topic",
        "subscription",
        "oauth-provider",
        "status",
        "config",
    ):
        assert f" {name} " in result.stdout
    assert "Exit codes" in result.stdout


def test_an_unknown_command_is_one_line_with_a_suggestion(hermes, plugins):
    result = hermes("grop")
    assert result.exit_code == 2
    assert result.stderr == (
        "hermes: No such command 'grop'. Did you mean 'group'?; see 'hermes --help'\n"
    )


def test_a_missing_argument_is_one_line_with_exit_code_2(hermes, plugins):
    result = hermes("topic", "show")
    assert result.exit_code == 2
    assert result.stderr == "hermes: Missing argument 'TOPIC'; see 'hermes topic show --help'\n"


def test_a_bad_choice_names_the_choices(hermes, plugins):
    result = hermes("topic", "create", "a.b", "--ack", "MOST")
    assert result.exit_code == 2
    assert "'--ack': 'MOST' is not one of 'NONE', 'LEADER', 'ALL'; see" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_plugin_brings_its_commands_in(hermes, plugins):
    plugins("extra", "plugin_under_test:works")
    assert "A plug-in that works." in hermes("--help").stdout
    assert hermes("extra", "greet", "you").stdout == "hello you\n"


def test_help_says_of_a_broken_plugin_that_it_cannot_be_loaded(hermes, plugins):
    plugins("broken", "no_such_module_anywhere:app")
    result = hermes("--help")
    assert (result.exit_code, result.stderr) == (0, "")
    assert " broken " in result.stdout
    assert "fix or" in result.stdout
    assert " publish " in result.stdout


def test_calling_a_broken_plugin_is_one_line_with_exit_code_1(hermes, plugins):
    plugins("broken", "no_such_module_anywhere:app")
    result = hermes("broken", "now")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "cannot be loaded" in result.stderr


def test_a_broken_plugin_is_not_loaded_by_other_commands(hermes, plugins):
    plugins("broken", "no_such_module_anywhere:app")
    assert hermes("config", "check").stderr == ""


def test_a_plugin_cannot_take_a_built_in_commands_place(plugins):
    plugins("topic", "plugin_under_test:works")
    command = typer.main.get_command(app)
    assert isinstance(command, HermesGroup)
    assert command.commands["topic"].short_help


def test_our_own_errors_are_one_line_with_exit_code_1(hermes, plugins):
    plugins("extra", "plugin_under_test:works")
    result = hermes("extra", "break-down")
    assert result.exit_code == 1
    assert result.stderr == "hermes: the port is taken; choose another\n"


@pytest.mark.parametrize("command", ["interrupted", "interrupted-plainly"])
def test_ctrl_c_exits_with_130_and_says_nothing(hermes, plugins, command):
    plugins("extra", "plugin_under_test:works")
    result = hermes("extra", command)
    assert result.exit_code == 130
    assert result.output == ""


def test_a_reader_that_has_seen_enough_ends_a_command_without_a_word(hermes, plugins):
    plugins("extra", "plugin_under_test:works")
    result = hermes("extra", "closed-pipe")
    assert result.exit_code == 1
    assert result.output == ""


def test_a_full_disk_is_one_line_also_out_of_a_nursery(hermes, plugins):
    plugins("extra", "plugin_under_test:works")
    result = hermes("extra", "full-disk")
    assert result.exit_code == 1
    assert result.stderr == "hermes: No space left on device\n"


def test_a_defect_is_not_taken_for_the_systems_refusal(hermes, plugins):
    plugins("extra", "plugin_under_test:works")
    with pytest.raises(ExceptionGroup):
        hermes("extra", "defect")


@pytest.mark.slow
def test_what_stdout_does_not_take_at_the_end_is_a_failure():
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "hermes_actors", "config", "check"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (1, "hermes: No space left on device\n")


def test_help_imports_neither_trio_nor_httpx():
    code = (
        "import sys\n"
        "from hermes_actors.cli.command_line import lazy\n"
        "lazy.installed_plugins = lambda: []\n"
        "from hermes_actors.cli.main import app\n"
        "sys.argv = ['hermes', '--help']\n"
        "try:\n    app(prog_name='hermes')\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "assert not {'trio', 'httpx', 'asyncio'} & sys.modules.keys()\n"
    )
    ended = subprocess.run(  # a fresh interpreter is the only one that has imported nothing
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_config_show_can_be_read_back(hermes, plugins, tmp_path, monkeypatch):
    monkeypatch.setenv("HERMES_FRONTEND_PORT", "8081")
    shown = hermes("config", "show")
    monkeypatch.delenv("HERMES_FRONTEND_PORT")
    assert "frontend.port = 8081" in shown.stdout
    file = tmp_path / "node.toml"
    file.write_text(shown.stdout)
    assert hermes("config", "show", str(file)).stdout == shown.stdout
    assert hermes("config", "check", str(file)).stdout == "ok\n"


def test_config_check_names_the_wrong_field(hermes, plugins, tmp_path):
    file = tmp_path / "node.toml"
    file.write_text("[frontend]\nprot = 1\n")
    result = hermes("config", "check", str(file))
    assert result.exit_code == 1
    assert "prot" in result.stderr
    assert len(result.stderr.splitlines()) == 1
