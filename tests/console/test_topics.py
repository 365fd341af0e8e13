"""The pages of topics in a browser: create, publish and see it arrive, edit, schemas, apply."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.console.browser import assert_accessible, assert_fits

pytestmark = pytest.mark.live

OPEN = "<img src=x onerror=alert(1)>"
"""Would raise an error in the page if it became an element."""


METADATA = {"type": ["null", {"type": "map", "values": "string"}], "default": None}


def order(*more: str) -> str:
    fields = [{"name": name, "type": "string", "default": ""} for name in ("id", *more)]
    fields.append({"name": "__metadata", **METADATA})
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def test_a_topic_is_created_then_edited_with_a_refusal_at_its_field(page, scene):
    page.goto("/console/topics/new")
    page.get_by_label("Name").fill("shop.returns")
    page.get_by_label("Description").fill(OPEN)
    page.get_by_label("Owner", exact=True).fill("sales")
    page.get_by_label("Labels").fill("team=sales")
    assert_accessible(page)
    assert_fits(page)
    page.get_by_role("button", name="Create the topic").click()
    expect(page.get_by_role("status").first).to_contain_text("Topic shop.returns is created.")
    expect(page.get_by_text(OPEN)).to_be_visible()
    assert_accessible(page)
    assert_fits(page)

    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Retention", exact=True).fill("0")
    page.get_by_label("Reason").fill("audits need it")
    page.get_by_role("button", name="Save").click()
    wrong = page.get_by_label("Retention", exact=True)
    expect(wrong).to_have_attribute("aria-invalid", "true")
    expect(page.locator(".error")).to_contain_text("must be greater than or equal to 1")
    assert_accessible(page)
    page.errors.clear()  # The refusal's status is 400.

    wrong.fill("3")
    page.get_by_label("Labels").fill("tier=1")
    page.get_by_role("button", name="Save").click()
    expect(page).to_have_url(re.compile("/console/topics/shop.returns$"))
    topic = scene.ask("GET", "/topics/shop.returns")
    assert topic["retentionTime"]["duration"] == 3
    assert topic["labels"] == {"tier": "1"}
    page.get_by_role("link", name="Audit").last.click()
    expect(page.get_by_role("row").filter(has_text="audits need it")).to_contain_text("changed")
    assert_accessible(page)
    assert_fits(page)


def test_a_published_message_is_seen_arriving_and_found_by_its_offset(page, scene):
    page.goto("/console/topics/shop.orders")
    page.get_by_role("link", name="Publish a message").click()
    page.get_by_label("Body").fill(json.dumps({"note": OPEN, "long": "x" * 5_000}))
    page.get_by_label("Key").fill("customer-7")
    page.get_by_label("Headers").fill("no header")
    assert_accessible(page)
    assert_fits(page)
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("alert").first).to_contain_text("'no header' is not a header")
    page.errors.clear()  # The refusal's status is 400.
    page.get_by_label("Headers").fill(f"X-Note: {OPEN}")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Your message is in the log")).to_be_visible()
    message = page.locator("li.sent")
    expect(message.locator("pre")).to_contain_text(OPEN)
    expect(message).to_contain_text("customer-7")
    assert_accessible(page)
    assert_fits(page)

    message.get_by_role("link", name="Show all").click()
    expect(page.locator("pre")).to_contain_text("x" * 5_000)
    page.get_by_role("link", name="Previous offset").click()
    expect(page.get_by_label("Offset")).to_have_value(re.compile("[0-9]+"))
    assert_accessible(page)


def test_a_schema_gets_a_version_and_shows_what_differs(page, scene):
    page.goto("/console/topics/new")
    page.get_by_label("Name").fill("shop.avro")
    page.get_by_label("Owner", exact=True).fill("sales")
    page.get_by_label("Content type").select_option("AVRO")
    page.get_by_role("textbox", name="Schema").fill(order())
    page.get_by_role("button", name="Create the topic").click()
    page.get_by_role("link", name="Schema").click()

    page.get_by_role("textbox", name="Schema").fill('{"type": "record"}')
    page.get_by_role("button", name="Save the version").click()
    expect(page.get_by_role("textbox", name="Schema")).to_have_attribute("aria-invalid", "true")
    page.errors.clear()  # The refusal's status is 400.
    page.get_by_role("textbox", name="Schema").fill(order("voucher"))
    page.get_by_role("button", name="Save the version").click()
    expect(page.locator(".diff .added").filter(has_text='"voucher"')).to_be_visible()
    assert_accessible(page)
    assert_fits(page)


def test_a_configuration_shows_its_changes_then_is_applied(page, scene):
    page.goto("/console/apply")
    text = """
        groups: [{groupName: parcels}]
        topics:
          - name: parcels.sent
            description: ""
            owner: {source: Plaintext, id: sales}
            contentType: JSON
            retentionTime: {duration: 2}
          - {name: shop.carts, retentionTime: {duration: 6}}
    """
    page.get_by_label("Configuration").fill(text)
    page.get_by_role("button", name="Show changes").click()
    expect(page.get_by_text("Changes, not made yet")).to_be_visible()
    expect(page.get_by_role("row", name="retentionTime.duration 1 6")).to_be_visible()
    assert scene.ask("GET", "/topics/shop.carts")["retentionTime"]["duration"] == 1
    assert_accessible(page)
    assert_fits(page)
    page.get_by_label("Reason").fill("carts are kept longer")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("Changes made")).to_be_visible()
    assert scene.ask("GET", "/topics/shop.carts")["retentionTime"]["duration"] == 6
    page.get_by_role("button", name="Show changes").click()
    expect(page.get_by_text("Nothing to change")).to_be_visible()
    page.get_by_role("link", name="Audit").click()
    expect(page.get_by_text("carts are kept longer").first).to_be_visible()
    assert_accessible(page)
    assert_fits(page)
