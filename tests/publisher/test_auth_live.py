"""401, 403 and client certificates over real sockets."""

import base64
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import argon2
import httpx
import pytest
import trustme

from hermes_actors.security.users import user_line
from tests.publisher.frontend_process import Process

pytestmark = pytest.mark.live


def secured(security: dict[str, Any], **settings: object) -> Process:
    """A frontend with security, in a process of its own."""
    idle = {"idle_timeout_ms": 2_000, "long_idle_timeout_ms": 2_000}
    return Process(
        f"security={json.dumps(security)}",
        graceful_shutdown_initial_wait_ms=0,
        **idle,
        **settings,
    )


@pytest.fixture(scope="module")
def users_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    path = tmp_path_factory.mktemp("users") / "users.toml"
    lines = [
        user_line("shop-app", hasher.hash("s3cret"), ["PUBLISHER"], []),
        user_line("other", hasher.hash("s3cret"), ["PUBLISHER"], []),
    ]
    path.write_text("\n".join(["[users]", *lines]))
    return str(path)


@pytest.fixture(scope="module")
def frontend(users_file: str) -> Iterator[Process]:
    settings = {"authentication": {"enabled": True, "mode": "pro_active"}}
    with secured({"users_file": users_file}, **settings) as process:
        yield process


@pytest.mark.parametrize("is_http2", [False, True])
@pytest.mark.parametrize(
    ("auth", "topic", "status"),
    [
        (None, "shop.orders", 201),
        (("shop-app", "s3cret"), "shop.orders", 201),
        (("shop-app", "wrong"), "shop.orders", 401),
        (("nobody", "s3cret"), "shop.orders", 401),
        (None, "shop.guarded", 403),
        (("shop-app", "s3cret"), "shop.guarded", 201),
        (("other", "s3cret"), "shop.guarded", 403),
        (("shop-app", "wrong"), "shop.guarded", 401),
        (("shop-app", "wrong"), "shop.nothing", 401),
        (("shop-app", "s3cret"), "shop.nothing", 404),
    ],
)
def test_who_may_publish(
    frontend: Process, auth: tuple[str, str] | None, topic: str, status: int, is_http2: bool
) -> None:
    with httpx.Client(http1=not is_http2, http2=is_http2) as client:
        answer = client.post(f"{frontend.url}/topics/{topic}", content=b"{}", auth=auth)
        assert answer.status_code == status
        if status == 401:
            assert answer.content == b""
            assert answer.headers["www-authenticate"] == 'Basic realm="hermes", charset="UTF-8"'
            assert "hermes-message-id" not in answer.headers
        elif status == 403:
            assert answer.json()["code"] == "AUTH_ERROR"
            assert list(answer.json()) == ["message", "code"]
            assert answer.headers["hermes-message-id"]
        # The connection goes on, or a new one is made; either way the next one is served.
        following = client.post(f"{frontend.url}/topics/shop.orders", content=b"{}")
        assert following.status_code == 201


class Certificates:
    """Two authorities; the server trusts clients of the first one only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority, stranger = trustme.CA(), trustme.CA()
        self.authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        server = self.authority.issue_cert("127.0.0.1")
        server.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
        server.private_key_pem.write_to_path(str(folder / "key.pem"))
        for name, issuer in (("shop-cert", self.authority), ("stranger", stranger)):
            issued = issuer.issue_cert(f"{name}.example.com", common_name="shop-cert")
            issued.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.pem"))

    def tls(self, **settings: object) -> dict[str, object]:
        return {
            "certificate_file": str(self.folder / "cert.pem"),
            "key_file": str(self.folder / "key.pem"),
            "client_ca_file": str(self.folder / "ca.pem"),
            "port": 0,
            **settings,
        }

    def context(self, client: str = "") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if client:
            context.load_cert_chain(str(self.folder / f"{client}.pem"))
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def publish(frontend: Process, context: ssl.SSLContext, topic: str, *, http2: bool = False) -> int:
    with httpx.Client(verify=context, http2=http2) as client:
        return client.post(f"{frontend.tls_url}/topics/{topic}", content=b"{}").status_code


def test_a_requested_certificate_is_an_account(certificates: Certificates) -> None:
    security = {"certificates": {"enabled": True, "roles": ["PUBLISHER"]}}
    settings = {
        "authentication": {"enabled": True},
        "tls": certificates.tls(client_auth="requested"),
    }
    with secured(security, **settings) as frontend:
        for http2 in (False, True):
            shown, none = certificates.context("shop-cert"), certificates.context()
            assert publish(frontend, shown, "shop.guarded", http2=http2) == 201
            assert publish(frontend, none, "shop.guarded", http2=http2) == 401
            assert publish(frontend, none, "shop.orders", http2=http2) == 201
        # TLS 1.3 tells of a bad client certificate only after the handshake.
        with pytest.raises(httpx.TransportError):
            publish(frontend, certificates.context("stranger"), "shop.orders")
        # The plain listener shows no certificate.
        answer = httpx.post(f"{frontend.url}/topics/shop.guarded", content=b"{}")
        assert answer.status_code == 401
        assert "www-authenticate" not in answer.headers


def test_a_required_certificate_is_required(certificates: Certificates) -> None:
    tls = certificates.tls(client_auth="required")
    with secured({}, tls=tls) as frontend:
        assert publish(frontend, certificates.context("shop-cert"), "shop.orders") == 201
        for context in (certificates.context(), certificates.context("stranger")):
            with pytest.raises(httpx.TransportError):
                publish(frontend, context, "shop.orders")


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_refusal_over_tls_comes_at_once_however_the_request_comes(
    certificates: Certificates, users_file: str, pieces: int
) -> None:
    settings = {"authentication": {"enabled": True}, "tls": certificates.tls()}
    shop, other = (
        base64.b64encode(f"{name}:s3cret".encode()).decode() for name in ("shop-app", "other")
    )
    with secured({"users_file": users_file}, **settings) as frontend:
        for credentials, status in (("", 401), (other, 403), (shop, 201), (other, 403)):
            shown = f"Authorization: Basic {credentials}\r\n" if credentials else ""
            head = (
                "POST /topics/shop.guarded HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                f"{shown}Content-Length: 2\r\n\r\n"
            )
            with (
                socket.create_connection(("127.0.0.1", frontend.tls_port), timeout=10) as plain,
                certificates.context().wrap_socket(plain, server_hostname="127.0.0.1") as client,
            ):
                if pieces == 1:
                    client.sendall(head.encode() + b"{}")
                else:
                    client.sendall(head.encode())
                    client.sendall(b"{}")
                assert client.recv(12) == b"HTTP/1.1 %d" % status


def test_authorities_that_cannot_be_read_are_one_clear_line(certificates: Certificates) -> None:
    tls = certificates.tls(client_auth="required", client_ca_file="/nonexistent/ca.pem")
    failed = secured({}, tls=tls)
    assert failed.process.wait(timeout=20) == 1
    assert failed.process.stdout is not None
    failed.process.stdout.close()
    assert failed.first_line.startswith("error: frontend.tls: ")
    assert "/nonexistent/ca.pem: client_ca_file cannot be used: No such" in failed.first_line
