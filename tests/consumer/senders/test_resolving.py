"""Look-ups: bounded, one for each name at a time, and never waited for by the loop."""

import queue
import socket
import threading

import pytest

from hermes_actors.consumer.senders.connecting import (
    KEPT_S,
    Resolver,
    look_up,
)


class Names:
    """A name server of the test's own: each look-up waits until it is answered."""

    def __init__(self):
        self.time_s = 0.0
        self.asked = queue.Queue()
        self.answers = {}
        self.posted = queue.Queue()
        self.running = 0
        self.running_high = 0
        self._lock = threading.Lock()

    def look_up(self, host):
        with self._lock:
            self.running += 1
            self.running_high = max(self.running_high, self.running)
        answer = queue.Queue()
        self.asked.put((host, answer))
        found = answer.get(timeout=10)
        with self._lock:
            self.running -= 1
        if isinstance(found, OSError):
            raise found
        return found

    def answer(self, found):
        host, answer = self.asked.get(timeout=10)
        answer.put(found)
        self.posted.get(timeout=10)()
        return host

    def now_s(self):
        return self.time_s


@pytest.fixture
def names():
    return Names()


@pytest.fixture
def resolver(names):
    return Resolver(names.posted.put, names.now_s, look_up=names.look_up, look_ups_max=2)


def test_an_address_needs_no_look_up(resolver, names):
    found = []
    for host in ("10.1.2.3", "::1", "127.1"):
        resolver.resolve(host, found.append)
    assert found == [["10.1.2.3"], ["::1"], ["127.0.0.1"]]
    assert names.asked.empty()


def test_those_who_ask_for_the_same_name_share_one_look_up(resolver, names):
    found = []
    for _ in range(5):
        resolver.resolve("orders", found.append)
    assert names.answer(["10.0.0.1"]) == "orders"
    assert found == [["10.0.0.1"]] * 5
    resolver.resolve("orders", found.append)
    assert len(found) == 6
    assert names.asked.empty()


def test_an_answer_is_forgotten_soon(resolver, names):
    found = []
    resolver.resolve("orders", found.append)
    names.answer(["10.0.0.1"])
    names.time_s = KEPT_S
    resolver.resolve("orders", found.append)
    names.answer(["10.0.0.2"])
    assert found == [["10.0.0.1"], ["10.0.0.2"]]


def test_a_failure_is_told_and_not_kept(resolver, names):
    found = []
    resolver.resolve("orders", found.append)
    error = OSError("no such name")
    names.answer(error)
    assert found == [error]
    resolver.resolve("orders", found.append)
    names.answer(["10.0.0.1"])
    assert found[1:] == [["10.0.0.1"]]


def test_no_more_look_ups_than_allowed_are_under_way(resolver, names):
    found = []
    for number in range(7):
        resolver.resolve(f"name{number}", found.append)
    for _ in range(7):
        names.answer(["10.0.0.1"])
    assert len(found) == 7
    assert names.running_high <= 2


def test_a_host_that_is_no_name_has_no_address():
    with pytest.raises(OSError, match="no host's name"):
        look_up("a" * 70)


def test_a_name_that_cannot_be_looked_up_is_told_in_words(monkeypatch):
    def fail(*_args, **_more):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(OSError, match=r"^its name is not known: "):
        look_up("nobody.invalid")
