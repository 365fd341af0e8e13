"""The pytest plugin. Every test run loads it, so it imports the rest when a test wants a broker."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def hermes_broker() -> Iterator[Any]:
    """The `Broker` of all tests of this process, with `publish_url` and `management_url`."""
    from hermes_actors.testing.broker import open_broker

    with open_broker() as broker:
        yield broker


@pytest.fixture
def hermes(hermes_broker: Any) -> Iterator[Any]:
    """The broker for one test, as `Hermes`: empty at its start."""
    from hermes_actors.testing.kit import open_kit

    with open_kit(hermes_broker) as kit:
        yield kit
