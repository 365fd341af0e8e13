"""While the metadata or the log is away nothing false is said, and nothing is half done."""

import random

import httpx
import pytest

from hermes_actors.config import Config
from hermes_actors.errors import Unavailable
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.administration import Administration
from hermes_actors.metadata.registry import Metadata
from hermes_actors.runtime.bridge import open_bridge
from hermes_actors.runtime.clock import seeded_ids


@pytest.fixture
async def unread(api):
    """A node that has not read its metadata yet: nobody runs its registry."""
    log, rng = MemoryLog("dc1", api.clock), random.Random(1)
    metadata = Metadata(log, clock=api.clock, ids=seeded_ids(rng), rng=rng)
    administration = Administration(metadata, log, Config(), api.clock, pool=api.pool)
    async with open_bridge() as bridge:
        transport = httpx.ASGITransport(app=api.apps.app(administration, bridge, Config(), []))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client


@pytest.mark.parametrize("path", ["/groups", "/groups/shop", "/topics", "/topics/a.b", "/stats"])
async def test_before_the_metadata_is_read_nothing_is_said_to_be_missing(api, unread, path):
    answer = await unread.get(path)
    assert api.refusal(answer) == (503, "OTHER")
    assert "has not been read yet" in api.message(answer)


async def test_before_the_metadata_is_read_the_health_is_down(unread):
    answer = await unread.get("/status/health")
    assert answer.status_code == 503
    assert answer.json()["status"] == "DOWN"
    assert "has not been read yet" in answer.json()["reason"]


async def test_a_topic_whose_log_topic_cannot_be_made_is_not_made(api):
    await api.post("/groups", {"groupName": "shop"})
    api.log.faults.unavailable_rate = 1.0
    answer = await api.post("/topics", api.topic())
    assert api.refusal(answer) == (503, "OTHER")
    api.log.faults.heal()
    assert (await api.get("/topics")).json() == []
    assert (await api.post("/topics", api.topic())).status_code == 201


async def test_a_topic_that_was_not_stored_can_be_created_later(api):
    await api.post("/groups", {"groupName": "shop"})

    async def nothing_stored(change, **kwargs):
        raise Unavailable("the metadata log is away")

    real, api.metadata.change = api.metadata.change, nothing_stored
    assert api.refusal(await api.post("/topics", api.topic())) == (503, "OTHER")
    api.metadata.change = real
    assert (await api.post("/topics", api.topic())).status_code == 201


async def test_a_change_during_a_silence_of_the_log_ends_in_time_as_unknown(api, autojump_clock):
    api.log.faults.silent = True
    answer = await api.post("/groups", {"groupName": "shop"})
    assert api.refusal(answer) == (503, "OTHER")
    api.log.faults.heal()
    await api.metadata.wait_current()
