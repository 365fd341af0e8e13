"""Without Spark the demonstration says so, and how to add it."""

import io
from pathlib import Path

import pytest
from rich.console import Console

WAY_OUT = "in a checkout run 'make spark', or pip install '.[spark]'"


@pytest.fixture
def reconciling(hermes):
    from examples.flights import reconciling

    return reconciling


def test_without_spark_the_command_that_adds_it_is_shown_whole(reconciling, monkeypatch):
    reason = f"the Spark jobs need pyspark, pandas, pyarrow; {WAY_OUT}"
    monkeypatch.setattr(reconciling, "spark_is_missing", lambda: reason)
    shown = io.StringIO()
    console = Console(file=shown, width=80)
    assert reconciling.reconcile([], "a.b", [], Path("report"), console)
    assert WAY_OUT in shown.getvalue()
