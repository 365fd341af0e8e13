"""Addresses, names and paths of containers become those of plain processes."""

from pathlib import Path

import pytest

from hermes_local.failures import LaunchFailed
from hermes_local.rewriting import Rewriting, addresses


def test_addresses_are_stable_by_order():
    assert addresses("127.0.1.0/24", ["a", "b"]) == {"a": "127.0.1.1", "b": "127.0.1.2"}
    assert addresses("127.9.0.16/30", ["a", "b"]) == {"a": "127.9.0.17", "b": "127.9.0.18"}


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("10.0.0.0/24", "not within 127"),
        ("127.0.0.0/24", "not within 127.0.0.0/8 .* contains 127.0.0.1"),
        ("127.0.1.0/31", "too small"),
        ("127.0.1.7/24", "host bits"),
        ("x", "--network"),
    ],
)
def test_a_network_that_cannot_be_used_is_refused(network, message):
    with pytest.raises(LaunchFailed, match=message):
        addresses(network, ["a", "b"])


@pytest.fixture
def rewriting():
    known = {"kafka": "127.0.1.1", "kafka-dc1": "127.0.1.2", "node": "127.0.1.3"}
    return Rewriting(known, "127.0.1.3", {"/etc/n.toml": Path("/d/n.toml"), "/data": Path("/d/v")})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kafka:9092,kafka-dc1:9092", "127.0.1.1:9092,127.0.1.2:9092"),
        ("http://node:8080/kafka:x", "http://127.0.1.3:8080/kafka:x"),
        ("PLAINTEXT://kafka-dc1:9092", "PLAINTEXT://127.0.1.2:9092"),
        ("my-kafka:9092 kafka.example.com:9092", "my-kafka:9092 kafka.example.com:9092"),
        ("node = 'kafka-dc1'", "node = 'kafka-dc1'"),
        ("host = '0.0.0.0'", "host = '127.0.1.3'"),
        ("http://localhost:1/ http://127.0.0.1:1/", "http://127.0.1.3:1/ http://127.0.1.3:1/"),
        ("127.0.0.11 10.127.0.0.1 localhost.localdomain", None),
        ("--config /etc/n.toml", "--config /d/n.toml"),
        ("/data/x /data", "/d/v/x /d/v"),
        ("/database /other/data /etc/n.toml.bak", None),
    ],
)
def test_names_addresses_and_paths_are_rewritten_and_nothing_else(rewriting, text, expected):
    assert rewriting.text(text) == (text if expected is None else expected)


def test_a_mounted_file_is_copied_rewritten_and_private(rewriting, tmp_path):
    source = tmp_path / "a.toml"
    source.write_text("kafka:1")
    copy = tmp_path / "out" / "a.toml"
    rewriting.copy(source, copy)
    assert copy.read_text() == "127.0.1.1:1"
    assert (copy.stat().st_mode & 0o077) == 0
    for wrong in (tmp_path / "none", tmp_path):
        with pytest.raises(LaunchFailed, match="cannot be read"):
            rewriting.copy(wrong, copy)
