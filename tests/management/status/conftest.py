"""The subscription in the nodes' status records."""

import pytest

from hermes_actors.status.fold import StatusFold
from tests.management.statuses_scene import Nodes


@pytest.fixture
async def nodes(api):
    fold = StatusFold()
    api.administered_with(status=fold)
    await api.with_topic()
    await api.with_subscription()
    return Nodes(fold, api.clock)
