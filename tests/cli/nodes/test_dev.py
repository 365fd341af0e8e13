"""`hermes dev`: whose ports count, what a taken port says, and what it logs."""

import contextvars
import io
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from hermes_actors.cli.nodes.dev import DEV_DEFAULTS, plan_nodes
from hermes_actors.cli.nodes.logs import line_handler, named_node
from hermes_actors.config import Config
from hermes_chaos.wanted import subscription_body, topic_body


def ports(plan):
    return [(node.frontend.port, node.management.port) for node in plan.nodes]


@pytest.fixture
def node_file(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text("[frontend]\nport = 7000\n[management]\nport = 7100\n")
    return file


def leaves(tree, prefix=""):
    for name, each in tree.items():
        if isinstance(each, dict):
            yield from leaves(each, f"{prefix}{name}.")
        else:
            yield f"`{prefix}{name}`", f"`{json.dumps(each)}`"


@pytest.mark.parametrize(("field", "value"), list(leaves(DEV_DEFAULTS)))
def test_each_default_that_is_another_on_a_laptop_is_documented(field, value) -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    section = page.partition("\n## dev\n")[2].partition("\n## ")[0]
    (row,) = [line for line in section.splitlines() if line.startswith("|") and field in line]
    assert value in row


def test_the_ports_of_a_laptop_are_8080_and_8090() -> None:
    assert ports(plan_nodes("a,b")) == [(8080, 8090), (8081, 8091)]


def test_the_ports_of_a_file_count_where_no_option_is_given(node_file) -> None:
    assert ports(plan_nodes("a,b", file=node_file)) == [(7000, 7100), (7001, 7101)]


def test_a_variable_wins_over_the_file_and_an_option_over_both(node_file, monkeypatch) -> None:
    monkeypatch.setenv("HERMES_FRONTEND_PORT", "8085")
    assert ports(plan_nodes("a", file=node_file)) == [(8085, 7100)]
    assert ports(plan_nodes("a", 9000, 9100, file=node_file)) == [(9000, 9100)]


def test_the_option_0_takes_free_ports_whatever_the_file_says(node_file) -> None:
    assert ports(plan_nodes("a,b", 0, 0, file=node_file)) == [(0, 0), (0, 0)]


def test_0_in_the_environment_takes_free_ports_too(monkeypatch) -> None:
    monkeypatch.setenv("HERMES_MANAGEMENT_PORT", "0")
    assert ports(plan_nodes("a,b")) == [(8080, 0), (8081, 0)]


def test_subscribers_on_the_same_laptop_are_pushed_to_unless_the_file_says_otherwise(
    tmp_path, monkeypatch
) -> None:
    def allowed(file=None):
        return [
            each.consumers.endpoints.allow_loopback for each in plan_nodes("a,b", file=file).nodes
        ]

    assert not Config().consumers.endpoints.allow_loopback
    assert allowed() == [True, True]
    monkeypatch.setenv("HERMES_CONSUMERS_ENDPOINTS_DENIED_HOSTS", "evil.example")
    assert allowed() == [True, True]
    file = tmp_path / "node.toml"
    file.write_text("[consumers.endpoints]\nallow_loopback = false\n")
    assert allowed(file) == [False, False]


def test_more_consumers_only_deliver_and_are_named_after_the_first() -> None:
    plan = plan_nodes("a,b", consumers=3)
    assert [(each.node, each.roles) for each in plan.more] == [
        (name, ["consumers"]) for name in ("a-2", "a-3", "b-2", "b-3")
    ]
    assert plan.consumers("b") == ["b-1", "b-2", "b-3"]
    assert plan_nodes("a,b").more == []


def test_a_line_names_the_dc_and_node_that_it_was_logged_in_and_none_elsewhere() -> None:
    stream = io.StringIO()
    handler = line_handler(stream)

    def warn(text: str) -> None:
        handler.handle(
            logging.LogRecord("hermes_actors.x", logging.WARNING, "", 0, text, None, None)
        )

    with named_node("dc1", "dc1-2"):
        inherited = contextvars.copy_context()
        warn("one")
    warn("two")
    inherited.run(warn, "three")
    lines = [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()]
    assert lines == [
        "WARNING dc1 dc1-2 hermes_actors.x one",
        "WARNING hermes_actors.x two",
        "WARNING dc1 dc1-2 hermes_actors.x three",
    ]


def dev(*options, stderr=subprocess.PIPE):
    return subprocess.Popen(
        [sys.executable, "-m", "hermes_actors", "dev", "--json", *options],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


@pytest.mark.live
def test_what_start_up_takes_of_the_loop_is_no_standstill() -> None:
    free = ("--publish-port", "0", "--management-port", "0")
    with dev("--dcs", "a", *free, stderr=subprocess.STDOUT) as process:
        too_late = threading.Timer(60, process.kill)
        too_late.start()
        try:
            before = []
            while (line := process.stdout.readline()) and not line.startswith("{"):
                before.append(line)
            assert line, "it has said where it listens"
            assert [each for each in before if "loop" in each] == []
        finally:
            too_late.cancel()
            process.terminate()


@pytest.mark.live
@pytest.mark.parametrize("option", ["--publish-port", "--management-port"])
def test_a_taken_port_is_one_line_that_ends_with_the_option_to_change_it(server, option) -> None:
    port = server.url.rpartition(":")[2]
    chosen = {"--publish-port": "0", "--management-port": "0"} | {option: port}
    with dev("--dcs", "a", *(word for pair in chosen.items() for word in pair)) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert len(errors.splitlines()) == 1
    assert f"cannot listen on 127.0.0.1 port {port}: another process does" in errors
    assert errors.endswith(f"choose another port with {option}\n")


@pytest.mark.live
@pytest.mark.parametrize("verbose", [True, False])
def test_a_discarded_message_is_a_line_with_its_dc_and_reason_if_verbose(server, verbose) -> None:
    free = ("--publish-port", "0", "--management-port", "0")
    with dev(*free, *(["--verbose"] if verbose else [])) as process, httpx.Client() as client:
        # A line that never comes must end the test, not hold it up.
        too_late = threading.Timer(60, process.kill)
        too_late.start()
        try:
            second = json.loads(process.stdout.readline())["dcs"][1]
            for path, body in (
                ("/groups", {"groupName": "a"}),
                ("/topics", topic_body("a.b")),
                (
                    "/topics/a.b/subscriptions",
                    subscription_body("a.b", "s", f"{server.url}/answers-404"),
                ),
            ):
                client.post(second["management"] + path, json=body).raise_for_status()
            published = client.post(f"{second['publish']}/topics/a.b", json={}, timeout=30)
            assert published.status_code == 201
            message_id = published.headers["hermes-message-id"]
            if verbose:
                lines = iter(process.stderr.readline, "")
                line = next(each for each in lines if "discarded" in each)
                told = json.loads(line)
                assert (told["level"], told["dc"], told["node"]) == ("INFO", "dc2", "dc2-1")
                assert told["logger"].startswith("hermes_actors.consumer.")
                assert told["message"].startswith(f"a.b$s: discarded {message_id} ")
                assert "404" in told["message"]
            else:
                wait_until_discarded(client, second["publish"], too_late)
            process.terminate()
            _, rest = process.communicate()
        finally:
            too_late.cancel()
            process.kill()
    assert '"INFO"' not in rest or verbose
    assert process.returncode == 0


def wait_until_discarded(client, url, too_late) -> None:
    """Until the metrics count it; asked again and again, as nothing tells when it happens."""
    while too_late.is_alive():
        for line in client.get(f"{url}/status/prometheus").text.splitlines():
            if "subscription_discarded" in line and line.endswith((" 1", " 1.0")):
                return
    raise AssertionError("nothing was discarded")
