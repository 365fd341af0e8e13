"""Signing in and out in a browser, on a node with accounts."""

import re

import pytest
from playwright.sync_api import expect

from hermes_actors.security.passwords import hash_password
from hermes_actors.security.users import user_line
from tests.console.browser import assert_accessible, assert_fits, watched_page
from tests.live.conftest import Process

pytestmark = pytest.mark.live

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def management(tmp_path_factory):
    folder = tmp_path_factory.mktemp("accounts")
    users = folder / "users.toml"
    users.write_text("[users]\n" + user_line("ada", hash_password(PASSWORD), ["ADMIN"], []))
    variables = {
        "HERMES_SPOOL_DIRECTORY": str(folder / "spools"),
        "HERMES_SECURITY_USERS_FILE": str(users),
        "HERMES_MANAGEMENT_AUTHENTICATION_ENABLED": "true",
        "HERMES_MANAGEMENT_AUTHENTICATION_READS": "authenticated",
    }
    ports = ("--publish-port", "0", "--management-port", "0")
    process = Process(["dev", "--json", "--data", str(folder / "data"), *ports], variables)
    try:
        process.wait_ready()
        yield [each["management"] for each in process.ready["dcs"]]
    finally:
        process.end()


def sign_in(page, password=PASSWORD):
    page.get_by_label("Name", exact=True).fill("ada")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def test_a_person_signs_in_works_and_signs_out(browser, management):
    with watched_page(browser, management[0]) as page:
        page.goto("/console/groups")
        expect(page).to_have_url(re.compile("/console/sign-in\\?next=/console/groups$"))
        assert_accessible(page)
        assert_fits(page)
        sign_in(page, "wrong")
        expect(page.get_by_role("alert").first).to_have_text("The user's name or password is wrong")
        # The browser reports the answer 401 as an error.
        page.errors.clear()
        sign_in(page)
        expect(page).to_have_url(re.compile("/console/groups$"))
        page.get_by_role("link", name="New group").click()
        page.get_by_label("Name", exact=True).fill("shop")
        page.get_by_role("button", name="Create the group").click()
        expect(page.get_by_role("status")).to_have_text("Group shop is created.")
        # The other datacentre's node is at the same host, and has its own sessions.
        page.goto(f"{management[1]}/console/overview")
        sign_in(page)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        page.goto(f"{management[0]}/console/audit")
        expect(page.locator("tbody tr").first).to_contain_text("ada")
        page.get_by_role("button", name="Sign out").click()
        page.goto("/console/overview")
        expect(page).to_have_url(re.compile("/console/sign-in"))


def test_a_page_whose_session_has_ended_leads_to_sign_in_by_itself(browser, management):
    with watched_page(browser, management[0]) as page:
        page.goto("/console/overview")
        sign_in(page)
        expect(page.locator("#live")).to_be_visible()
        page.context.clear_cookies()
        expect(page).to_have_url(re.compile("/console/sign-in\\?next=/console/overview$"))
        page.errors.clear()
