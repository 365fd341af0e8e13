import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.recipients.headers import CloudEvents, request_head
from hermes_actors.consumer.senders.sender import parse_lines
from hermes_actors.model.message import Message
from hermes_actors.model.subscription import Header
from hermes_actors.publisher.cloudevents import event_of
from tests.values import a_subscription


def message(**fields):
    return Message(**{"id": "m1", "body": b"{}", "published_at_ms": 1_700_000_000_007, **fields})


def lines_of(message, **instead):
    lines = CloudEvents("shop.orders", "application/json", instead).lines(message)
    return {name.decode(): value.decode() for name, value in parse_lines(lines)}


def pushed(message, headers=()):
    subscription = a_subscription(
        endpoint="http://sink",
        headers=[Header(*each) for each in headers],
        cloud_events_enabled=True,
    )
    head = request_head(subscription, "")
    return [
        (name.decode(), value.decode())
        for name, value in parse_lines(head.lines(head.message_lines(message), 0))
    ]


def test_a_plain_message_becomes_an_event_of_its_topic():
    assert lines_of(message(key=b"k1")) == {
        "Content-Type": "application/json",
        "ce-specversion": "1.0",
        "ce-id": "m1",
        "ce-source": "/topics/shop.orders",
        "ce-type": "shop.orders",
        "ce-time": "2023-11-14T22:13:20.007Z",
        "ce-partitionkey": "k1",
    }


@pytest.mark.parametrize("ms", [253_402_300_800_000, 2**63 - 1, 10**30, -(10**30)])
def test_a_time_that_cannot_be_written_is_left_out(ms):
    assert "ce-time" not in lines_of(message(published_at_ms=ms))
    assert lines_of(message(published_at_ms=253_402_300_799_999))["ce-time"].startswith("9999-")


def test_what_is_not_known_is_not_made_up():
    lines = lines_of(message(published_at_ms=-1, key=b"\xff"))
    assert "ce-time" not in lines
    assert "ce-partitionkey" not in lines


EVENT = (("specversion", "1.0"), ("id", "e1"), ("source", "s"), ("type", "t"), ("subject", 'ä "%'))


def test_an_event_keeps_its_attributes_and_adds_none_of_ours():
    assert lines_of(message(attributes=EVENT), type="mine") == {
        "Content-Type": "application/json",
        "ce-specversion": "1.0",
        "ce-id": "e1",
        "ce-source": "s",
        "ce-type": "t",
        "ce-subject": "%C3%A4%20%22%25",
    }


def test_fixed_headers_name_the_attributes_of_what_is_no_event():
    lines = pushed(message(), [("CE-Type", "order.made"), ("ce-dept", "x"), ("A", "1")])
    assert dict(lines)["ce-type"] == "order.made"
    assert ("ce-dept", "x") in lines
    assert ("A", "1") in lines
    assert [name for name, _ in lines if name.lower() == "ce-type"] == ["ce-type"]
    lines = pushed(message(attributes=EVENT), [("ce-type", "order.made")])
    assert [value for name, value in lines if name == "ce-type"] == ["t"]


def test_there_is_one_content_type_and_the_publishers_headers_bring_no_attributes():
    typed = (*EVENT, ("datacontenttype", "text/plain"))
    lines = pushed(message(attributes=typed, propagated=(("ce-type", "forged"), ("B", "2"))))
    assert [value for name, value in lines if name == "Content-Type"] == ["text/plain"]
    assert [value for name, value in lines if name == "ce-type"] == ["t"]
    assert ("B", "2") in lines


def test_without_the_option_nothing_of_it_is_sent():
    subscription = a_subscription(endpoint='http://sink')  # fmt: skip
    lines = request_head(subscription, "").message_lines(message(attributes=EVENT))
    assert b"ce-" not in lines


values = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)


@given(subject=values, extension=values)
def test_what_goes_out_is_read_back_as_the_same_event(subject, extension):
    attributes = (*EVENT[:4], ("subject", subject), ("ext1", extension))
    lines = lines_of(message(attributes=attributes))
    content_type = lines.pop("Content-Type")
    event = event_of(lines.items())
    assert (content_type, dict(event.attributes)) == ("application/json", dict(attributes))


@pytest.mark.parametrize("name", ["Bad", "a_b", "x\r\ny", ""])
def test_a_foreign_records_odd_attribute_is_left_out(name):
    lines = CloudEvents("g.t", "application/json", {}).lines(message(attributes=((name, "v"),)))
    assert lines.count(b"\r\n") == 5
    assert b": v\r\n" not in lines
