"""Each metric has a unit and a meaning, in HELP and in the documentation."""

import ast
from pathlib import Path

from hermes_actors.telemetry.meanings import MEANINGS, table
from hermes_actors.telemetry.metrics import Metrics, render

ROOT = Path(__file__).resolve().parents[2]
_KINDS = {"counter": "", "gauge": "", "gauges": "", "total": "", "sizes": "", "timer": "_seconds"}


def declared() -> set[str]:
    """The names without prefix that the source declares, as far as they are written out there."""
    found = set()
    for path in (ROOT / "hermes_actors").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args
            ):
                continue
            name, kind = node.args[0], node.func.attr
            of_metrics = ast.unparse(node.func.value).rpartition(".")[2] in ("metrics", "_metrics")
            is_text = isinstance(name, ast.Constant) and isinstance(name.value, str)
            if kind in _KINDS and of_metrics and is_text:
                found.add(ast.literal_eval(name) + _KINDS[kind])
    return found


def test_the_documentation_has_the_table_of_the_source() -> None:
    lines = (ROOT / "docs" / "metrics.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("|")] == list(table()), (
        "write the output of `python -m hermes_actors.telemetry.meanings` into docs/metrics.md"
    )


def test_every_metric_that_the_source_names_has_a_meaning() -> None:
    names = declared()
    assert len(names) > 60
    known = {name.split("_", 2)[2] for name in MEANINGS}
    assert names <= known, "add it to telemetry/meanings.py"


def test_help_says_the_meaning_with_its_unit() -> None:
    metrics = Metrics("hermes_frontend")
    metrics.counter("spool_written").add()
    shown = render([metrics]).decode()
    assert shown.splitlines()[0] == (
        "# HELP hermes_frontend_spool_written_total Messages that were put into the spool and "
        "answered 202; in messages."
    )
