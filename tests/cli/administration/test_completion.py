"""Names that a shell completes: asked through the framework, as bash asks for them."""

import shlex
import threading
from functools import partial
from types import SimpleNamespace

import pytest
import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio import serve
from typer.testing import CliRunner

from hermes_actors.cli.administration import arguments
from hermes_actors.cli.command_line import credentials
from hermes_actors.cli.main import app
from hermes_actors.config import Config
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.app import build_app
from hermes_actors.node import open_node
from hermes_actors.runtime.bridge import open_bridge
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.surroundings import create_shop, surroundings


def completed(line: str) -> list[str]:
    """What bash is told at the end of this line, in its order."""
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    result = CliRunner().invoke(
        app,
        [],
        env={
            "_HERMES_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        catch_exceptions=False,
        prog_name="hermes",
    )
    assert result.exit_code == 0
    assert result.stderr == ""
    return result.stdout.split()


@pytest.mark.slow
async def test_a_real_management_is_asked(monkeypatch):
    clock = SimulatedClock()
    config = Config(roles=["management"])
    async with (
        open_node(config, surroundings(clock, MemoryLog("dc1", clock))) as node,
        open_bridge() as bridge,
        trio.open_nursery() as nursery,
    ):
        await node.metadata.wait_current()
        await create_shop(node.administration, "http://10.255.255.1/")
        served = HypercornConfig()
        served.bind, served.accesslog, served.errorlog = ["127.0.0.1:0"], None, None
        served.graceful_timeout = 0.05
        start = partial(serve, build_app(node.administration, bridge, config), served)
        (url,) = await nursery.start(start)
        monkeypatch.setenv("HERMES_MANAGEMENT_URL", url.rstrip("/"))

        async def at(line):
            return await trio.to_thread.run_sync(completed, line)

        assert await at("hermes group show ") == ["shop"]
        assert await at("hermes topic show sh") == ["shop.orders"]
        assert await at("hermes tail x") == []
        assert await at("hermes subscription show shop.orders ") == ["billing"]
        assert await at("hermes subscription why shop.nothing ") == []
        nursery.cancel_scope.cancel()


TOPICS = ["shop.orders", "shop.offers", "news.today"]


@pytest.fixture
def listed(server, monkeypatch):
    monkeypatch.setenv("HERMES_MANAGEMENT_URL", server.url)
    server.on("GET /topics", (200, TOPICS))
    server.on("GET /topics/shop.orders/subscriptions", (200, ["billing", "mail"]))
    server.on("GET /groups", (200, ["news", "shop"]))
    return server


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hermes topic show ", sorted(TOPICS)),
        ("hermes topic show shop.o", ["shop.offers", "shop.orders"]),
        ("hermes topic list --group ", ["news", "shop"]),
        ("hermes publish ne", ["news.today"]),
        ("hermes subscription list sh", ["shop.offers", "shop.orders"]),
        ("hermes subscription test shop.orders m", ["mail"]),
        ("hermes subscription suspend shop.orders ", ["billing", "mail"]),
        ("hermes subscription suspend shop.orders billing m", ["mail"]),
        ("hermes subscription filter-test shop.orders b", ["billing"]),
        ("hermes balancer constrain shop.orders ", ["billing", "mail"]),
        ("hermes dlq list shop.orders ", ["billing", "mail"]),
    ],
)
def test_each_command_completes_what_it_takes(listed, line, expected):
    assert completed(line) == expected


def test_the_server_and_the_credentials_of_the_line_and_the_environment_count(
    listed, monkeypatch, tmp_path
):
    (tmp_path / "token").write_text("sesame\n")
    monkeypatch.setenv("HERMES_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("HERMES_MANAGEMENT_URL", "http://nobody.invalid")
    assert completed(f"hermes topic show --management {listed.url} ne") == ["news.today"]
    assert listed.calls[0].headers["authorization"] == "Bearer sesame"


@pytest.mark.parametrize(
    "answer",
    [(401, {"message": "no", "code": "AUTH_ERROR"}), (200, b"<html>"), (200, {"a": 1}), (200, [1])],
)
def test_what_is_no_list_of_names_completes_nothing_and_says_nothing(listed, answer):
    listed.on("GET /topics", answer)
    assert completed("hermes topic show ") == []


@pytest.mark.parametrize(
    "variables",
    [
        {"HERMES_MANAGEMENT_URL": "http://127.0.0.1:1"},
        {"HERMES_MANAGEMENT_URL": "nonsense"},
        {"HERMES_TOKEN_FILE": "/nowhere/token"},
    ],
)
def test_who_cannot_be_asked_completes_nothing_and_says_nothing(listed, monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert completed("hermes topic show ") == []
    assert listed.calls == []


def test_a_management_that_is_late_is_not_waited_for(listed, monkeypatch):
    monkeypatch.setattr(arguments, "TIMEOUT_S", 0.05)
    is_over, answered, answer = threading.Event(), [], listed.answer

    def late(call):
        is_over.wait(5)
        answered.append(call)
        return answer(call)

    monkeypatch.setattr(listed, "answer", late)
    try:
        assert completed("hermes topic show ") == []
        assert answered == []
    finally:
        is_over.set()


def test_nobody_is_asked_for_a_password_while_he_types(listed, monkeypatch):
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(credentials, "sys", terminal)
    monkeypatch.setenv("HERMES_USER", "ann")
    assert completed("hermes topic show ") == []
    assert listed.calls == []


def test_only_so_many_names_are_told(listed):
    listed.on("GET /topics", (200, [f"shop.t{number}" for number in range(3_000)]))
    assert len(completed("hermes topic show ")) == arguments.NAMES_MAX
