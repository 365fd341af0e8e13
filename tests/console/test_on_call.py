"""The pages of subscriptions, the balancer and traces in a browser: each page's main action."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from hermes_chaos.wanted import subscription_body
from tests.console.browser import assert_accessible, assert_fits
from tests.console.conftest import ACTIVE, FAILING, SUSPENDED
from tests.live.endpoint import Endpoint

pytestmark = pytest.mark.live

TOPIC = "shop.orders"


class Choosy:
    """An endpoint that answers with `status`, and keeps what it has taken with 200."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.taken: list[dict[str, Any]] = []
        self.ids: list[str] = []

    def take(self, headers: dict[str, str], body: bytes) -> int:
        if self.status == 200:
            self.ids.append(headers["hermes-message-id"])
            self.taken.append(json.loads(body))
        return self.status


@pytest.fixture
def choosy() -> Iterator[Choosy]:
    taker = Choosy()
    with Endpoint(taker.take) as endpoint:
        taker.url = endpoint.url
        yield taker


def place(topic: str, name: str) -> str:
    return f"/console/topics/{topic}/subscriptions/{name}"


def good(page) -> None:
    """The page is accessible and fits on a phone."""
    assert_accessible(page)
    assert_fits(page)


def wait_for(page, count, taker: Choosy) -> None:
    """Wait, in the page's own pace, until the endpoint has taken so many messages."""
    for _ in range(600):
        if len(taker.taken) >= count:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"{len(taker.taken)} of {count} messages came")


def subscribe(scene, topic: str, name: str, endpoint: str, **fields: Any) -> None:
    body = subscription_body(topic, name, endpoint, **fields)
    scene.ask("POST", f"/topics/{topic}/subscriptions", body)


def confirm(page, button: str, reason: str = "") -> None:
    if reason:
        page.get_by_label("Reason").fill(reason)
    page.get_by_role("button", name=button, exact=True).click()


def test_a_subscription_is_created_tried_and_delivers(page, scene, choosy):
    page.goto(place(TOPIC, "new"))
    good(page)
    page.get_by_label("Name", exact=True).fill("made-here")
    page.get_by_label("Owner", exact=True).fill("sales")
    page.get_by_label(re.compile("^Endpoint")).fill("nonsense")
    confirm(page, "Create the subscription")
    expect(page.locator("#e-endpoint")).to_be_visible()
    page.__dict__["errors"].clear()
    page.get_by_label(re.compile("^Endpoint")).fill(choosy.url)
    row = page.get_by_role("group", name="Filter 1")
    row.get_by_label("Path or header").fill("$.number")
    row.get_by_label("Matches the regular expression").fill("7")
    page.get_by_text("Try the filters on a message").click()
    page.get_by_label("Message, as JSON").fill('{"number": 7}')
    page.get_by_role("button", name="Try", exact=True).click()
    expect(page.locator("#trial")).to_contain_text("It matches")
    page.get_by_label("Type").select_option("BATCH")
    expect(page.get_by_label("Size of a batch, in messages")).to_be_visible()
    expect(page.get_by_label("Delay of each message, in ms")).to_be_hidden()
    page.get_by_label("Type").select_option("SERIAL")
    confirm(page, "Create the subscription", "a new service")
    expect(page).to_have_url(re.compile(f"{place(TOPIC, 'made-here')}$"))
    expect(page.get_by_text("made-here is created")).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text(re.compile("idle|delivering"))
    scene.send(TOPIC, 10)
    wait_for(page, 1, choosy)
    assert choosy.taken[0]["number"] == 7


def test_who_is_on_call_reads_why_a_subscription_fails_and_what_to_do(page, scene):
    page.goto(place(*FAILING))
    verdict = page.locator(".verdict")
    expect(verdict).to_contain_text("failing")
    expect(verdict).to_contain_text("pushes fail: HTTP 500")
    expect(verdict.get_by_role("list", name="What to do")).to_contain_text("endpoint's logs")
    expect(page.get_by_role("row", name=re.compile("dc1-1.*HTTP 500"))).to_be_visible()
    first = verdict.locator("time").first.get_attribute("datetime")
    expect(page.locator(".verdict time").first).not_to_have_attribute("datetime", first)
    good(page)
    page.locator(".verdict").get_by_role("link", name="Test push").click()
    page.get_by_label("Message").fill('{"tried": 1}')
    confirm(page, "Push now")
    expect(page.locator(".verdict")).to_contain_text("Not delivered")
    expect(page.locator("pre").first).to_contain_text('{"tried": 1}')
    expect(page.locator("pre").last).to_contain_text("500")
    good(page)


def test_a_suspended_subscription_is_activated_and_suspended(page, scene):
    page.goto(place(*SUSPENDED))
    expect(page.locator(".verdict")).to_contain_text("suspended since")
    good(page)
    page.get_by_role("link", name="Activate", exact=True).click()
    expect(page.get_by_text("5 messages wait")).to_be_visible()
    good(page)
    confirm(page, "Activate", "the ledger is back")
    expect(page.get_by_text("ledger is activated")).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text(re.compile("idle|delivering"))
    page.get_by_role("link", name="Suspend").click()
    confirm(page, "Suspend", "the ledger is down")
    expect(page.get_by_text("ledger is suspended")).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text("suspended since")


def test_a_retransmission_is_shown_first_and_then_done(page, scene, choosy):
    subscribe(scene, "shop.carts", "again", choosy.url)
    page.goto(place("shop.carts", "again"))
    expect(page.locator(".verdict")).to_contain_text("idle")
    scene.send("shop.carts", 3)
    wait_for(page, 3, choosy)
    page.get_by_role("link", name="Retransmit").click()
    page.get_by_label("Time", exact=True).fill("1h")
    page.get_by_role("button", name="Show what would happen").click()
    # Commits follow once a second.
    plan = page.locator(".verdict")
    expect(plan).to_contain_text(re.compile("messages are delivered again|its consumers are there"))
    good(page)
    assert len(choosy.taken) == 3
    confirm(page, "Retransmit", "lost by a bug")
    expect(page.get_by_text("again has moved")).to_be_visible()
    wait_for(page, 6, choosy)


def test_a_dead_letter_is_read_and_re_driven(page, scene, choosy):
    choosy.status = 422
    subscribe(scene, "warehouse.moves", "strict", choosy.url)
    page.goto(place("warehouse.moves", "strict"))
    expect(page.locator(".verdict")).to_contain_text("idle")
    scene.send("warehouse.moves", 3)
    verdict = page.locator(".verdict")
    expect(verdict.get_by_role("link", name="Dead letters")).to_be_visible()
    verdict.get_by_role("link", name="Dead letters").click()
    boxes = page.get_by_role("checkbox", name=re.compile("^Select (?!all)"))
    expect(boxes).to_have_count(3)
    good(page)
    page.get_by_role("rowheader").get_by_role("link").first.click()
    expect(page.locator("pre")).to_contain_text('"number": 2')
    expect(page.locator(".verdict")).to_contain_text("HTTP 422, after 1 attempt")
    good(page)
    page.go_back()
    choosy.status = 200
    boxes.first.check()
    page.get_by_role("button", name="Re-drive selected").click()
    expect(page.get_by_role("heading", name="Re-drive 1 dead letter?")).to_be_visible()
    good(page)
    confirm(page, "Re-drive", "the endpoint is mended")
    wait_for(page, 1, choosy)
    assert choosy.taken == [{"number": 2}]
    expect(page.get_by_role("region", name="Re-drive 1")).to_contain_text("1 delivered")
    page.reload()
    expect(boxes).to_have_count(2)
    page.get_by_role("button", name="Expire all").click()
    confirm(page, "Expire", "they are too old")
    expect(page.get_by_text("There are no open dead letters")).to_be_visible()


def test_a_node_is_drained_and_takes_part_again(page, scene):
    page.goto("/console/balancer")
    row = page.get_by_role("row", name=re.compile("^dc1-1.*takes part"))
    expect(row).to_be_visible()
    expect(page.get_by_role("region", name="Who runs what in dc1").first).to_contain_text(ACTIVE[1])
    good(page)
    page.get_by_role("link", name="Drain dc1-1").click()
    confirm(page, "Drain the node", "a new kernel")
    expect(page.get_by_role("alert").last).to_contain_text("last consuming node")
    page.__dict__["errors"].clear()
    page.get_by_label("Drain it all the same").check()
    good(page)
    confirm(page, "Drain the node", "a new kernel")
    expect(page.get_by_text("dc1-1 is drained")).to_be_visible()
    expect(page.get_by_text("a new kernel")).to_be_visible()
    page.get_by_role("button", name="Undo drain").first.click()
    expect(page.get_by_text("dc1-1 takes part again")).to_be_visible()
    page.get_by_role("link", name="What would move now").click()
    expect(page.get_by_role("heading", name="What would move now in dc1")).to_be_visible()


def test_a_message_is_traced_through_its_deliveries(page, scene, choosy):
    scene.ask("PUT", "/topics/shop.carts", {"trackingEnabled": True})
    subscribe(scene, "shop.carts", "traced", choosy.url, trackingMode="trackingAll")
    page.goto(place("shop.carts", "traced"))
    expect(page.locator(".verdict")).to_contain_text("idle")
    scene.send("shop.carts")
    wait_for(page, 1, choosy)
    id_ = choosy.ids[-1]
    page.goto("/console/trace")
    page.get_by_label("Message id").fill("not-an-id")
    page.get_by_role("button", name="Trace").click()
    expect(page.get_by_text("Not found")).to_be_visible()
    good(page)
    for _ in range(100):
        page.goto(f"/console/trace?message={id_}")
        if page.get_by_role("region", name="How it ended").is_visible():
            break
        page.wait_for_timeout(200)
    expect(page.get_by_role("region", name="How it ended").first).to_contain_text("delivered")
    expect(page.get_by_role("row", name=re.compile("pushed.*attempt 1.*traced"))).to_be_visible()
    good(page)
