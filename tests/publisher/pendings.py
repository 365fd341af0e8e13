"""Pendings without a frontend, on a route that a test may look at."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hermes_actors.model.names import TopicName
from hermes_actors.model.topic import Ack
from hermes_actors.publisher.measures import FrontendMeasures
from hermes_actors.publisher.pending import Pending
from hermes_actors.publisher.route import Limits, Tally
from hermes_actors.telemetry.metrics import Metrics

LIMITS = Limits(65, 65, 65)


def route_of(**parts: Any) -> SimpleNamespace:
    """As much of a route as a Pending needs."""
    tally = Tally()
    measures = FrontendMeasures(Metrics("hermes_frontend"), "dc1", lambda: 0)
    given = {
        "name": "shop.orders",
        "log_topic": "shop.orders_1",
        "spool": None,
        "measures": measures.topic(TopicName.parse("shop.orders"), Ack.LEADER),
    }
    return SimpleNamespace(**given | {"tally": tally, "hurry": lambda: None} | parts)


def pending_of(
    started_s: float = 0.0,
    limits: Limits = LIMITS,
    notify: Callable[[Pending], None] = lambda _pending: None,
    route: Any = None,
    key: bytes | None = None,
    count: int = 1,
) -> Pending:
    """An admitted one, counted by its route's tally."""
    route = route or route_of()
    route.tally.in_flight += 1
    return Pending("id", route, started_s, key, 2, limits, notify, count=count)
