"""The examples of docs/security.md on a real node: configurations, commands, sockets."""

import json
import os
import re
import shlex
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import trustme
from cryptography.x509 import load_pem_x509_certificate

pytestmark = pytest.mark.live

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
PASSWORDS = {"ada": "b0ss", "sam": "p4ss", "shop-app": "s3cret"}
FOREVER_S = 4_000_000_000
SIGHUP = re.compile("SIGHUP: ")


def blocks(language: str, first: str = "") -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return [each for each in found if each.startswith(first)]


NODES = blocks("toml", "# node.toml")
COMMANDS = blocks("sh")


class Running:
    """`hermes node` in a folder of its own, on free ports."""

    def __init__(self, folder: Path, configuration: str, **variables: str) -> None:
        self.folder = folder
        (folder / "node.toml").write_text(configuration)
        self.environment = {
            **os.environ,
            "HERMES_FRONTEND_PORT": "0",
            "HERMES_FRONTEND_TLS_PORT": "0",
            "HERMES_MANAGEMENT_PORT": "0",
            "HERMES_MANAGEMENT_TLS_PORT": "0",
            "HERMES_STATUS_PORT": "0",
            "HERMES_FRONTEND_IDLE_TIMEOUT_MS": "5000",
            "HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS": "5000",
            "HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": "0",
            **variables,
        }

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hermes_actors", "node", "--config", "node.toml", "--json"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            self.ready: dict[str, Any] = json.loads(line)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        _, self.errors = self.process.communicate(timeout=30)

    def hermes(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "HERMES_MANAGEMENT_URL": self.ready["management"],
            "HERMES_PUBLISH_URL": self.ready["publish"],
        }
        return subprocess.run(
            [sys.executable, "-m", "hermes_actors", *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def run(self, script: str) -> None:
        for line in script.strip().splitlines():
            program, *arguments = shlex.split(line)
            assert program == "hermes"
            result = self.hermes(*arguments)
            assert result.returncode == 0, f"{line}: {result.stderr}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def begin(configuration: str, **variables: str) -> Running:
        running.append(Running(tmp_path, configuration, **variables))
        return running[-1].__enter__()

    yield begin
    for each in running:
        if each.process.poll() is None:
            each.__exit__()


def with_users(folder: Path) -> None:
    (users,) = blocks("toml", "# users.toml")
    (folder / "users.toml").write_text(users)
    for name, password in PASSWORDS.items():
        (folder / f"{name}.txt").write_text(password + "\n")


def as_admin(node: Running, *arguments: str) -> None:
    user = ("--user", "ada", "--password-file", "ada.txt")
    result = node.hermes(*arguments, *user)
    assert result.returncode == 0, result.stderr


def test_passwords(start: Callable[..., Running], tmp_path: Path) -> None:
    with_users(tmp_path)
    node = start(NODES[0])
    refused = node.hermes("group", "create", "shop")
    assert refused.returncode == 1
    assert "401" in refused.stderr
    assert "--password-file" in refused.stderr
    node.run(COMMANDS[0])
    url = f"{node.ready['publish']}/topics/shop.orders"
    for auth, status in (
        (None, 401),
        (("shop-app", "wrong"), 401),
        (("sam", "p4ss"), 403),
        (("shop-app", "s3cret"), 201),
    ):
        answer = httpx.post(url, content=b"{}", auth=auth)
        assert answer.status_code == status
        if status == 401:
            assert answer.headers["www-authenticate"].startswith("Basic realm=")
            assert answer.content == b""
    management = node.ready["management"]
    assert httpx.get(f"{management}/topics/shop.orders").status_code == 200
    for auth, status in ((("shop-app", "s3cret"), 403), (("sam", "p4ss"), 200)):
        changed = httpx.put(
            f"{management}/topics/shop.orders", json={"description": "x"}, auth=auth
        )
        assert changed.status_code == status, "who publishes does not own the topic"
    metrics = httpx.get(f"{node.ready['publish']}/status/prometheus").text
    assert 'hermes_security_authentications_total{result="identified"}' in metrics
    node.__exit__()
    for password in PASSWORDS.values():
        assert password not in node.errors


def test_bearer_tokens(start: Callable[..., Running], tmp_path: Path, signer: Any) -> None:
    with_users(tmp_path)
    (tmp_path / "jwks.json").write_bytes(signer.key_set())
    node = start(
        NODES[1],
        HERMES_SECURITY_JWT_JWKS_URL="",
        HERMES_SECURITY_JWT_JWKS_FILE="jwks.json",
        HERMES_SECURITY_USERS_FILE="users.toml",
    )
    as_admin(node, "group", "create", "shop")
    guarded = json.dumps(
        {"enabled": True, "publishers": ["shop-app"], "unauthenticatedAccessEnabled": False}
    )
    as_admin(node, "topic", "create", "shop.orders")
    as_admin(node, "topic", "update", "shop.orders", f"auth={guarded}")
    (claims,) = blocks("json")
    for change, code in (({}, 0), ({"aud": "other"}, 1), ({"sub": "other"}, 1)):
        shown = {**json.loads(claims), "exp": FOREVER_S, **change}
        (tmp_path / "token.txt").write_text(signer.token(**shown))
        result = node.hermes(*shlex.split(COMMANDS[1])[1:])
        assert result.returncode == code, result.stderr
    answer = httpx.post(f"{node.ready['publish']}/topics/shop.orders", content=b"{}")
    assert [value.split()[0] for value in answer.headers.get_list("www-authenticate")] == [
        "Basic",
        "Bearer",
    ]


def test_client_certificates(start: Callable[..., Running], tmp_path: Path) -> None:
    authority = trustme.CA()
    for name in ("clients-ca.pem", "ca.pem"):
        authority.cert_pem.write_to_path(str(tmp_path / name))
    server = authority.issue_cert("127.0.0.1")
    server.cert_chain_pems[0].write_to_path(str(tmp_path / "server.pem"))
    server.private_key_pem.write_to_path(str(tmp_path / "server.key"))
    client = authority.issue_cert("shop-app.example.com", common_name="shop-app")
    client.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "shop-app.pem"))
    management = '\n[management.tls]\ncertificate_file = "server.pem"\nkey_file = "server.key"\n'
    asking = 'client_auth = "requested"\nclient_ca_file = "clients-ca.pem"\n'
    account = '[management.authentication]\nenabled = true\nadmins = ["shop-app"]\n'
    node = start(NODES[2] + management + asking + account)

    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    with httpx.Client(verify=context) as guest:
        answer = guest.post(f"{node.ready['management_tls']}/groups", json={"groupName": "shop"})
        assert answer.status_code == 401
    shown = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    shown.load_cert_chain(str(tmp_path / "shop-app.pem"))
    with httpx.Client(verify=shown) as client_of_shop:
        base = node.ready["management_tls"]
        assert client_of_shop.post(f"{base}/groups", json={"groupName": "shop"}).is_success
        topic = {
            "name": "shop.orders",
            "description": "",
            "owner": {"source": "Plaintext", "id": "sales"},
            "contentType": "JSON",
            "retentionTime": {"duration": 1},
            "auth": {"enabled": True, "publishers": ["shop-app"]},
        }
        assert client_of_shop.post(f"{base}/topics", json=topic).is_success
        url = f"{node.ready['publish_tls']}/topics/shop.orders"
        # The router is told of a new topic a moment later.
        for _ in range(50):
            answer = client_of_shop.post(url, content=b"{}")
            if answer.status_code != 404:
                break
        assert answer.status_code == 201
    with httpx.Client(verify=context) as guest:
        assert guest.post(url, content=b"{}").status_code == 401


def with_certificate(folder: Path, authority: trustme.CA) -> str:
    """A certificate for the node; its serial number."""
    leaf = authority.issue_cert("127.0.0.1")
    (folder / "server.pem").write_bytes(leaf.cert_chain_pems[0].bytes())
    (folder / "server.key").write_bytes(leaf.private_key_pem.bytes())
    return f"{load_pem_x509_certificate((folder / 'server.pem').read_bytes()).serial_number:X}"


def told(node: Running, count: int) -> list[str]:
    """The next lines that the node logs at SIGHUP."""
    assert node.process.stderr is not None
    lines = (json.loads(line)["message"] for line in node.process.stderr)
    return [each for _, each in zip(range(count), filter(SIGHUP.match, lines), strict=False)]


def test_tls_alone_and_what_is_reloaded_while_clients_stay_connected(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with_users(tmp_path)
    first = with_certificate(tmp_path, authority)
    (tls,) = blocks("toml", "[frontend.tls]")
    node = start(NODES[0] + tls)
    assert not {"publish", "management"} & node.ready.keys()

    def seen(client: httpx.Client, listener: str, password: str) -> tuple[str, object]:
        """The certificate that is served, and the connection."""
        urls = {
            "publish_tls": "/status/ready",
            "management_tls": "/groups",
        }
        answer = client.get(node.ready[listener] + urls[listener], auth=("ada", password))
        assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
        stream = answer.extensions["network_stream"]
        shown = stream.get_extra_info("ssl_object").getpeercert()
        return f"{int(shown['serialNumber'], 16):X}", stream.get_extra_info("client_addr")

    listeners = ("publish_tls", "management_tls")
    stays = httpx.Limits(keepalive_expiry=None)
    with httpx.Client(http2=True, verify=context, limits=stays, timeout=60) as long:
        before = [seen(long, each, "b0ss") for each in listeners]
        assert {serial for serial, _ in before} == {first}

        second = with_certificate(tmp_path, authority)
        (tmp_path / "users.toml").write_text("[users]\n")
        file = tmp_path / "node.toml"
        file.write_text(
            file.read_text().replace("only = true", "only = true\nport = 1", 1)
            + '[log]\nlevel = "info"\n[consumers]\ninflight_max = 7\n'
        )
        node.process.send_signal(signal.SIGHUP)
        configuration, *rest = told(node, 4)
        assert "log.level is info" in configuration
        assert "consumers.inflight_max" in configuration
        assert "frontend.tls.port" not in configuration, "a variable wins over the file"
        assert [each.partition(": ")[2].partition(":")[0] for each in rest] == [
            "security.users_file",
            "frontend.tls",
            "management.tls",
        ]
        assert [each.rpartition(": ")[2] for each in rest] == ["has changed"] * 3
        assert [seen(long, each, "b0ss") for each in listeners] == before
        with httpx.Client(http2=True, verify=context, timeout=60) as new:
            assert {seen(new, each, "b0ss")[0] for each in listeners} == {second}
            refused = new.put(
                f"{node.ready['management_tls']}/groups/a", json={}, auth=("ada", "b0ss")
            )
            assert refused.status_code == 401

        (tmp_path / "server.key").write_bytes(authority.issue_cert("x").private_key_pem.bytes())
        file.write_text("[log\n")
        node.process.send_signal(signal.SIGHUP)
        configuration, users, *certificates = told(node, 4)
        assert "node.toml" in configuration
        assert users.endswith("has not changed")
        assert all("key" in each for each in certificates)
        ready = long.get(f"{node.ready['publish_tls']}/readyz")
        assert ready.status_code == 200
        assert "[!]frontend.tls: " in ready.text
        assert "[!]management.tls: " in ready.text
        metrics = long.get(f"{node.ready['publish_tls']}/status/prometheus").text
        for listener in ("frontend", "management"):
            name = f'hermes_certificate_expires_timestamp_seconds{{listener="{listener}"}} '
            assert name in metrics
        assert [seen(long, each, "b0ss") for each in listeners] == before
        with httpx.Client(http2=True, verify=context, timeout=60) as new:
            assert {seen(new, each, "b0ss")[0] for each in listeners} == {second}

    node.process.terminate()
    node.process.send_signal(signal.SIGHUP)
    assert node.process.stderr is not None
    for _ in node.process.stderr:
        node.process.send_signal(signal.SIGHUP)
    node.__exit__()
    assert node.process.returncode == 0, "it ends at SIGTERM alone"


def test_a_node_whose_users_cannot_be_read_says_so_in_one_line(
    start: Callable[..., Running],
) -> None:
    node = start(NODES[0])
    _, said = node.process.communicate(timeout=30)
    assert node.process.returncode == 1
    assert said == "hermes: security.users_file: users.toml: No such file or directory\n"
