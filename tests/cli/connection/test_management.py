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
