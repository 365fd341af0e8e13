"""The subscription with dead letters."""

import pytest

from hermes_actors.log.memory import MemoryLog
from tests.management.dead_letters_scene import Desk


@pytest.fixture
async def desk(api):
    remote = MemoryLog("dc2", api.clock)
    api.administered_with(remote_logs=(remote,))
    await api.with_topic()
    await api.with_subscription()
    return Desk(api, remote)
