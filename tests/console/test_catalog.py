"""Lists, search, groups, the audit and the sign-in in a browser: each page's main action."""

import re

import pytest
from playwright.sync_api import expect

from tests.console.browser import assert_accessible, assert_fits
from tests.console.conftest import ACTIVE, FAILING, SUSPENDED, TOPICS

pytestmark = pytest.mark.live


def test_a_group_is_created_and_the_audit_says_why(page, scene):
    page.goto("/console/groups")
    page.get_by_role("link", name="New group").click()
    page.get_by_label("Name", exact=True).fill("not a name")
    page.get_by_label("Owner (optional)").fill("customer-care")
    page.get_by_role("button", name="Create the group").click()
    name = page.get_by_label("Name", exact=True)
    expect(name).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#e-groupName")).to_contain_text("is not valid")
    expect(page.get_by_label("Owner (optional)")).to_have_value("customer-care")
    assert_accessible(page)
    # The browser reports the answer 400 as an error.
    page.errors.clear()
    name.fill("complaints")
    page.get_by_label("Reason").fill("a new team")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("Group complaints is created.")
    page.goto("/console/audit?resource=groups/complaints")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.last).to_contain_text("a new team")
    rows.last.get_by_text("Details").click()
    expect(rows.last.locator("pre")).to_contain_text('"customer-care"')
    assert_accessible(page)
    assert_fits(page)


def test_a_subscription_is_found_by_the_keyboard_and_its_state_is_in_words(page, scene):
    page.goto("/console/overview")
    page.keyboard.press("/")
    page.keyboard.type(FAILING[1])
    page.keyboard.press("Enter")
    row = page.get_by_role("row", name=FAILING[1])
    expect(row).to_contain_text("failing")
    assert_accessible(page)
    assert_fits(page)


def test_what_is_wrong_is_on_the_overview_with_the_way_to_it(page, scene):
    page.goto("/console/overview")
    problem = page.locator(".problems li", has_text=FAILING[1])
    expect(problem).to_contain_text("HTTP 500")
    expect(page.locator(".problems li").first).to_contain_text("failing")
    expect(page.locator(".tiles").first).to_contain_text(re.compile("Published.*msg/s"))
    problem.get_by_role("link").click()
    expect(page).to_have_url(re.compile(f"/topics/{FAILING[0]}/subscriptions/{FAILING[1]}$"))


def test_the_lists_are_filtered_and_sorted(page, scene):
    page.goto("/console/topics")
    expect(page.locator("tbody tr")).to_have_count(len(TOPICS))
    page.get_by_label("Group").select_option("payments")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Clear").click()
    page.get_by_role("link", name="Subscriptions").first.click()
    page.get_by_role("link", name="State").click()
    expect(page.locator("tbody tr").first).to_contain_text(FAILING[1])
    expect(page.locator("tbody tr").last).to_contain_text(ACTIVE[1])
    suspended = page.get_by_role("row", name=SUSPENDED[1])
    expect(suspended).to_contain_text("suspended")
    assert_accessible(page)
    assert_fits(page)


def test_the_theme_is_kept_from_page_to_page(page, scene):
    page.goto("/console/overview")
    switch = page.get_by_role("button", name="Theme")
    switch.click()
    switch.click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto("/console/topics")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.get_by_role("button", name="Theme")).to_have_text("Theme: dark")


def test_an_unknown_page_says_so_in_plain_words(page, scene):
    page.goto("/console/nowhere")
    expect(page.get_by_role("heading")).to_have_text("There is nothing here")
    assert_accessible(page)
    page.errors.clear()


def test_pages_work_without_scripts(browser, scene):
    context = browser.new_context(base_url=scene.management, java_script_enabled=False)
    page = context.new_page()
    page.goto("/console/topics?q=shop")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_role("button", name="Theme")).to_be_hidden()
    context.close()
