import json

import pytest

SECRET = "hush-hush"


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    return str(file)


def test_a_provider_is_created_with_defaults_and_a_secret_from_a_file(hermes, server, secret):
    server.on("POST /oauth/providers", (201, b""))
    url = "https://id.example.com/token"
    result = hermes(
        "oauth-provider", "create", "sso", "--token-endpoint", url, "--client-id", "me",
        "--client-secret-file", secret,
    )  # fmt: skip
    assert result.stdout == "created OAuth provider sso\n"
    assert server.calls[0].json() == {
        "name": "sso",
        "tokenEndpoint": url,
        "clientId": "me",
        "clientSecret": SECRET,
        "tokenRequestInitialDelay": 100,
        "tokenRequestMaxDelay": 60_000,
        "requestTimeout": 1_000,
    }
    assert SECRET not in result.stdout + result.stderr


def test_providers_are_listed_shown_updated_and_deleted(hermes, server, secret):
    shown = {"name": "sso", "clientSecret": "******", "requestTimeout": 2_000}
    server.on("GET /oauth/providers", (200, ["sso"]))
    server.on("GET /oauth/providers/sso", (200, shown))
    server.on("PUT /oauth/providers/sso", (200, b""))
    server.on("DELETE /oauth/providers/sso", (200, b""))
    assert hermes("oauth-provider", "list").stdout.split() == ["Provider", "sso"]
    assert "******" in hermes("oauth-provider", "show", "sso").stdout
    result = hermes(
        "oauth-provider", "update", "sso", "requestTimeout=2000", "--client-secret-file", secret
    )
    assert (result.stdout, result.stderr) == ("updated OAuth provider sso\n", "")
    sent = [call.json() for call in server.calls if call.method == "PUT"]
    assert sent == [{"requestTimeout": 2_000, "clientSecret": SECRET}]
    deleted = hermes("oauth-provider", "delete", "sso", "--yes", "-o", "json")
    assert json.loads(deleted.stdout) == {"deleted": "sso"}


@pytest.mark.parametrize("content", [None, b"", b"two\nlines", b"\xff"])
def test_a_file_without_a_secret_is_refused_before_anything_is_sent(
    hermes, server, tmp_path, content
):
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    result = hermes("oauth-provider", "update", "sso", "--client-secret-file", str(file))
    assert result.exit_code == 2
    assert "--client-secret-file" in result.stderr
    assert hermes("oauth-provider", "update", "sso").exit_code == 2
    assert server.calls == []
