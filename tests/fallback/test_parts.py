"""The order of the remotes."""

import pytest

from hermes_actors.config import ConfigError
from hermes_actors.fallback.node import in_order


def test_remotes_stand_as_configured_else_by_name() -> None:
    assert in_order([], ["dc3", "dc2"]) == ["dc2", "dc3"]
    assert in_order(["dc3", "dc2", "dc3"], ["dc2", "dc3", "dc4"]) == ["dc3", "dc2"]


def test_a_remote_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"fallback\.remotes: 'dc9'.*dc2, dc3"):
        in_order(["dc9"], ["dc3", "dc2"])
