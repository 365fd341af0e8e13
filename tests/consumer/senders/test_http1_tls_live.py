"""TLS of the HTTP/1.1 sender: who is believed, and who we say we are."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme

from hermes_actors.config import EndpointTlsConfig
from hermes_actors.consumer.opening import endpoint_tls
from hermes_actors.consumer.senders.sender import Failure
from hermes_actors.errors import StartupError
from tests.consumer.http1_exchange import OK, Client, run, served

pytestmark = pytest.mark.live


def test_https_verifies_the_certificate_against_the_host_name():
    authority = trustme.CA()

    def contexts(name):
        server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(server_tls)
        client_tls = ssl.create_default_context()
        authority.configure_trust(client_tls)
        return server_tls, client_tls

    async def main(name, expected):
        server_tls, client_tls = contexts(name)
        async with served(lambda _n, _body: OK, tls=server_tls, client_tls=client_tls) as (
            _,
            client,
        ):
            outcome = await client.push()
            assert (outcome.failure or outcome.status) == expected

    run(lambda: main("localhost", 200))
    run(lambda: main("other.example", Failure.CONNECT))


class Certificates:
    """A server that asks for client certificates, and files for those who have one."""

    def __init__(self, folder):
        authority, others = trustme.CA(), trustme.CA()
        self.names = []
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("orders.example", "127.0.0.1").configure_cert(self.server)
        authority.configure_trust(self.server)
        self.server.verify_mode = ssl.CERT_REQUIRED
        self.server.sni_callback = lambda _socket, name, _context: self.names.append(name)
        self.authority = folder / "authority.pem"
        authority.cert_pem.write_to_path(self.authority)
        self.good = self._files(folder, "good", authority)
        self.bad = self._files(folder, "bad", others)

    def _files(self, folder, name, authority):
        issued = authority.issue_cert("hermes.example", common_name="hermes")
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        issued.private_key_pem.write_to_path(key)
        for pem in issued.cert_chain_pems:
            pem.write_to_path(certificate, append=True)
        return {"certificate_file": str(certificate), "key_file": str(key)}

    def client(self, **files):
        return endpoint_tls(EndpointTlsConfig(ca_file=str(self.authority), **files), "http/1.1")


@pytest.mark.parametrize("host", ["asyncio", "uvloop"])
def test_a_client_certificate_is_shown_to_who_asks_and_the_name_is_sent(host, tmp_path):
    certificates = Certificates(tmp_path)

    async def main(client_tls, name):
        async with served(
            lambda _n, _body: OK,
            tls=certificates.server,
            client_tls=client_tls,
            names=lambda _host: ["127.0.0.1"],
            host=name,
        ) as (_, client):
            return await client.push(b"x" * 300_000)

    outcomes = []

    def push(client_tls, name="orders.example"):
        async def one():
            outcomes.append(await main(client_tls, name))

        run(one, host)
        return outcomes.pop()

    assert push(certificates.client(**certificates.good)).status == 200
    assert certificates.names == ["orders.example"]
    assert push(certificates.client(**certificates.good), "127.0.0.1").status == 200
    assert push(certificates.client(), "orders.example").failure is not None
    assert push(certificates.client(**certificates.bad)).failure is not None
    wrong_name = push(certificates.client(**certificates.good), "other.example")
    assert wrong_name.failure is Failure.CONNECT
    assert "other.example" in wrong_name.detail
    untrusted = push(endpoint_tls(EndpointTlsConfig()))
    assert untrusted.failure is Failure.CONNECT
    assert "the authority that signed it in consumers.tls.ca_file" in untrusted.detail
    assert "CERTIFICATE_VERIFY_FAILED" not in untrusted.detail


@pytest.mark.parametrize("name", ["ca_file", "certificate_file"])
def test_files_that_cannot_be_used_are_told_by_their_field(name, tmp_path):
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    files = {"ca_file": ""} | {name: str(wrong)}
    if name == "certificate_file":
        files["key_file"] = str(wrong)
    with pytest.raises(StartupError, match=rf"consumers\.tls\.{name}: .*wrong\.pem"):
        endpoint_tls(EndpointTlsConfig(**files))


class SilentHandler(BaseHTTPRequestHandler):
    """Answers 400 to what is no HTTP."""

    def log_message(self, *_):
        pass


def test_tls_to_a_port_of_plain_http_is_told_as_that():
    async def main():
        with ThreadingHTTPServer(("127.0.0.1", 0), SilentHandler) as plain:
            threading.Thread(target=plain.handle_request).start()
            async with served(lambda _n, _body: OK) as (_, client):
                client = Client(client.sender, plain.server_port, "https", "127.0.0.1")
                outcome = await client.push(timeout_ms=2_000)
        assert outcome.failure is Failure.CONNECT
        assert "this port speaks plain HTTP" in outcome.detail
        assert "WRONG_VERSION_NUMBER" not in outcome.detail

    run(main)


def test_plain_text_to_a_port_that_speaks_tls_is_a_failure(tmp_path):
    certificates = Certificates(tmp_path)

    async def main():
        async with served(lambda _n, _body: OK, tls=certificates.server) as (server, client):
            client = Client(client.sender, server.port, "http")
            outcome = await client.push(timeout_ms=2_000)
            assert outcome.failure in (Failure.MALFORMED, Failure.RESET)

    run(main)
