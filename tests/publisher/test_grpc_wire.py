"""Requests of bounded cost; the stubs, the floors of their libraries and the page's table."""

import re
import runpy
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.errors import Refused
from hermes_actors.publisher.edges.grpc.codes import CODES
from hermes_actors.publisher.edges.grpc.wire import decoded, fields_in
from hermes_actors.rpc.v1 import broker_pb2, broker_pb2_grpc

ROOT = Path(__file__).parents[2]
PACKAGED = ROOT / "hermes_actors" / "rpc" / "v1"


def counted(request):
    """The fields of a request as the library sees them."""
    count = len(request.ListFields()) - bool(request.messages) + len(request.messages)
    for each in request.messages:
        attributes = each.attributes
        count += len(each.ListFields()) - bool(attributes) + 3 * len(attributes)
    return count


@given(
    st.lists(
        st.builds(
            broker_pb2.Message,
            data=st.integers(0, 300).map(bytes),
            ordering_key=st.sampled_from(["", "k"]),
            attributes=st.sampled_from([{}, {"a": "b"}, {"a": "b" * 200, "c": "d"}]),
        ),
        max_size=9,
    ),
    st.integers(0, 2**64 - 1),
)
def test_the_fields_of_a_request_are_counted(messages, sequence):
    request = broker_pb2.PublishStreamRequest(topic="t", messages=messages, sequence=sequence)
    data = request.SerializeToString()
    assert fields_in(data, 10_000) == counted(request)
    assert decoded(broker_pb2.PublishStreamRequest, data) == request


@given(st.binary(max_size=2_000))
def test_bytes_of_any_kind_are_counted_or_refused(data):
    assert 0 <= fields_in(data, 100) <= 101
    with suppress(Refused):
        decoded(broker_pb2.SubscribeRequest, data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x12\x00" * 1_000_000,  # messages
        b"\x92\x00\x00" * 1_000_000,  # the same, with a longer tag
        b"\x12\x80\x89\x7a" + b"\x12\x00" * 1_000_000,  # attributes of one message
        b"\x18\x01" * 1_000_000,
    ],
)
def test_a_request_of_very_many_fields_is_refused_unread(data):
    with pytest.raises(Refused, match="more than 8000 fields; send fewer messages"):
        decoded(broker_pb2.PublishStreamRequest, data)


def test_the_packaged_stubs_are_those_of_the_proto(tmp_path):
    generate = runpy.run_path(str(ROOT / "proto" / "generate.py"))["generate"]
    generate(tmp_path)
    made = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert made
    assert made == {name: (PACKAGED / name).read_text() for name in made}


def test_the_floors_of_the_libraries_are_those_of_the_stubs():
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    text = (PACKAGED / "broker_pb2.py").read_text()
    (protobuf,) = re.findall(r"^# Protobuf Python Version: (.+)$", text, re.MULTILINE)
    assert f"grpcio>={broker_pb2_grpc.GRPC_GENERATED_VERSION}" in needed
    assert f"protobuf>={protobuf}" in needed


def test_the_page_has_the_table_of_codes():
    page = (ROOT / "docs" / "grpc.md").read_text()
    rows = re.findall(r"^\| ([0-9, ]+) \| `([A-Z_]+)` \|", page, re.MULTILINE)
    shown = {int(status): code for each, code in rows for status in each.split(",")}
    assert shown == {status: code.name for status, code in CODES.items()}
