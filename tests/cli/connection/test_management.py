"""Calls to management end, whatever becomes of the server."""

import httpx
import pytest

from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.connection.management import ManagementClient


class Silent(httpx.BaseTransport):
    """Takes each request and never answers; who would wait for ever is told so at once."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert request.extensions["timeout"]["read"] is not None, "it would wait for ever"
        raise httpx.ReadTimeout("timed out", request=request)


@pytest.mark.parametrize(
    "ask", [lambda client: client.get("/topics"), lambda client: [*client.stream_lines("/m", {})]]
)
def test_a_server_that_falls_silent_is_not_waited_for_for_ever(ask) -> None:
    with ManagementClient("http://127.0.0.1:9") as client:
        client._client = httpx.Client(transport=Silent())
        with pytest.raises(CommandFailed) as failure:
            ask(client)
        assert "60 s" in failure.value.message or "within 30 s" in failure.value.message


@pytest.mark.parametrize("changes", [False, True])
def test_only_of_a_change_it_is_unknown_whether_it_was_done(changes) -> None:
    with ManagementClient("http://127.0.0.1:9") as client:
        client._client = httpx.Client(transport=Silent())
        with pytest.raises(CommandFailed) as failure:
            client.delete("/groups/shop") if changes else client.get("/groups")
        assert ("whether it was done is unknown" in failure.value.message) is changes


def test_a_stream_that_is_led_elsewhere_says_so() -> None:
    elsewhere = httpx.MockTransport(lambda _: httpx.Response(302, headers={"location": "/x"}))
    with ManagementClient("http://127.0.0.1:9") as client:
        client._client = httpx.Client(transport=elsewhere)
        with pytest.raises(CommandFailed, match="redirects are not followed"):
            list(client.stream_lines("/topics/shop.orders/messages", {}))
