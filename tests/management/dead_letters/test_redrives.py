"""A re-drive is asked for, followed and cancelled."""

from hermes_actors.log.base import Commit
from hermes_actors.metadata.redrives import RedriveProgress, progress_metadata, redrive_of
from hermes_actors.model.names import SubscriptionName
from tests.management.dead_letters_scene import GROUP, LETTERS, PARTITION, TOPIC


async def test_a_redrive_is_written_down_for_the_datacentres_that_have_letters(desk):
    await desk.write(desk.letter(1), desk.letter(2, reason="expired"))
    await desk.write(desk.letter(3, "dc2"), dc="dc2")
    dry = (await desk.api.post(f"{LETTERS}/redrive", {"all": True, "dryRun": True})).json()
    assert (dry["matching"], dry["dryRun"]) == (3, True)
    assert redrive_of(desk.api.metadata.catalog, desk.live.name, desk.live.incarnation) is None
    answer = await desk.api.post(f"{LETTERS}/redrive", {"reason": "expired", "ratePerSecond": 7})
    assert answer.status_code == 202
    assert answer.json()["datacenters"] == [{"datacenter": "dc1", "matching": 1}]
    redrive = redrive_of(desk.api.metadata.catalog, desk.live.name, desk.live.incarnation)
    assert (redrive.number, redrive.rate_per_s, redrive.letters.reasons) == (1, 7, ("expired",))
    assert {dc: (each.start, each.end) for dc, each in redrive.ranges.items()} == {"dc1": (0, 2)}


async def test_the_progress_of_a_redrive_is_what_the_consumers_committed(desk):
    assert (await desk.api.get(f"{LETTERS}/redrive")).status_code == 404
    await desk.write(desk.letter(1))
    await desk.write(desk.letter(3, "dc2"), dc="dc2")
    await desk.api.post(f"{LETTERS}/redrive", {"all": True})
    progress = RedriveProgress(1, desk.requested_at_ms, total=5, redriven=2, failed=1)
    await desk.api.log.commit(GROUP, TOPIC, {PARTITION: Commit(0, progress_metadata(progress))})
    shown = (await desk.api.get(f"{LETTERS}/redrive")).json()
    assert [each["state"] for each in shown["datacenters"]] == ["RUNNING", "WAITING"]
    assert (shown["total"], shown["redriven"], shown["failed"]) == (5, 2, 1)
    assert shown["isDone"] is False
    desk.remote.faults.reads_failing = True
    shown = (await desk.api.get(f"{LETTERS}/redrive")).json()
    assert [each["state"] for each in shown["datacenters"]] == ["RUNNING", "UNKNOWN"]


async def test_one_redrive_at_a_time_and_a_cancelled_one_makes_room(desk):
    await desk.write(desk.letter(1))
    assert (await desk.api.post(f"{LETTERS}/redrive", {"all": True})).status_code == 202
    second = await desk.api.post(f"{LETTERS}/redrive", {"all": True})
    assert desk.api.refusal(second) == (409, "OTHER")
    assert (await desk.api.delete(f"{LETTERS}/redrive")).status_code == 200
    assert (await desk.api.delete(f"{LETTERS}/redrive")).status_code == 404
    assert (await desk.api.post(f"{LETTERS}/redrive", {"all": True})).status_code == 202


async def test_a_cancelled_redrive_still_tells_how_far_it_came_and_who_ended_it(desk):
    await desk.write(desk.letter(1))
    await desk.api.post(f"{LETTERS}/redrive", {"all": True})
    requested_at_ms = desk.requested_at_ms
    progress = RedriveProgress(1, requested_at_ms, total=3, redriven=1, failed=1)
    await desk.api.log.commit(GROUP, TOPIC, {PARTITION: Commit(1, progress_metadata(progress))})
    await desk.api.delete(f"{LETTERS}/redrive")
    shown = (await desk.api.get(f"{LETTERS}/redrive")).json()
    assert (shown["total"], shown["redriven"], shown["failed"]) == (3, 1, 1)
    assert shown["isDone"] is False
    assert shown["cancelledAt"].endswith("Z")
    (there,) = shown["datacenters"]
    assert (there["datacenter"], there["state"]) == ("dc1", "CANCELLED")
    assert there["reason"].startswith("cancelled by ")
    # Nobody carries it out, and the next one has a number of its own.
    name = SubscriptionName.parse("shop.orders$billing")
    assert redrive_of(desk.api.metadata.catalog, name, 0).ranges == {}
    assert (await desk.api.post(f"{LETTERS}/redrive", {"all": True})).json()["number"] == 2


async def test_a_redrive_that_is_done_makes_room_and_numbers_go_up(desk):
    await desk.write(desk.letter(1))
    await desk.api.post(f"{LETTERS}/redrive", {"all": True})
    progress = RedriveProgress(1, desk.requested_at_ms, is_done=True)
    await desk.api.log.commit(GROUP, TOPIC, {PARTITION: Commit(1, progress_metadata(progress))})
    assert (await desk.api.get(f"{LETTERS}/redrive")).json()["isDone"] is True
    second = await desk.api.post(f"{LETTERS}/redrive", {"all": True})
    assert second.json()["number"] == 2


async def test_a_redrive_of_nothing_is_refused(desk):
    answer = await desk.api.post(f"{LETTERS}/redrive", {"all": True})
    assert desk.api.refusal(answer) == (404, "OTHER")
