"""A subscription that the broker has suspended says why, until somebody resumes it."""

import trio

from hermes_actors.balancer.outbox import Outbox

PATH = "/topics/shop.orders/subscriptions/billing"
GONE = "the endpoint is gone, it answered HTTP 410"


async def suspend(api, nursery):
    await api.with_topic()
    await api.with_subscription()
    outbox = Outbox(api.metadata)
    nursery.start_soon(outbox.run)
    outbox.suspend(api.metadata.catalog.subscriptions["shop.orders$billing"], GONE)
    with trio.fail_after(5), api.metadata.watch() as watch:
        while (await shown(api))["state"] != "SUSPENDED":
            await watch.wait()
            watch.take_nowait()


async def shown(api):
    return (await api.get(PATH)).json()


async def test_the_reason_is_shown_until_it_is_resumed(api, nursery):
    await suspend(api, nursery)
    assert (await shown(api))["suspensionReason"] == GONE
    why = (await api.get(f"{PATH}/why")).json()
    assert (why["state"], why["suspensionReason"]) == ("SUSPENDED", GONE)
    assert (await api.put(f"{PATH}/state", "ACTIVE")).status_code == 200
    assert "suspensionReason" not in await shown(api)
    assert "suspensionReason" not in (await api.get(f"{PATH}/why")).json()


async def test_a_change_that_does_not_resume_it_keeps_the_reason(api, nursery):
    await suspend(api, nursery)
    # What was shown may be sent back as it is.
    changed = {**await shown(api), "description": "another"}
    assert (await api.put(PATH, changed)).status_code == 200
    after = await shown(api)
    assert (after["description"], after["suspensionReason"]) == ("another", GONE)
