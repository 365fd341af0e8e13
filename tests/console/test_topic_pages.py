"""The pages of topics in process: who sees and may do what, hostile texts, whole forms."""

import json
from html.parser import HTMLParser

import pytest

from hermes_actors.errors import Refused
from hermes_actors.management.configuration.documents import BYTES_MAX, configuration_of
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from tests.console.desk import PASSWORD, heading
from tests.console.test_security import MARKUP, assert_inert

TOPIC = "/console/topics/shop.orders"
OWNER_ONLY = ("messages", "messages/live", "publish", "edit", "remove")
ACTIONS = ("Publish a message", f"{TOPIC}/edit", f"{TOPIC}/remove", "Save the version")
METADATA = {"type": ["null", {"type": "map", "values": "string"}], "default": None}
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "__metadata", **METADATA}]}
FULL = {
    "name": "shop.orders",
    "description": "two words",
    "owner": {"source": "Plaintext", "id": "bob"},
    "contentType": "AVRO",
    "retentionTime": {"duration": 7, "retentionUnit": "HOURS"},
    "ack": "ALL",
    "maxMessageSize": 2_048,
    "trackingEnabled": True,
    "labels": {"team": "sales", "tier": "a.1"},
    "auth": {"enabled": True, "publishers": ["x", "y"], "unauthenticatedAccessEnabled": True},
    "subscribingRestricted": True,
    "offlineStorage": {"enabled": True, "retentionTime": {"duration": 3, "infinite": False}},
    "chaos": {
        "mode": "DATACENTER",
        "datacenterPolicies": {"dc1": {"probability": 1, "delayFrom": 2, "delayTo": 3}},
    },
    "schema": json.dumps(AVRO),
}


class Form(HTMLParser):
    """The fields that a browser sends for the form with this action, as the page has them."""

    def __init__(self, page, action):
        super().__init__()
        self.fields, self._action, self._is_in, self._name, self._kind = {}, action, False, "", ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "form":
            self._is_in = found.get("action") == self._action
        if not self._is_in:
            return
        name = found.get("name", "")
        if tag == "input" and (found.get("type") != "checkbox" or "checked" in found):
            self.fields[name] = found.get("value", "")
        elif tag in ("textarea", "select"):
            self._name, self._kind = name, tag
            self.fields.setdefault(name, "")
        elif tag == "option" and ("selected" in found or not self.fields[self._name]):
            self.fields[self._name] = found["value"]

    def handle_endtag(self, tag):
        if tag == self._kind:
            self._kind = ""

    def handle_data(self, data):
        if self._kind == "textarea":
            self.fields[self._name] += data.replace("\n", "\r\n")


async def create(desk, topic=FULL):
    api, auth = desk.new_browser(), ("ada", PASSWORD)
    group = topic["name"].rpartition(".")[0]
    for path, body in (("/groups", {"groupName": group}), ("/topics", topic)):
        answer = await api.post(path, json=body, auth=auth)
        assert answer.status_code == 201, answer.text


def stamp(desk):
    return desk.api.metadata.catalog.topics["shop.orders"].stamp


async def test_a_form_saved_as_it_is_changes_nothing_of_a_topic(desk):
    await create(desk)
    await desk.sign_in("bob")
    before = stamp(desk)
    form = Form((await desk.get(f"{TOPIC}/edit")).text, f"{TOPIC}/edit").fields
    assert form["labels"] == "team=sales\r\ntier=a.1"
    assert (await desk.send(f"{TOPIC}/edit", form)).status_code == 303
    assert stamp(desk) == before
    form |= {"labels": "team=ops", "auth.publishers": "z", "description": ""}
    assert (await desk.send(f"{TOPIC}/edit", form)).status_code == 303
    topic = desk.api.metadata.catalog.topics["shop.orders"].topic
    assert (topic.labels, topic.auth.publishers) == ({"team": "ops"}, ["z"])
    assert topic.description == ""


async def test_who_saves_a_form_that_is_older_than_a_change_is_told(desk):
    await create(desk)
    await desk.sign_in()
    form = Form((await desk.get(f"{TOPIC}/edit")).text, f"{TOPIC}/edit").fields
    desk.api.clock.ms += 1_000
    others = {"retentionTime": {"duration": 8}}
    auth = ("ada", PASSWORD)
    assert (await desk.new_browser().put("/topics/shop.orders", json=others, auth=auth)).is_success
    answer = await desk.send(f"{TOPIC}/edit", form | {"maxMessageSize": "4096"})
    assert answer.status_code == 409
    assert "Somebody changed this" in answer.text
    again = Form(answer.text, f"{TOPIC}/edit").fields
    assert again["maxMessageSize"] == "4096"
    assert (await desk.send(f"{TOPIC}/edit", again)).status_code == 303


async def test_an_exported_topic_can_be_imported(desk):
    await create(desk)
    await desk.sign_in()
    exported = (await desk.get(f"{TOPIC}/export")).text
    text = exported.replace("shop.orders", "shop.copy")
    answer = await desk.send("/console/topics/new", {"json": text})
    assert answer.status_code == 303
    copy = (await desk.get("/console/topics/shop.copy/export")).json()
    unlike = {"name", "createdAt", "modifiedAt"}
    assert {**copy, **dict.fromkeys(unlike)} == {**json.loads(exported), **dict.fromkeys(unlike)}
    answer = await desk.send("/console/topics/new", {"json": text})
    assert answer.status_code == 400
    assert 'id="e-json"' in answer.text


async def test_the_durability_is_shown_and_the_acknowledgement_only_if_it_counts(desk):
    await create(desk)
    held = {each: FULL[each] for each in ("owner", "retentionTime", "description")}
    held |= {"name": "fast.orders", "contentType": "JSON", "durability": "PERFORMANCE"}
    await create(desk, held)
    await desk.sign_in()
    stored = (await desk.get(TOPIC)).text
    assert "EVENTUAL: as acknowledged below" in stored
    assert "Acknowledged by" in stored
    in_memory = (await desk.get("/console/topics/fast.orders")).text
    assert "in memory only</span> lost with the node" in in_memory
    assert "Acknowledged by" not in in_memory


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", "nogroup", ""),
        ("name", "away.orders", "Group away does not exist"),
        ("retentionTime.duration", "0", "greater than or equal to 1"),
        ("retentionTime.duration", "soon", ""),
        ("maxMessageSize", "7", "greater than or equal to 1024"),
        ("labels", "bad label=x", ""),
        ("schema", "{", ""),
        ("chaos.mode", "SOMETIMES", ""),
    ],
)
async def test_a_refusal_is_shown_at_its_field(desk, field, value, said):
    await create(desk)
    await desk.sign_in()
    form = Form((await desk.get("/console/topics/new")).text, "/console/topics/new").fields
    form |= {"name": "shop.new", "owner.id": "ada", field: value}
    answer = await desk.send("/console/topics/new", form)
    assert answer.status_code in (400, 404)
    assert f'id="e-{field}"' in answer.text
    assert said in answer.text
    assert "shop.new" not in desk.api.metadata.catalog.topics


async def test_who_does_not_own_a_topic_sees_no_action_and_gets_403(desk):
    await create(desk)
    await desk.sign_in("bob")
    for page in (TOPIC, f"{TOPIC}/schema"):
        shown = (await desk.get(page)).text
        assert any(each in shown for each in ACTIONS)
    await desk.sign_in("eve")
    for page in (TOPIC, f"{TOPIC}/schema", f"{TOPIC}/audit"):
        answer = await desk.get(page)
        assert answer.status_code == 200
        assert not [each for each in ACTIONS if each in answer.text]
    for page in OWNER_ONLY:
        answer = await desk.get(f"{TOPIC}/{page}")
        assert (answer.status_code, heading(answer)) == (403, "You may not do this"), page
    before = stamp(desk)
    for page in ("edit", "remove", "publish", "schema"):
        form = {"body": "{}", "schema": json.dumps({**AVRO, "doc": "x"}), "description": "x"}
        answer = await desk.send(f"{TOPIC}/{page}", form)
        assert answer.status_code in (403, 409), (page, answer.text)
    assert stamp(desk) == before
    answer = await desk.send(
        "/console/apply", {"text": "groups: [{groupName: g}]", "step": "apply"}
    )
    assert "eve" in answer.text
    assert "g" not in desk.api.metadata.catalog.groups


async def test_no_text_of_a_topic_a_message_or_a_configuration_becomes_markup(desk):
    schema = {**AVRO, "doc": MARKUP}
    plain = {each: FULL[each] for each in ("owner", "retentionTime")}
    await create(
        desk, {**plain, "name": "shop.orders", "contentType": "JSON", "description": MARKUP}
    )
    avro = {**plain, "name": "avro.orders", "contentType": "AVRO", "description": ""}
    await create(desk, {**avro, "schema": json.dumps(schema)})
    message = Message(MARKUP, MARKUP.encode(), 1, MARKUP.encode(), (("X-Note", MARKUP),), "dc1")
    deep = Message("m2", b"[" * 5_000, 2, None, (), "dc1")
    broken = Record(None, MARKUP.encode(), (("message-id", b"m3"),), 3)
    records = [to_record(message), to_record(deep), broken]
    await desk.api.log.append("shop.orders", 0, records, Ack.LEADER)
    await desk.sign_in()
    text = f"topics: [{{name: {json.dumps(MARKUP)}}}]"
    answer = await desk.send("/console/apply", {"text": text, "reason": MARKUP})
    assert_inert(answer.text)
    assert "&lt;script&gt;" in answer.text
    json_ = json.dumps({**plain, "name": "shop.x", "contentType": MARKUP, "description": ""})
    assert_inert((await desk.send("/console/topics/new", {"json": json_})).text)
    new = {"schema": json.dumps({**schema, "doc": MARKUP * 2}), "reason": MARKUP}
    answer = await desk.send("/console/topics/avro.orders/schema", new)
    assert answer.status_code == 303, answer.text
    for page in (
        TOPIC,
        f"{TOPIC}/messages",
        f"{TOPIC}/messages?partition=0&offset=0",
        f"{TOPIC}/messages?partition={MARKUP}&offset=0",
        f"{TOPIC}/messages?datacenter={MARKUP}",
        f"{TOPIC}/edit",
        "/console/topics/avro.orders/schema?version=2&against=1",
        "/console/topics/avro.orders/audit",
        f"/console/audit?resource={MARKUP}",
    ):
        answer = await desk.get(page)
        assert answer.status_code < 500
        assert_inert(answer.text)
        assert "&lt;script&gt;" in answer.text, page
    for page in (f"{TOPIC}/messages/live?sent=m2", f"{TOPIC}/publish", "/console/audit"):
        answer = await desk.get(page)
        assert answer.status_code == 200
        assert_inert(answer.text)


async def test_a_message_is_cut_in_the_list_and_whole_at_its_place(desk):
    await create(desk, {**FULL, "contentType": "JSON", "schema": None})
    body = json.dumps({"text": "x" * 20_000}).encode()
    await desk.api.log.append(
        "shop.orders", 2, [to_record(Message("m1", body, 1, dc="dc1"))], Ack.LEADER
    )
    await desk.sign_in("bob")
    listed = (await desk.get(f"{TOPIC}/messages")).text
    assert "x" * 2_000 not in listed
    assert "Show all 20,0" in listed
    assert "x" * 20_000 in (await desk.get(f"{TOPIC}/messages?partition=2&offset=0")).text
    absent = await desk.get(f"{TOPIC}/messages?partition=2&offset=9")
    assert absent.status_code == 404
    assert "Previous offset" in absent.text


async def test_a_node_without_a_frontend_says_that_it_does_not_publish(desk):
    await create(desk)
    await desk.sign_in("bob")
    page = (await desk.get(f"{TOPIC}/publish")).text
    assert "This node does not publish" in page
    assert (await desk.send(f"{TOPIC}/publish", {"body": "{}"})).status_code == 503


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [x]\nb: [*a, *a]", "is an alias"),
        ("topics: [{name: '${env:HOME}'}]", "`hermes apply` only"),
        ('{"topics": [{"name": "${file:/etc/passwd}"}]}', "`hermes apply` only"),
        ("topics: [{name: x, name: y}]", "appears twice"),
        ("delete: {topics: [{name: shop.orders}]}", "delete is unknown"),
        ("topic: []", "did you mean topics?"),
        ("topics: {}", "topics must be a list"),
        ("- x", "expected an object"),
        ("{", "cannot be read"),
        ("!!python/object:os.system {}", "cannot be read"),
        ("#" * (BYTES_MAX + 1), "apply a part of it"),
    ],
)
def test_a_text_that_is_no_configuration_is_refused(text, said):
    with pytest.raises(Refused, match=said.replace("?", r"\?")):
        configuration_of(text)


def test_the_lists_of_all_documents_are_one_configuration():
    text = "groups: [{groupName: a}]\n---\n---\ngroups: [{groupName: '$${env:b}', at: 2030-01-31}]"
    assert json.loads(configuration_of(text)) == {
        "groups": [{"groupName": "a"}, {"groupName": "${env:b}", "at": "2030-01-31"}]
    }
