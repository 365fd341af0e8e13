"""`hermes top` shows nodes, topics and subscriptions, the worst first."""

import pytest

from hermes_actors.cli.status import rows_that_fit

READY = {
    "datacenter": "dc1",
    "node": "n1",
    "state": "READY",
    "publishedRate": 10.0,
    "deliveredRate": 5.0,
    "loopLagMs": 3.2,
    "spooledMessages": 4,
    "elsewhereRate": 0.5,
}
GONE = {**READY, "node": "n2", "state": "GONE", "reasons": ["not heard from for 12 s"]}


@pytest.mark.parametrize(("lines", "rows"), [(24, 3), (50, 12), (2, 3)])
def test_three_tables_fit_on_the_screen(lines, rows):
    assert rows_that_fit(True, lines) == rows
    assert rows_that_fit(False, lines) == 20
