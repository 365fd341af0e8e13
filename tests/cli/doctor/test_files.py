"""`hermes config check` looks at what a configuration names, and says which field is wrong."""

import pytest
import trustme


@pytest.fixture
def pems(tmp_path):
    authority = trustme.CA()
    ours, others = (authority.issue_cert(name) for name in ("a.test", "b.test"))
    files = {
        "ca": authority.cert_pem,
        "cert": ours.cert_chain_pems[0],
        "key": ours.private_key_pem,
        "other": others.private_key_pem,
    }
    for name, pem in files.items():
        pem.write_to_path(str(tmp_path / f"{name}.pem"))
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello")
    return tmp_path


def check(hermes, folder, text, *more):
    (folder / "node.toml").write_text(text.replace("@", f"{folder}/"))
    return hermes("config", "check", str(folder / "node.toml"), *more)


TLS = "[frontend.tls]\ncertificate_file = '@cert.pem'\n"
SASL = (
    "[kafka.clusters.dc1]\nbootstrap_servers = ['a.test:1']\nsecurity_protocol = 'SASL_PLAINTEXT'\n"
    "sasl_username = 'u'\nsasl_password_file = '@none'\n"
)
JWT = "[security.jwt]\nissuer = 'i'\naudiences = ['a']\njwks_file = '@text'\n"


@pytest.mark.parametrize(
    ("text", "field", "why"),
    [
        (TLS + "key_file = '@none.pem'", "frontend.tls.key_file", "No such file"),
        (TLS + "key_file = '@other.pem'", "frontend.tls.certificate_file", "the key is not the"),
        (TLS + "key_file = '@text'", "frontend.tls.certificate_file", "in PEM form"),
        (TLS + "key_file = '@'", "frontend.tls.key_file", "Is a directory"),
        ("[consumers.tls]\nca_file = '@text'", "consumers.tls.ca_file", "in PEM form"),
        ("[consumers.tls]\nca_file = '@empty'", "consumers.tls.ca_file", "is empty"),
        ("[security]\nusers_file = '@text'", "security.users_file", "TOML"),
        (JWT, "security.jwt.jwks_file", ""),
        (SASL, "kafka.clusters.dc1.sasl_password_file", "No such file"),
        ("[spool]\ndirectory = '@text/spool'", "spool.directory", "is not a folder"),
        ("[log]\ndirectory = '@text'", "log.directory", "is not a folder"),
    ],
)
def test_what_is_not_there_or_not_right_is_told_by_its_field(hermes, pems, text, field, why):
    result = check(hermes, pems, text)
    assert result.exit_code == 1
    told = [line for line in result.stderr.splitlines() if why in line]
    assert any(line.startswith(f"hermes: {field}: {pems}") for line in told)
    assert "_ssl.c" not in result.stderr
    assert check(hermes, pems, text, "--no-files").stdout == "ok\n"


def test_what_is_there_and_right_is_ok(hermes, pems):
    text = TLS + "key_file = '@key.pem'\n[consumers.tls]\nca_file = '@ca.pem'\n"
    text += "[spool]\ndirectory = '@new/spool'\n[log]\ndirectory = '@new/log'"
    result = check(hermes, pems, text)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "ok\n", "")


def test_all_that_is_wrong_is_told_at_once(hermes, pems):
    text = "[consumers.tls]\nca_file = '@none'\n[security]\nusers_file = '@none'"
    assert len(check(hermes, pems, text).stderr.splitlines()) == 2


@pytest.mark.parametrize("section", ["frontend", "management"])
@pytest.mark.parametrize(
    ("host", "more", "warns"),
    [
        ("0.0.0.0", "", True),
        ("hermes.test", "", True),
        ("127.0.0.1", "", False),
        ("::1", "", False),
        ("0.0.0.0", "only = true", False),
    ],
)
def test_a_plain_port_that_others_reach_is_a_warning_where_accounts_could_come_by_tls(
    hermes, tmp_path, section, host, more, warns
):
    text = (
        f"[{section}]\nhost = '{host}'\nauthentication.enabled = true\n"
        f"[{section}.tls]\ncertificate_file = 'c'\nkey_file = 'k'\n{more}\n"
        "[security]\nusers_file = 'u'\n"
    )
    result = check(hermes, tmp_path, text, "--no-files")
    assert (result.exit_code, result.stdout) == (0, "ok\n")
    assert result.stderr.startswith(f"hermes: warning: {section}.port: ") is warns
    others = ("authentication.enabled = true\n", f"certificate_file = 'c'\nkey_file = 'k'\n{more}")
    for each in others:
        assert check(hermes, tmp_path, text.replace(each, ""), "--no-files").stderr == ""
