"""Calls to management end, and say how, whatever becomes of the server."""

from contextvars import Context

import httpx
import pytest

from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.connection.management import ManagementClient


class Silent(httpx.BaseTransport):
    """Takes each request and never answers; who would wait for ever is told so at once."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert request.extensions["timeout"]["read"] is not None, "it would wait for ever"
        raise httpx.ReadTimeout("timed out", request=request)


def asking(server: httpx.BaseTransport) -> ManagementClient:
    # Commands that ran before leave their credentials in this test's context.
    client = Context().run(ManagementClient, "http://127.0.0.1:9")
    client._client = httpx.Client(transport=server)
    return client


@pytest.mark.parametrize(
    "ask", [lambda client: client.get("/topics"), lambda client: [*client.stream_lines("/m", {})]]
)
def test_a_server_that_falls_silent_is_not_waited_for_for_ever(ask) -> None:
    with asking(Silent()) as client, pytest.raises(CommandFailed, match=r"within [36]0 s"):
        ask(client)


@pytest.mark.parametrize("changes", [False, True])
def test_only_of_a_change_it_is_unknown_whether_it_was_done(changes) -> None:
    with asking(Silent()) as client:
        with pytest.raises(CommandFailed) as failure:
            client.delete("/groups/shop") if changes else client.get("/groups")
        assert ("it may have been done" in failure.value.message) is changes


def test_a_stream_that_is_led_elsewhere_says_so() -> None:
    elsewhere = httpx.MockTransport(lambda _: httpx.Response(302, headers={"location": "/x"}))
    with asking(elsewhere) as client, pytest.raises(CommandFailed, match="redirects are not"):
        list(client.stream_lines("/topics/shop.orders/messages", {}))
