"""The overview in a browser."""

import re

import pytest
from playwright.sync_api import expect

from tests.console.browser import assert_accessible, assert_fits

pytestmark = pytest.mark.live


def test_the_overview_is_the_first_page_and_stays_up_to_date(page, scene):
    page.goto("/")
    expect(page).to_have_url(re.compile("/console/overview$"))
    first = page.locator("#live time").first.get_attribute("datetime")
    expect(page.locator("#live time").first).not_to_have_attribute("datetime", first)
    assert_accessible(page)
    assert_fits(page)
