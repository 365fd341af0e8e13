"""The fakes are kept honest: each fault names a live test, which exists, that saw real Kafka do it.

Read as text, because the live tests need a broker to be imported for.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = re.compile(r"`(tests/live/\w+\.py)::(test_\w+)`")


def class_in(path, name):
    tree = ast.parse((ROOT / path).read_text())
    return next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)


def dials():
    """What can be set or done to a memory log, with what its docstring says."""
    faults = class_in("hermes_actors/log/faults.py", "Faults")
    functions = [each for each in faults.body if isinstance(each, ast.FunctionDef)]
    settable = {
        decorator.value.id
        for function in functions
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Attribute) and decorator.attr == "setter"
        if isinstance(decorator.value, ast.Name)
    }
    said = {}
    for function in functions:
        is_property = any(getattr(each, "id", "") == "property" for each in function.decorator_list)
        if (is_property and function.name in settable) or function.name == "cut":
            said[function.name] = ast.get_docstring(function) or ""
        if function.name == "_reset_plain":
            for statement, following in zip(function.body, function.body[1:], strict=False):
                targets = getattr(statement, "targets", [getattr(statement, "target", None)])
                if isinstance(targets[0], ast.Attribute):
                    said[targets[0].attr] = ast.literal_eval(ast.unparse(following))
    memory = class_in("hermes_actors/log/memory.py", "MemoryLog")
    for function in memory.body:
        if getattr(function, "name", "") in ("expire", "change_leader"):
            said[function.name] = ast.get_docstring(function) or ""
    return said


def test_every_fault_is_known_here():
    assert {
        "delay_s",
        "read_delay_s",
        "unavailable_rate",
        "acknowledgement_lost_rate",
        "partial_rate",
        "late_store",
        "reads_failing",
        "commits_failing",
        "stale_commits",
        "silent",
        "reads_silent",
        "replication_stopped",
        "cut",
        "expire",
        "change_leader",
    } <= set(dials())


@pytest.mark.parametrize("fault", sorted(dials()))
def test_every_fault_names_a_live_test_that_exists(fault):
    named = TEST.findall(dials()[fault])
    assert named, f"{fault}: name the live test that saw it, `tests/live/….py::test_…`"
    for path, name in named:
        check(path, name)


def test_the_tests_that_the_faults_module_names_exist():
    named = TEST.findall((ROOT / "hermes_actors/log/faults.py").read_text())
    assert len(named) >= 15
    for path, name in named:
        check(path, name)


def check(path, name):
    tree = ast.parse((ROOT / path).read_text())
    tests = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    assert name in tests, f"{path} has no {name}"
    marks = (ROOT / path).read_text()
    assert "pytest.mark.kafka" in marks
