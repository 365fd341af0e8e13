import pytest

from hermes_actors.config import ManagementConfig


@pytest.fixture
def settings():
    return ManagementConfig(allow_removal=True, graphql_enabled=True)
