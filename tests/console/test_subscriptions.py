"""The pages of subscriptions, in process: forms, rights, and texts of tenants."""

import html
import re
from html.parser import HTMLParser

import msgspec
import pytest

from hermes_actors.management.access.table import RULES
from hermes_actors.status.fold import StatusFold
from hermes_actors.status.record import LastUndelivered
from tests.console.desk import PASSWORD, Desk
from tests.console.test_security import MARKUP, assert_inert
from tests.management.dead_letters_scene import Desk as Letters
from tests.management.statuses_scene import Nodes, consumed

PAGE = "/console/topics/shop.orders/subscriptions/billing"
OWNER = {"source": "Plaintext", "id": "sales"}
SERIAL = {
    "rate": 7,
    "messageTtl": 60,
    "requestTimeout": 900,
    "retryOn": [429, 503],
    "ordered": True,
}
BATCH = {"batchSize": 5, "batchTime": 900, "retryClientErrors": True, "messageRate": 3}
FILTERS = [
    {"type": "jsonpath", "path": "$.a", "matcher": "x|y"},
    {"type": "header", "header": "Country", "matcher": "PL", "matchingStrategy": "any"},
]
HEADERS = [{"name": "X-Team", "value": "a: b"}, {"name": "Authorization", "value": "Bearer s"}]


class Form(HTMLParser):
    """The fields of a page's last form, as a browser sends them if nobody changes anything."""

    def __init__(self, page):
        super().__init__()
        self.fields = {}
        self._area = self._select = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        name = found.get("name", "")
        if tag == "form":
            self.fields.clear()
        elif tag == "input" and (found.get("type") != "checkbox" or "checked" in found):
            self.fields[name] = found.get("value") or ""
        elif tag == "textarea":
            self._area = name
            self.fields[name] = ""
        elif tag == "select":
            self._select = name
        elif tag == "option" and (self._select not in self.fields or "selected" in found):
            self.fields[self._select] = found.get("value")
            self._is_text = "value" not in found

    def handle_endtag(self, tag):
        if tag == "textarea":
            self._area = ""

    def handle_data(self, data):
        if self._area:
            self.fields[self._area] += data
        elif self._select and self.fields.get(self._select, "") is None:
            self.fields[self._select] = data


async def create(desk, **fields):
    await desk.sign_in()
    # The first app of a process takes seconds to build; meanwhile nothing was read.
    await desk.api.metadata.wait_current()
    api, auth = desk.new_browser(), ("ada", PASSWORD)
    for path, body in (
        ("/groups", {"groupName": "shop"}),
        ("/topics", desk.api.topic(owner=OWNER)),
        ("/topics/shop.orders/subscriptions", desk.api.subscription(**{"owner": OWNER} | fields)),
    ):
        answer = await api.post(path, json=body, auth=auth)
        assert answer.status_code == 201, answer.text


def stored(desk):
    return desk.api.metadata.catalog.subscriptions["shop.orders$billing"].subscription


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"subscriptionPolicy": SERIAL, "filters": FILTERS, "headers": HEADERS},
        {"deliveryType": "BATCH", "subscriptionPolicy": BATCH, "deadLettersEnabled": False},
        {"endpoint": "https://bob:secret@billing.example.test/", "http2Enabled": True},
        {"filters": FILTERS[:1] * 21, "trackingMode": "discardedOnly"},
    ],
    ids=["plain", "serial", "batch", "password", "many filters"],
)
async def test_a_form_that_is_saved_unchanged_changes_nothing(desk, fields):
    await create(desk, **fields)
    before = stored(desk)
    page = await desk.get(f"{PAGE}/edit")
    assert "secret@" not in page.text
    answer = await desk.send(f"{PAGE}/edit", Form(page.text).fields)
    assert answer.status_code == 303, answer.text
    after = stored(desk)
    assert msgspec.structs.replace(after, modified_at=before.modified_at) == before


async def test_who_saves_a_form_that_is_older_than_a_change_overwrites_nothing(desk):
    await create(desk)
    form = Form((await desk.get(f"{PAGE}/edit")).text).fields | {"description": "mine"}
    desk.api.clock.ms += 1_000
    others, api = {"subscriptionPolicy": {"rate": 8}}, desk.new_browser()
    assert (
        await api.put(PAGE.removeprefix("/console"), json=others, auth=("ada", PASSWORD))
    ).is_success
    answer = await desk.send(f"{PAGE}/edit", form)
    assert answer.status_code == 409
    assert stored(desk).subscription_policy.rate == 8
    again = Form(answer.text).fields
    assert again["description"] == "mine"
    assert (await desk.send(f"{PAGE}/edit", again)).status_code == 303


async def test_the_page_that_asks_to_remove_says_how_many_dead_letters_go_too(api):
    fold = StatusFold()
    api.administered_with(status=fold)
    desk = Desk(api, "")
    await create(desk)
    nodes = Nodes(fold, desk.api.clock)
    nodes.read("dc1")
    nodes.tell("dc1", "n1", subscriptions=[consumed(open_letters=3)])
    assert "open dead letters (3) go with it" in (await desk.get(f"{PAGE}/remove")).text


async def test_dead_letters_without_a_tick_lead_back_to_the_list_with_the_reason(desk):
    await create(desk)
    answer = await desk.get(f"{PAGE}/dead-letters/redrive", params={"which": "some"})
    assert "No dead letter is selected" in answer.text
    assert f'action="{PAGE}/dead-letters"' in answer.text


async def test_the_form_for_a_new_subscription_shows_a_refusal_at_its_field(desk):
    await create(desk)
    where = PAGE.replace("billing", "new")
    form = Form((await desk.get(where)).text).fields
    form |= {"name": "mailer", "owner.id": "sales", "endpoint": "https://mail.example.test/"}
    for field, wrong in (
        ("endpoint", "nonsense"),
        ("SERIAL.rate", "0"),
        ("SERIAL.requestTimeout", "soon"),
    ):
        answer = await desk.send(where, form | {field: wrong})
        assert answer.status_code == 400
        assert f'id="e-{field}"' in answer.text, field
        assert f'value="{wrong}"' in answer.text
    filters = {"filters.0.at": "$[", "filters.0.matcher": "x"}
    answer = await desk.send(where, form | filters)
    assert 'id="filters" class="wrong"' in answer.text
    # Fields of the other delivery type do not count.
    answer = await desk.send(where, form | {"BATCH.batchSize": "0", "a": "b", "a.b": "c"})
    assert answer.headers["location"] == PAGE.replace("billing", "mailer")
    page = await desk.get(answer.headers["location"])
    assert "mailer is created" in page.text


async def test_filters_are_tried_without_saving_them(desk):
    await create(desk)
    before = stored(desk)
    form = Form((await desk.get(f"{PAGE}/edit")).text).fields
    form |= {"filters.0.at": "$.country", "filters.0.matcher": "PL", "try": "1"}
    for message, said in (
        ('{"country": "PL"}', "It matches"),
        ('{"country": "DE"}', "It does not match"),
    ):
        answer = await desk.send(f"{PAGE}/edit", form | {"message": message})
        assert answer.status_code == 200
        assert said in answer.text
    assert stored(desk) == before


async def test_who_may_not_change_a_subscription_sees_no_button_and_gets_403(desk):
    await create(desk)
    seen = await desk.get(PAGE)
    await desk.sign_in("bob")
    hidden = await desk.get(PAGE)
    assert hidden.status_code == 200
    for path in ("suspend", "test", "retransmit", "edit", "rotate", "remove"):
        assert f'href="{PAGE}/{path}"' in seen.text
        assert f'href="{PAGE}/{path}"' not in hidden.text
    assert f"{PAGE}/dead-letters" in seen.text
    assert f"{PAGE}/dead-letters" not in hidden.text
    groups = (await desk.get("/console/groups")).text
    assert "/console/groups/new" not in groups
    place = {"topic": "shop.orders", "name": "billing", "dc": "dc1", "node": "n", "letter": "x"}
    tried = 0
    for (verb, path), rule in RULES.items():
        if path.startswith(("/console/topics/{topic}/subscriptions/{name}/", "/console/balancer/")):
            if rule.access == "anyone":
                continue
            where = path.format_map(place)
            form = {"to": "end", "name": "billing", "endpoint": "https://x.example.test/"}
            if verb == "GET":
                answer = await desk.get(where, params={"which": "all"})
            else:
                answer = await desk.send(where, form)
            assert answer.status_code == 403, (verb, where, answer.text)
            tried += 1
    assert tried >= 20
    assert "Drain" not in (await desk.get("/console/balancer")).text


async def test_a_guest_is_led_to_the_page_to_sign_in_and_back(desk):
    await create(desk)
    guest = desk.new_browser()
    answer = await guest.get(f"{PAGE}/suspend")
    assert answer.headers["location"] == f"/console/sign-in?next={PAGE}/suspend"


async def test_texts_of_tenants_and_endpoints_stay_texts(api):
    fold = StatusFold()
    api.administered_with(status=fold)
    desk = Desk(api, "")
    headers = [{"name": "X-Evil", "value": MARKUP}]
    monitoring = {"severity": "CRITICAL", "reaction": MARKUP}
    filters = [{"type": "jsonpath", "path": "$.a", "matcher": MARKUP.replace("(1)", "1")}]
    await create(
        desk, description=MARKUP, headers=headers, filters=filters, monitoringDetails=monitoring
    )
    nodes = Nodes(fold, desk.api.clock)
    nodes.read("dc1")
    failing = consumed(
        {"codes_5xx": 5},
        last_failure=MARKUP,
        last_failure_at_ms=1_700_000_000_000,
        last_failure_kind="5",
        open_letters=1,
        last_undelivered=LastUndelivered(1, 0, 0, MARKUP),
    )
    nodes.tell("dc1", "n1", subscriptions=[failing])
    letters = Letters(desk.api, None)
    value = msgspec.json.encode({"a": MARKUP})
    evil = {"detail": MARKUP, "reason": "client-error", "headers": (("h-Evil", MARKUP.encode()),)}
    await letters.write(letters.letter(1, value=value, message_id=MARKUP, **evil))
    shown = 0
    for path in (
        "",
        "/live",
        "/edit",
        "/suspend",
        "/dead-letters",
        f"/dead-letters/{letters.id(1)}",
        f"/dead-letters?messageId={MARKUP}",
        f"/dead-letters/redrive?which=all&messageId={MARKUP}",
        f"/retransmit?to=time&date={MARKUP}",
    ):
        page = await desk.get(f"{PAGE}{path}")
        assert_inert(page.text)
        shown += "&lt;script&gt;" in page.text
    assert shown >= 8
    for path, query in (("balancer", "about"), ("trace", "message")):
        page = await desk.get(f"/console/{path}", params={query: MARKUP})
        assert_inert(page.text)
        assert "&lt;script&gt;" in page.text


async def test_a_new_signing_secret_is_shown_once(desk):
    await create(desk)
    answer = await desk.send(f"{PAGE}/rotate", {"reason": "the old one leaked"})
    (secret,) = stored(desk).signing.secrets
    assert secret in answer.text
    assert "set-cookie" not in answer.headers
    assert secret not in (await desk.get(PAGE)).text + (await desk.get(f"{PAGE}/edit")).text


async def test_the_changes_of_a_subscription_are_shown_with_their_reasons(desk):
    await create(desk)
    await desk.send(f"{PAGE}/suspend", {"reason": "the bank is closed"})
    page = await desk.get(PAGE)
    (where,) = re.findall('href="(/console/audit[^"]+)"', page.text)
    assert "the bank is closed" in (await desk.get(html.unescape(where))).text


async def test_a_dry_run_moves_nothing_and_fixes_a_relative_time(desk):
    await create(desk)
    before = desk.api.metadata.catalog.subscriptions["shop.orders$billing"].seek
    page = await desk.get(f"{PAGE}/retransmit", params={"to": "time", "date": "1h"})
    assert 'name="retransmissionDate" value="2023-11-14T21:13:20.000Z"' in page.text
    page = await desk.get(f"{PAGE}/retransmit", params={"to": "time", "date": "2030-01-31"})
    assert page.status_code == 400
    assert "has no time zone" in page.text
    assert desk.api.metadata.catalog.subscriptions["shop.orders$billing"].seek == before
