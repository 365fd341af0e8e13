"""Pendings without a frontend, on a route that a test may inspect."""

from collections.abc import Callable
from typing import Any

from hermes_actors.model.names import TopicName
from hermes_actors.model.topic import Ack
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.measures import FrontendMeasures
from hermes_actors.publisher.pending import Limits, Pending, Route
from hermes_actors.telemetry.metrics import Metrics
from tests.values import a_topic

LIMITS = Limits(65, 65, 65)
TOPIC = a_topic()


def route_of(**parts: Any) -> Any:
    """A route without a producer."""
    measures = FrontendMeasures(Metrics("hermes_frontend"), "dc1", lambda: 0)
    topic_measures = measures.topic(TopicName.parse("shop.orders"), Ack.LEADER)
    route = Route(
        "shop.orders",
        "shop.orders_1",
        TOPIC,
        None,
        LIMITS,
        topic_measures,
        Drain(initial_wait_ms=0, drain_ms=0),
        "producer",
    )
    for name, part in parts.items():
        setattr(route, name, part)
    return route


def pending_of(
    started_s: float = 0.0,
    limits: Limits = LIMITS,
    notify: Callable[[Pending], None] = lambda _pending: None,
    route: Any = None,
    key: bytes | None = None,
    count: int = 1,
) -> Pending:
    """An admitted pending, counted by its route's drain."""
    route = route or route_of()
    route.drain.in_flight += 1
    return Pending("id", route, started_s, key, 2, limits, notify, count=count)
