"""Bodies come in bounded: in time, in size, and after their sender is known."""

import pytest
import trio

from hermes_actors.errors import Refused
from hermes_actors.management.http.intake import BODY_BYTES_MAX, RequestBody
from hermes_actors.security.account import Unauthenticated
from tests.management.callers import SALES


class Asked:
    """One request to the app, whose body comes as the test says."""

    framing = ((b"transfer-encoding", b"chunked"),)
    version = "1.1"

    def __init__(self, api, *parts, length=None, path="/groups", method="POST", headers=()):
        self._api = api
        self._parts = list(parts)
        self.read = 0
        self.status = 0
        self.headers = {}
        self.body = b""
        framing = self.framing if length is None else [(b"content-length", b"%d" % length)]
        self._scope = {
            "type": "http",
            "http_version": self.version,
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"host", b"localhost"), *framing, *headers],
        }

    async def run(self) -> None:
        await self._api.app(self._scope, self._receive, self._send)

    async def _receive(self):
        if not self._parts:
            await trio.sleep_forever()
        self.read += 1
        part = self._parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": True}

    async def _send(self, event):
        if event["type"] == "http.response.start":
            self.status = event["status"]
            self.headers = dict(event["headers"])
        else:
            self.body += event["body"]


async def test_a_body_that_does_not_come_is_408_after_its_time(api, autojump_clock):
    asked = Asked(api, b"{")
    await asked.run()
    assert trio.current_time() == 10
    assert asked.status == 408
    assert b"management.body_timeout_ms" in asked.body
    assert asked.headers[b"connection"] == b"close"


async def test_a_body_that_trickles_has_one_time_for_all_of_it(api, autojump_clock):
    class Trickle(Asked):
        async def _receive(self):
            await trio.sleep(3)
            return await super()._receive()

    asked = Trickle(api, *[b" "] * 100)
    await asked.run()
    assert (asked.status, trio.current_time(), asked.read) == (408, 10, 3)


async def test_a_body_is_refused_by_its_announced_length_unread_and_by_its_bytes(api):
    announced = Asked(api, b"x", length=BODY_BYTES_MAX + 1)
    await announced.run()
    assert (announced.status, announced.read) == (413, 0)
    sent = Asked(api, *[b"x" * 65_536] * 20)
    await sent.run()
    assert (sent.status, sent.read) == (413, 17)


class AskedOver2(Asked):
    """HTTP/2 needs no length for a body, and has no chunks."""

    framing = ()
    version = "2"


async def test_a_body_over_http2_that_says_no_length_is_bounded_as_well(api, autojump_clock):
    large = AskedOver2(api, *[b"x" * 65_536] * 20)
    await large.run()
    assert (large.status, large.read) == (413, 17)
    torn = AskedOver2(api, b"{")
    await torn.run()
    assert (torn.status, trio.current_time()) == (408, 10)
    assert b"connection" not in torn.headers


async def test_the_time_of_a_body_ends_though_all_of_it_is_there_at_once(autojump_clock):
    async def part():
        return {"type": "http.request", "body": b"", "more_body": True}

    body = RequestBody(part, [(b"transfer-encoding", b"chunked")], "1.1", timeout_s=5)
    await body.receive()
    await trio.sleep(5)
    with pytest.raises(Refused, match=r"management\.body_timeout_ms"):
        await body.receive()


async def test_who_must_show_who_he_is_does_so_before_his_body_is_read(api):
    class Nobody:
        async def identify(self, credentials):
            return None

        def refusal(self):
            return Unauthenticated("Credentials are required here", ())

    api.administered_with(security=Nobody())
    for path, method in (("/groups", "POST"), ("/topics/a.b", "PUT"), ("/mode", "POST")):
        asked = Asked(api, b"{", path=path, method=method)
        await asked.run()
        assert (asked.status, asked.read) == (401, 0)
        assert asked.headers[b"connection"] == b"close"


async def test_who_calls_is_found_out_once_for_each_request(api):
    security = api.administration.security
    asked = []

    class Counted:
        refusal = security.refusal

        async def identify(self, credentials):
            asked.append(credentials)
            return await security.identify(credentials)

    api.administered_with(security=Counted())
    assert (await api.post("/groups", {"groupName": "shop"})).status_code == 201
    assert (await api.post("/topics", api.topic(), headers=SALES)).status_code == 201
    assert len(asked) == 2


async def test_a_body_that_is_whole_waits_for_what_follows_without_a_limit(autojump_clock):
    async def late():
        await trio.sleep(60)
        return {"type": "http.disconnect"}

    assert (await RequestBody(late, [], "1.1", timeout_s=5).receive())["type"] == "http.disconnect"
    assert trio.current_time() == 60
