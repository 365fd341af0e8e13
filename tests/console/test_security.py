"""What foreign pages, and names that are markup, cannot do to the console and who uses it."""

import re
from html.parser import HTMLParser

import pytest

from tests.console.desk import HERE, PASSWORD, heading
from tests.management.conftest import subscription_of

MARKUP = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
SCRIPT_URL = "javascript:alert(1)//"
PAGES = ("overview", "topics", "subscriptions", "groups", "search", "sign-in", "nothing/there")


async def test_no_text_of_a_tenant_becomes_markup(desk):
    await desk.sign_in()
    owner = {"source": "Plaintext", "id": MARKUP}
    auth = ("ada", PASSWORD)
    api = desk.new_browser()
    for path, body in (
        ("/groups", {"groupName": "shop", "owner": owner}),
        ("/topics", desk.api.topic(description=MARKUP, owner=owner)),
        (
            "/topics/shop.orders/subscriptions",
            subscription_of(
                endpoint="https://x.example.test/?q='(alert)'&onerror=alert(1)", owner=owner
            ),
        ),
    ):
        answer = await api.post(path, json=body, auth=auth)
        assert answer.status_code == 201, answer.text
    asked = [
        ("/console/topics", {"q": MARKUP}),
        ("/console/topics", {"q": "shop"}),
        ("/console/topics", {"group": MARKUP, "sort": MARKUP}),
        ("/console/subscriptions", {"q": MARKUP}),
        ("/console/subscriptions", {}),
        ("/console/groups", {}),
        ("/console/search", {"q": MARKUP}),
        ("/console/overview", {}),
        (f"/console/{MARKUP.replace('/', '%2F')}", {}),
        ("/console/topics", {"page": MARKUP}),
    ]
    seen = 0
    for path, query in asked:
        page = await desk.get(path, params=query)
        assert_inert(page.text)
        seen += "&lt;script&gt;" in page.text
    assert seen >= 6
    answer = await desk.send("/console/groups/new", {"groupName": MARKUP, "owner.id": MARKUP})
    assert answer.status_code == 400
    assert_inert(answer.text)


class Inert(HTMLParser):
    """Asserts that each script is a file of the console, and that nothing else can run."""

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        assert not [each for each in found if each.startswith("on") or each == "style"], found
        assert tag not in ("iframe", "object", "embed", "base", "style"), tag
        if tag in ("script", "img"):
            assert found["src"].startswith("/console/static/"), found
        for name in {"href", "src", "action", "hx-get"} & found.keys():
            own = ("/console/", "#", "?", "/docs")
            assert found[name].startswith(own), found

    def handle_data(self, data):
        assert self.cdata_elem is None or not data.strip(), data


def assert_inert(html):
    Inert().feed(html)


async def test_no_spelling_of_an_address_gets_a_page_without_its_headers(desk):
    await desk.sign_in()
    for path in ("//console/overview", "///console/overview", "/console//overview"):
        answer = await desk.get(f"http://localhost{path}")
        is_page = "content-security-policy" in answer.headers
        assert is_page or (answer.status_code == 404 and not answer.content), path
        assert "access-control-allow-origin" not in answer.headers


async def test_the_refusal_of_a_form_is_shown_at_its_field(desk):
    await desk.sign_in()
    answer = await desk.send("/console/groups/new", {"groupName": "a b", "owner.id": "sales"})
    assert answer.status_code == 400
    assert 'id="e-groupName"' in answer.text
    assert 'value="a b"' in answer.text
    assert 'value="sales"' in answer.text
    assert desk.api.metadata.catalog.groups == {}


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.test"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {},
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/console/groups/new", "/console/sign-out"])
async def test_no_foreign_page_changes_anything_with_a_persons_cookie(desk, headers, path):
    await desk.sign_in()
    answer = await desk.browser.post(path, data={"groupName": "shop"}, headers=headers)
    assert answer.status_code == 403
    assert desk.api.metadata.catalog.groups == {}
    assert (await desk.get("/console/overview")).status_code == 200


async def test_no_foreign_page_signs_a_person_in(desk):
    form = {"name": "mallory", "password": PASSWORD}
    answer = await desk.send("/console/sign-in", form, origin="https://evil.test")
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


async def test_no_page_can_be_framed_and_none_is_kept(desk):
    await desk.sign_in()
    for page in PAGES:
        answer = await desk.get(f"/console/{page}")
        headers = answer.headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert not [each for each in headers if each.startswith("access-control")]
        for file in re.findall('"(/console/static/.*?)"', answer.text):
            found = await desk.get(file)
            assert found.status_code == 200
            assert "immutable" in found.headers["cache-control"]


@pytest.mark.parametrize(
    "where",
    [
        "https://evil.test/console/",
        "//evil.test/console/",
        "/\\evil.test",
        "/console/\\evil.test",
        "/console/\r\nset-cookie: a=b",
        SCRIPT_URL,
        "/console/sign-in?next=/console/sign-in",
        "",
    ],
)
async def test_signing_in_leads_to_pages_of_the_console_only(desk, where):
    answer = await desk.sign_in(next=where)
    assert answer.headers["location"] == "/console/overview"
    shown = await desk.get("/console/sign-in", params={"next": where})
    assert 'name="next" value="/console/overview"' in shown.text


async def test_the_read_only_mode_is_shown_and_keeps_people_from_changes(desk):
    await desk.sign_in("bob")
    api = desk.new_browser()
    assert (await api.post("/mode?mode=readOnly", auth=("ada", PASSWORD))).is_success
    page = await desk.get("/console/groups")
    assert "only administrators may change something here" in page.text
    assert "New group" not in page.text
    answer = await desk.send("/console/groups/new", {"groupName": "shop"})
    assert answer.status_code == 503
    assert heading(answer) == "Not available at the moment"
    # Signing in and out changes nothing of the cluster.
    assert (await desk.send("/console/sign-out", {})).status_code == 303
    await desk.sign_in()
    assert "New group" in (await desk.get("/console/groups")).text


async def test_the_reason_in_a_form_is_that_of_the_change(desk):
    await desk.sign_in()
    form = {"groupName": "shop", "reason": "the shop moves ☂"}
    answer = await desk.send("/console/groups/new", form)
    assert answer.status_code == 303
    page = await desk.get(answer.headers["location"])
    assert "Group shop is created." in page.text
    assert "Group shop is created." not in (await desk.get("/console/topics")).text


async def test_a_large_form_and_a_broken_one_are_refused(desk):
    await desk.sign_in()
    headers = HERE | {"content-type": "application/x-www-form-urlencoded"}
    for body in (b"&".join([b"a=b"] * 201), b"groupName=%ff"):
        answer = await desk.browser.post("/console/groups/new", content=body, headers=headers)
        assert answer.status_code == 400
        assert "The form cannot be read" in answer.text
