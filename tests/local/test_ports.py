"""Free ports for the processes that a launcher starts."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hermes_local.failures import LaunchFailed
from hermes_local.ports import FIRST, LAST, free_ports


@pytest.fixture
def cursor(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert free_ports(1)
    (found,) = tmp_path.iterdir()
    return found


def test_who_asks_at_the_same_time_gets_other_ports_although_nobody_listens_yet(cursor):
    with ThreadPoolExecutor(8) as threads:
        asked = list(threads.map(lambda _: free_ports(3), range(40)))
    assert len({port for ports in asked for port in ports}) == 120


def test_after_the_last_port_the_first_ones_come_again(cursor):
    cursor.write_text(str(LAST - 1))
    ports = free_ports(3)
    assert FIRST <= ports[0] < ports[2] < LAST - 3


@pytest.mark.parametrize("text", ["", "half", "99999999", "-1"])
def test_whatever_a_cut_off_write_left_behind_there_are_ports(cursor, text):
    cursor.write_text(text)
    (port,) = free_ports(1)
    assert FIRST <= port < LAST


def test_an_address_where_nobody_can_listen_is_refused_by_name(cursor):
    with pytest.raises(LaunchFailed, match=r"no 2 free ports in a row .* on 192\.0\.2\.1"):
        free_ports(2, "192.0.2.1")
