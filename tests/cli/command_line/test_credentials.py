"""How a command shows who asks, and how users are hashed; no secret is ever printed."""

import base64
import ssl
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme

from hermes_actors.security.users import parse_users

ACCEPTED = (201, b"")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "token").write_text("aaa.bbb.ccc\n")
    (tmp_path / "password").write_text("s3cret: ü\n")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "lines").write_text("one-secret\ntwo-secret\n")
    return {each.name: str(each) for each in tmp_path.iterdir()}


BASIC = f"Basic {base64.b64encode('ada:s3cret: ü'.encode()).decode()}"


def test_nobody_is_named_by_default(hermes, server):
    server.on("GET /groups", (200, []))
    hermes("group", "list")
    assert "authorization" not in server.calls[0].headers


def test_a_token_is_shown_by_management_commands_and_publish(hermes, server, files):
    server.on("GET /groups", (200, []))
    server.on("POST /topics/a.b", ACCEPTED)
    hermes("group", "list", "--token-file", files["token"])
    hermes("publish", "a.b", "1", "--token-file", files["token"])
    shown = [call.headers["authorization"] for call in server.calls]
    assert shown == ["Bearer aaa.bbb.ccc"] * 2


def test_a_user_and_the_environment(hermes, server, files, monkeypatch):
    server.on("POST /topics", ACCEPTED)
    server.on("POST /topics/a.b", ACCEPTED)
    user = ("--user", "ada", "--password-file", files["password"])
    assert hermes("topic", "create", "shop.orders", *user).exit_code == 0
    monkeypatch.setenv("HERMES_USER", "ada")
    monkeypatch.setenv("HERMES_PASSWORD_FILE", files["password"])
    assert hermes("publish", "a.b", "1").exit_code == 0
    assert [call.headers["authorization"] for call in server.calls] == [BASIC] * 2


def test_what_one_command_was_given_is_forgotten_by_the_next(hermes, server, files):
    server.on("GET /groups", (200, []))
    hermes("group", "list", "--token-file", files["token"])
    hermes("group", "list")
    assert "authorization" not in server.calls[1].headers


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (("--token-file", "{missing}"), 1, "--token-file"),
        (("--token-file", "{empty}"), 1, "is empty or has more than one line"),
        (("--token-file", "{lines}"), 1, "is empty or has more than one line"),
        (("--user", "ada"), 2, "needs --password-file"),
        (("--user", "a:b", "--password-file", "{password}"), 2, "contain a colon"),
        (("--user", "ada", "--token-file", "{token}"), 2, "give one of them"),
    ],
)
def test_credentials_that_cannot_be_shown_send_nothing(hermes, server, files, given, code, said):
    names = {**files, "missing": "/nonexistent/token"}
    result = hermes("group", "list", *(each.format(**names) for each in given))
    assert result.exit_code == code
    assert said in result.stderr
    assert "secret" not in result.stderr
    assert server.calls == []


def test_a_401_says_how_to_say_who_one_is(hermes, server):
    server.on("POST /groups", (401, {"message": "Credentials are required here", "code": "OTHER"}))
    result = hermes("group", "create", "shop")
    assert result.exit_code == 1
    assert "Credentials are required here; authenticate with --user" in result.stderr


@contextmanager
def tls_server(context):
    """Serves over TLS by the context, which has the certificate; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def handle(self) -> None:
            # A client that trusts nobody leaves in the middle of the handshake.
            with suppress(OSError):
                super().handle()

        def do_POST(self) -> None:
            self.rfile.read(1)
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        httpd.socket = context.wrap_socket(
            httpd.socket, server_side=True, do_handshake_on_connect=False
        )
        httpd.daemon_threads = True
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        yield f"https://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


@pytest.fixture
def tls(tmp_path):
    """A server whose certificate is signed by a CA of its own: its URL, and the CA's file."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with tls_server(context) as url:
        yield url, str(tmp_path / "ca.pem")


@pytest.fixture
def mutual_tls(tmp_path):
    """A server that lets in who shows a certificate of its CA: its URL, and files by name."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    client = authority.issue_cert("ada@shop.invalid")
    pems = {
        "ca": authority.cert_pem,
        "cert": client.cert_chain_pems[0],
        "key": client.private_key_pem,
        "other": authority.issue_cert("eve@shop.invalid").private_key_pem,
    }
    files = {name: str(tmp_path / f"{name}.pem") for name in pems}
    for name, pem in pems.items():
        pem.write_to_path(files[name])
    with tls_server(context) as url:
        yield url, files


COMMANDS = (
    ("group", "list", "--management"),
    ("publish", "a.b", "1", "--retries", "0", "--publish-url"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_ca_of_ones_own_is_named_by_a_variable(hermes, tls, monkeypatch, command):
    url, ca = tls
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    untrusted = hermes(*command, url)
    assert untrusted.exit_code == 1
    assert "its certificate is not accepted (" in untrusted.stderr
    assert "name the file of the authority that signed it in --ca-file FILE" in untrusted.stderr
    assert "CERTIFICATE_VERIFY_FAILED" not in untrusted.stderr
    for variable in ("HERMES_CA_FILE", "SSL_CERT_FILE"):
        with monkeypatch.context() as patched:
            patched.setenv(variable, ca)
            assert hermes(*command, url).exit_code == 0
    assert hermes(*command, url, "--ca-file", ca).exit_code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_client_certificate_is_shown_to_management_and_to_publishing(
    hermes, mutual_tls, monkeypatch, command
):
    url, files = mutual_tls
    trusting = (*command, url, "--ca-file", files["ca"])
    without = hermes(*trusting)
    assert without.exit_code == 1
    assert "see --cert-file FILE and --key-file FILE" in without.stderr
    shown = hermes(*trusting, "--cert-file", files["cert"], "--key-file", files["key"])
    assert (shown.exit_code, shown.stderr.count("hermes:")) == (0, 0)
    monkeypatch.setenv("HERMES_CERT_FILE", files["cert"])
    monkeypatch.setenv("HERMES_KEY_FILE", files["key"])
    assert hermes(*trusting).exit_code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--key-file", "{key}"), "goes together with --cert-file"),
        (("--cert-file", "{cert}"), "holds no certificate or key in PEM form"),
        (("--cert-file", "{cert}", "--key-file", "{other}"), "the key is not the certificate's"),
        (("--cert-file", "/nonexistent"), "No such file or directory"),
        (("--ca-file", "/nonexistent"), "holds no certificates: No such file"),
    ],
)
def test_a_certificate_that_cannot_be_shown_sends_nothing(hermes, server, mutual_tls, given, said):
    result = hermes("group", "list", *(each.format(**mutual_tls[1]) for each in given))
    assert result.exit_code == 2
    assert said in result.stderr
    assert server.calls == []


@pytest.mark.parametrize("command", COMMANDS)
def test_tls_to_a_port_of_plain_http_says_so(hermes, server, command):
    result = hermes(*command, server.url.replace("http://", "https://"))
    assert result.exit_code == 1
    assert "this port speaks plain HTTP" in result.stderr
    assert "WRONG_VERSION_NUMBER" not in result.stderr


@pytest.mark.parametrize(
    ("request_", "command"), [("GET /groups", COMMANDS[0]), ("POST /topics/a.b", COMMANDS[1])]
)
def test_a_redirect_is_not_followed_and_that_is_said(hermes, server, request_, command):
    server.on(request_, (302, b""))
    result = hermes(*command, server.url)
    assert result.exit_code == 1
    assert "redirects are not followed" in result.stderr


def test_a_ca_file_that_is_none_is_one_line(hermes, server, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/ca.pem")
    result = hermes("group", "list")
    assert result.exit_code == 2
    assert "--ca-file /nonexistent/ca.pem (or HERMES_CA_FILE, SSL_CERT_FILE)" in result.stderr


def test_commands_that_ask_nobody_have_no_such_options(hermes):
    assert hermes("config", "show", "--user", "ada").exit_code == 2


def test_a_hashed_user_is_a_line_of_the_users_file(hermes, tmp_path):
    result = hermes(
        "user", "hash", "shop-app", "--role", "PUBLISHER", "--group", "a", "--group", "b",
        stdin="s3cret\n",
    )  # fmt: skip
    assert result.exit_code == 0
    assert "s3cret" not in result.output
    file = tmp_path / "users.toml"
    file.write_text("[users]\n" + result.stdout)
    account = parse_users(file.read_bytes()).account("shop-app")
    assert account is not None
    assert (account.roles, account.groups) == ({"PUBLISHER"}, {"a", "b"})
    shown = hermes("user", "check", str(file))
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[1].split() == ["shop-app", "PUBLISHER", "a,", "b", "yes"]


@pytest.mark.parametrize("role", ["publisher", "Admin"])
def test_a_known_role_in_other_letters_is_refused(hermes, role):
    result = hermes("user", "hash", "ada", "--role", role, stdin="x\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"did you mean {role.upper()}?" in result.stderr
    assert hermes("user", "hash", "ada", "--role", "auditor", stdin="x\n").exit_code == 0


def test_help_says_below_which_line_a_user_belongs(hermes):
    assert "below a line [users]" in " ".join(hermes("user", "hash", "--help").stdout.split())


def test_a_wrong_users_file_is_one_line(hermes, tmp_path):
    file = tmp_path / "users.toml"
    file.write_text('[users]\nada = { password = "my-own-password" }')
    result = hermes("user", "check", str(file))
    assert result.exit_code == 1
    assert "users.ada.password: is not an argon2 hash" in result.stderr
    assert "my-own-password" not in result.output
    assert hermes("user", "check", str(tmp_path / "none")).exit_code == 1


@pytest.mark.parametrize(("name", "stdin", "code"), [("a:b", "x\n", 2), ("ada", "\n", 1)])
def test_what_cannot_be_a_user_is_refused(hermes, name, stdin, code):
    assert hermes("user", "hash", name, stdin=stdin).exit_code == code
