"""A subscription that the broker has suspended says why, until somebody resumes it."""

import trio

from hermes_actors.balancer.outbox import Outbox
from hermes_actors.metadata.bodies import Suspension

PATH = "/topics/shop.orders/subscriptions/billing"
GONE = "the endpoint is gone, it answered HTTP 410"
SINCE_S = 1_700_000_000.5


async def suspend(api, nursery):
    await api.with_topic()
    await api.with_subscription()
    outbox = Outbox(api.metadata)
    nursery.start_soon(outbox.run)
    outbox.suspend(
        api.metadata.catalog.subscriptions["shop.orders$billing"],
        Suspension(1_700_000_000_500, reason=GONE),
    )
    with trio.fail_after(5), api.metadata.watch() as watch:
        while (await shown(api))["state"] != "SUSPENDED":
            await watch.wait()
            watch.take_nowait()


async def shown(api):
    return (await api.get(PATH)).json()


async def test_the_reason_is_shown_until_it_is_resumed(api, nursery):
    await suspend(api, nursery)
    for answer in (await shown(api), (await api.get(f"{PATH}/why")).json()):
        assert answer["state"] == "SUSPENDED"
        assert suspension(answer) == (SINCE_S, "[broker]", GONE)
    assert (await api.put(f"{PATH}/state", "ACTIVE")).status_code == 200
    for answer in (await shown(api), (await api.get(f"{PATH}/why")).json()):
        assert suspension(answer) == (None, None, None)


async def test_who_has_suspended_it_is_shown_with_the_time_until_it_is_resumed(api):
    await api.with_topic()
    await api.with_subscription()
    since_s = api.clock.now_ms() / 1_000
    assert (await api.put(f"{PATH}/state", "SUSPENDED")).status_code == 200
    api.clock.ms += 60_000
    # Neither asking again nor another change suspends it anew.
    assert (await api.put(f"{PATH}/state", "SUSPENDED")).status_code == 200
    assert (await api.put(PATH, {"description": "another"})).status_code == 200
    by = (since_s, "[anonymous user]", None)
    assert suspension(await shown(api)) == by
    (row,) = (await api.get("/status/subscriptions")).json()["subscriptions"]
    assert (row["condition"], suspension(row)) == ("SUSPENDED", by)
    assert (await api.put(f"{PATH}/state", "ACTIVE")).status_code == 200
    assert suspension(await shown(api)) == (None, None, None)


def suspension(shown):
    return tuple(shown.get(each) for each in ("suspendedAt", "suspendedBy", "suspensionReason"))


async def test_a_change_that_does_not_resume_it_keeps_the_reason(api, nursery):
    await suspend(api, nursery)
    # What was shown may be sent back as it is.
    changed = {**await shown(api), "description": "another"}
    assert (await api.put(PATH, changed)).status_code == 200
    after = await shown(api)
    assert (after["description"], after["suspensionReason"]) == ("another", GONE)
