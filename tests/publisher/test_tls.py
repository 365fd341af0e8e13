"""A listener's certificate, key and client authorities follow their files, over real sockets."""

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from ssl import create_default_context

import httpx
import pytest
import trustme

from hermes_actors.config import FrontendConfig, TlsConfig
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.edges.publishing import PagesEdge
from hermes_actors.publisher.edges.server import HttpServer
from hermes_actors.publisher.status import Pages
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock
from hermes_actors.security.watched import watched_files

SERVERS = trustme.CA()


class Volume:
    """A folder of files as Kubernetes keeps a Secret's: all change at once, by a link."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    def hold(self, clients: trustme.CA, *, is_pair: bool = True) -> float:
        """When the certificate that it holds now expires."""
        self._count += 1
        held = self.folder / f"..{self._count}"
        held.mkdir()
        end = datetime(2100 + self._count, 1, 1, tzinfo=UTC)
        leaf = SERVERS.issue_cert("127.0.0.1", not_after=end)
        other = leaf if is_pair else SERVERS.issue_cert("127.0.0.1")
        (held / "tls.crt").write_bytes(b"".join(each.bytes() for each in leaf.cert_chain_pems))
        (held / "tls.key").write_bytes(other.private_key_pem.bytes())
        (held / "ca.crt").write_bytes(clients.cert_pem.bytes())
        (self.folder / "..new").symlink_to(held)
        (self.folder / "..new").replace(self.folder / "..data")
        return end.timestamp()

    def config(self) -> TlsConfig:
        data = self.folder / "..data"
        return TlsConfig(
            certificate_file=str(data / "tls.crt"),
            key_file=str(data / "tls.key"),
            port=0,
            only=True,
            client_auth="required",
            client_ca_file=str(data / "ca.crt"),
        )


def client_of(authority: trustme.CA) -> httpx.AsyncClient:
    context = create_default_context()
    SERVERS.configure_trust(context)
    authority.issue_cert("client.test").configure_cert(context)
    return httpx.AsyncClient(http2=True, verify=context)


async def ask(client: httpx.AsyncClient, server: HttpServer) -> tuple[object, float]:
    """The client's address, which tells connections apart, and when the certificate expires."""
    answer = await client.get(f"https://127.0.0.1:{server.tls_port}/status/ping")
    assert (answer.http_version, answer.status_code) == ("HTTP/2", 503)
    stream = answer.extensions["network_stream"]
    shown = stream.get_extra_info("ssl_object").getpeercert()["notAfter"]
    ends = datetime.strptime(shown, "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
    return stream.get_extra_info("client_addr"), ends.timestamp()


@asynccontextmanager
async def serving(tls: TlsConfig):
    config = FrontendConfig(tls=tls)

    async def nothing() -> bytes:
        return b""

    pages = Pages(Drain(initial_wait_ms=0, drain_ms=0), nothing)
    make = partial(PagesEdge, pages, config)
    server = HttpServer(make, config, SystemClock(), field="frontend.port")
    await guest.call(server.start)
    try:
        yield server
    finally:
        await guest.call(server.stop, 0.0)


async def renew_under_a_connection(folder: Path) -> None:
    volume, before, after = Volume(folder), trustme.CA(), trustme.CA()
    first = volume.hold(before)
    async with serving(volume.config()) as server, client_of(before) as long:
        assert server.port is None
        assert server.tls is not None
        tls = server.tls
        files = watched_files(
            "frontend.tls", tls.files, tls.renewed, tls.expires_s, SystemClock(), 1.0
        )
        address, served = await ask(long, server)
        assert (served, files.value) == (first, first)

        second = volume.hold(after)
        await files.check()
        assert files.value == second
        assert await ask(long, server) == (address, first), "a connection keeps what it has"
        async with client_of(after) as new:
            assert (await ask(new, server))[1] == second
        async with client_of(before) as refused:
            with pytest.raises(httpx.HTTPError):
                await ask(refused, server)

        for is_pair in (False, True):
            volume.hold(after, is_pair=is_pair)
            if is_pair:
                (folder / "..data" / "ca.crt").write_bytes(b"no certificate")
            await files.check()
            assert files.trouble
            async with client_of(after) as new:
                assert (await ask(new, server))[1] == second
        third = volume.hold(after)
        await files.check()
        assert not files.trouble
        async with client_of(after) as new:
            assert (await ask(new, server))[1] == files.value == third
        assert await ask(long, server) == (address, first)


@pytest.mark.parametrize("host", ["uvloop", pytest.param("asyncio", marks=pytest.mark.slow)])
def test_new_connections_get_the_newest_certificate_and_others_go_on(
    host: str, tmp_path: Path
) -> None:
    guest.run(renew_under_a_connection, tmp_path, host=host)
