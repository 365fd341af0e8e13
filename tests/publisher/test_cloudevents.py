"""CloudEvents are taken apart without loss, and what is wrong is named."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.errors import Refused
from hermes_actors.model.message import Message, from_record, to_record
from hermes_actors.publisher.cloudevents import event_in, event_of, is_structured
from tests.values import stored

REQUIRED = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "shop.order"}
texts = st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)
names = st.from_regex(r"x[a-z0-9]{0,8}", fullmatch=True)
json_values = st.recursive(
    st.booleans() | st.integers() | st.text(alphabet=st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


def in_headers(attributes: dict[str, str]) -> list[tuple[str, str]]:
    return [("ce-" + name, value) for name, value in attributes.items()]


def structured(**changed: object) -> bytes:
    return json.dumps({**REQUIRED, **changed}).encode()


@given(st.dictionaries(names, texts, max_size=4))
def test_headers_with_percent_signs_are_the_attributes(extensions: dict[str, str]) -> None:
    attributes = {**REQUIRED, **extensions}
    encoded = {
        name: "".join(
            f"%{byte:02X}" if not 0x21 <= byte < 0x7F or byte in b'"%' else chr(byte)
            for byte in value.encode()
        )
        for name, value in attributes.items()
    }
    found = event_of([*in_headers(encoded), ("Content-Type", "text/plain"), ("other", "x")])
    assert dict(found.attributes) == {**attributes, "datacontenttype": "text/plain"}
    assert found.key is None
    message = Message("id", b"x", 1, attributes=found.attributes, dc="dc1")
    record = to_record(message)
    assert dict(record.headers)["content-type"] == b"text/plain"
    assert dict(record.headers)["ce_id"] == b"1"
    assert from_record(stored(record)).attributes == found.attributes


def test_a_quoted_header_value_and_plain_utf8_are_understood() -> None:
    raw = "Z\xfcrich".encode().decode("latin-1")
    found = event_of(in_headers({**REQUIRED, "id": r'"a \"b\""', "subject": raw}))
    assert dict(found.attributes)["id"] == 'a "b"'
    assert dict(found.attributes)["subject"] == "Z\xfcrich"


@given(json_values, st.dictionaries(names, texts, max_size=4))
def test_structured_data_is_the_body_as_it_stands_there(
    data: object, extensions: dict[str, str]
) -> None:
    text = json.dumps(data, indent=1)
    attributes = {**REQUIRED, **extensions}
    members = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in attributes.items()]
    found = event_in(("{" + ",".join([*members, f'"data": {text}']) + "}").encode())
    assert found.body == text.encode()
    assert dict(found.attributes) == attributes


@given(st.binary())
def test_base64_data_is_the_bytes(data: bytes) -> None:
    assert event_in(structured(data_base64=base64.b64encode(data).decode())).body == data


def test_a_string_of_another_type_is_the_text_in_it() -> None:
    for content_type, body in (
        ("text/xml", b'<a b="1"/>'),
        ("application/json", b'"<a b=\\"1\\"/>"'),
        ("application/vnd.x+json; charset=utf-8", b'"<a b=\\"1\\"/>"'),
    ):
        event = structured(datacontenttype=content_type, data='<a b="1"/>')
        assert event_in(event).body == body
    assert event_in(structured(datacontenttype="text/xml", data={"a": 1})).body == b'{"a": 1}'


def test_no_data_is_an_empty_body_and_null_is_nothing() -> None:
    assert event_in(structured()).body == b""
    found = event_in(structured(data=None, subject=None, data_base64="YQ=="))
    assert found.body == b"a"
    assert dict(found.attributes) == REQUIRED


def test_the_partitioning_extension_is_the_key() -> None:
    assert event_in(structured(partitionkey="K\xf6ln")).key == "K\xf6ln".encode()
    assert event_of(in_headers({**REQUIRED, "partitionkey": "7"})).key == b"7"


def test_booleans_and_integers_become_their_canonical_text() -> None:
    found = dict(event_in(structured(flag=True, off=False, n=-5)).attributes)
    assert (found["flag"], found["off"], found["n"]) == ("true", "false", "-5")


@pytest.mark.parametrize("name", list(REQUIRED))
def test_a_missing_attribute_is_named(name: str) -> None:
    rest = {each: value for each, value in REQUIRED.items() if each != name}
    for find in (lambda: event_of(in_headers(rest)), lambda: event_in(json.dumps(rest).encode())):
        with pytest.raises(Refused, match=f"'{name}' is missing") as caught:
            find()
        assert caught.value.status == 400


WRONG = [
    ("specversion", "0.3"),
    ("id", ""),
    ("type", ""),
    ("subject", ""),
    ("partitionkey", ""),
    ("Upper", "x"),
    ("my-name", "x"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_attribute_is_named_in_structured_mode(name: str, value: str) -> None:
    with pytest.raises(Refused, match=f"'{name}'"):
        event_in(structured(**{name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [*WRONG[:5], *WRONG[6:], ("datacontenttype", "a/b"), ("x", "%FF"), ("x", "a%0Ab")],
)
def test_a_wrong_attribute_is_named_in_binary_mode(name: str, value: str) -> None:
    with pytest.raises(Refused, match=f"'{name}'"):
        event_of(in_headers({**REQUIRED, name: value}))


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"id": 1}, "id"),
        ({"x": 1.5}, "x"),
        ({"x": 2**31}, "x"),
        ({"x": {"a": 1}}, "x"),
        ({"data": 1, "data_base64": "YQ=="}, "data_base64"),
        ({"data_base64": "?"}, "data_base64"),
        ({"data_base64": 1}, "data_base64"),
    ],
)
def test_what_no_attribute_can_be_is_named(changed: dict[str, object], name: str) -> None:
    with pytest.raises(Refused, match=f"'{name}'"):
        event_in(structured(**changed))


@given(st.binary(max_size=40))
def test_what_is_no_event_is_refused_and_never_fails_otherwise(text: bytes) -> None:
    for body in (text, b'{"id":' + text + b"}", b'{"data":' + text + b',"id":"1"}', b"[1]"):
        with pytest.raises(Refused):
            event_in(body)


@pytest.mark.parametrize("member", [b"data", b"x", b"data_base64"])
def test_an_event_that_is_nested_too_deep_is_refused(member: bytes) -> None:
    with pytest.raises(Refused):
        event_in(
            structured()[:-1] + b', "' + member + b'": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        )


def test_attributes_are_bounded() -> None:
    assert event_in(structured(x="y" * 16_000)).attributes
    with pytest.raises(Refused, match="16384"):
        event_in(structured(x="y" * 16_384))


def test_the_content_type_says_which_mode_it_is() -> None:
    assert is_structured("application/cloudevents+json")
    assert is_structured('Application/CloudEvents+JSON; charset="UTF-8"')
    assert not is_structured(None)
    assert not is_structured("application/json")
    with pytest.raises(Refused, match="/batch"):
        is_structured("application/cloudevents-batch+json")
    with pytest.raises(Refused, match="application/cloudevents\\+avro is not supported"):
        is_structured("application/cloudevents+avro")
    with pytest.raises(Refused, match="charset utf-16"):
        is_structured("application/cloudevents+json; charset=utf-16")
