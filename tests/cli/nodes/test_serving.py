"""What processes that serve say of their stopping."""

from hermes_actors.cli.nodes.serving import stopping
from hermes_actors.config import Config, FrontendConfig


def node(name: str, wait_ms: int, *roles: str) -> Config:
    frontend = FrontendConfig(graceful_shutdown_initial_wait_ms=wait_ms)
    return Config(node=name, roles=list(roles), frontend=frontend)


def test_who_stops_slowly_says_so_and_which_setting_makes_it_slow() -> None:
    said = stopping([node("n1", 10_000, "frontend"), node("n2", 1_500, "frontend", "consumers")])
    assert said.startswith(
        "stopping; publishes are accepted for another 10 s so that load balancers notice ("
    )
    assert "frontend.graceful_shutdown_initial_wait_ms" in said
    assert " 1.5 s " in stopping([node("n2", 1_500, "frontend")])


def test_who_stops_at_once_says_nothing() -> None:
    assert stopping([node("n1", 0, "frontend"), node("n2", 10_000, "consumers")]) == ""
