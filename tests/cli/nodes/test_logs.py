"""The log lines of a node's process: UTC, text or JSON, as many as are asked for."""

import io
import json
import logging
import threading
from contextlib import contextmanager

import pytest

from hermes_actors.cli.nodes.logs import line_handler, log_to, named_node
from hermes_actors.config import LogConfig, load
from hermes_actors.model.trace_context import trace_ids

AT_S = 1_900_000_000.25
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def record(text, *args, level=logging.WARNING, exc_info=None):
    made = logging.LogRecord("hermes_actors.x", level, "", 0, text, args, exc_info)
    made.created = AT_S
    return made


def line_of(log_format, made):
    stream = io.StringIO()
    line_handler(stream, log_format).handle(made)
    return stream.getvalue()


@contextmanager
def bare_loggers():
    root, ours = logging.getLogger(), logging.getLogger("hermes_actors")
    before = root.handlers[:], root.level, ours.level
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:], level, our_level = before
        root.setLevel(level)
        ours.setLevel(our_level)


def test_times_are_utc_and_say_so_whatever_zone_the_machine_is_in(monkeypatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    line = line_of("text", record("it is %s", "so"))
    assert line == "2030-03-17T17:46:40.250Z WARNING hermes_actors.x it is so\n"


def test_json_is_one_object_a_line_with_the_node_and_the_traceback() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        made = record("broken:\n%s", "ü", exc_info=(type(error), error, error.__traceback__))
    with named_node("dc1", "dc1-2"):
        line = line_of("json", made)
    assert line.count("\n") == 1
    shown = json.loads(line)
    assert shown.pop("exception").endswith("ValueError: two\nlines")
    assert shown == {
        "time": "2030-03-17T17:46:40.250Z",
        "level": "WARNING",
        "dc": "dc1",
        "node": "dc1-2",
        "logger": "hermes_actors.x",
        "message": "broken:\nü",
    }


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "is_json"), [(io.StringIO(), True), (Terminal(), False)])
def test_people_get_text_and_machines_get_json(stream, is_json) -> None:
    line_handler(stream, LogConfig().format).handle(record("x"))
    assert stream.getvalue().startswith("{") == is_json


def test_a_line_about_a_message_that_is_traced_names_the_trace() -> None:
    made = logging.getLogger("x").makeRecord(
        "x", logging.INFO, "", 0, "discarded", (), None, extra=trace_ids(TRACEPARENT)
    )
    shown = json.loads(line_of("json", made))
    assert (shown["trace_id"], shown["span_id"]) == (TRACEPARENT[3:35], TRACEPARENT[36:52])
    assert trace_ids("") == {}
    assert trace_ids("00-nothing") == {}


def test_a_change_is_an_object_in_json_and_behind_the_text() -> None:
    change = {"by": "ann", "before": None, "after": {"a": "ü"}}
    made = record("topic/a/b is created by ann")
    made.change = change
    assert json.loads(line_of("json", made))["change"] == change
    assert line_of("text", made).endswith(f"ann {json.dumps(change, ensure_ascii=False)}\n")


def test_json_leaves_out_what_is_not_known() -> None:
    assert list(json.loads(line_of("json", record("x")))) == ["time", "level", "logger", "message"]


@pytest.mark.parametrize(
    ("level", "is_verbose", "told"),
    [
        ("warning", False, ["ours warning", "theirs warning"]),
        ("warning", True, ["ours info", "ours warning", "theirs warning"]),
        ("debug", True, ["ours debug", "ours info", "ours warning", "theirs warning"]),
        ("error", False, []),
    ],
)
def test_the_level_is_of_our_own_lines_and_libraries_tell_no_less_than_warnings(
    level, is_verbose, told
) -> None:
    stream = io.StringIO()
    with bare_loggers():
        log_to(stream, LogConfig(level=level, format="text"), is_verbose=is_verbose)
        for severity in ("debug", "info", "warning"):
            getattr(logging.getLogger("hermes_actors.x"), severity)("ours %s", severity)
        logging.getLogger("library").info("theirs info")
        logging.getLogger("library").warning("theirs warning")
    assert [line.split(" ", 3)[3] for line in stream.getvalue().splitlines()] == told


def test_both_are_set_by_the_variables_that_one_expects() -> None:
    config = load(None, {"HERMES_LOG_FORMAT": "json", "HERMES_LOG_LEVEL": "debug"})
    assert (config.log.format, config.log.level) == ("json", "debug")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_a_thread_of_a_nodes_process_logs_names_the_node_too(log_format) -> None:
    stream = io.StringIO()
    handler = line_handler(stream, log_format, ("dc1", "n1"))
    with named_node("dc2", "n2"):
        thread = threading.Thread(target=handler.handle, args=(record("watched"),))
        thread.start()
        thread.join()
        handler.handle(record("inside"))
    outside, inside = stream.getvalue().splitlines()
    if log_format == "json":
        found = [
            [line[each] for each in ("dc", "node")] for line in map(json.loads, (outside, inside))
        ]
        assert found == [["dc1", "n1"], ["dc2", "n2"]]
    else:
        assert "WARNING dc1 n1 hermes_actors.x watched" in outside
        assert "WARNING dc2 n2 hermes_actors.x inside" in inside
