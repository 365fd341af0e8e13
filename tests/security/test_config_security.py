"""What the configuration refuses: an authentication nobody could pass, or that proves nothing."""

import pytest

from hermes_actors import config as configuration
from hermes_actors.config import ConfigError

JWT = """
[security.jwt]
jwks_file = "jwks.json"
issuer = "https://id.example.com"
audiences = ["hermes"]
"""
NOBODY = """
[security]
users_file = "users.toml"
[management.authentication]
enabled = true
admin_role = ""
"""
SUBSCRIBERS = """
[management]
subscribers_with_access_to_any_topic = ["Plaintext:crawler http https", "Plaintext:other ftp"]
"""
TLS = 'certificate_file = "c.pem"\nkey_file = "k.pem"\n'
MANAGEMENTS_CERTIFICATES_ONLY = f"""
[frontend.authentication]
enabled = true
[management.tls]
{TLS}
client_auth = "required"
client_ca_file = "ca.pem"
[security.certificates]
enabled = true
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[frontend.authentication]\nenabled = true", "frontend.authentication.enabled: nobody"),
        ("[management.authentication]\nenabled = true", "management.authentication.enabled: "),
        (
            NOBODY,
            "management.authentication.admins: is empty",
        ),
        ("[security]\nrealm = 'a\"b'", "security.realm: "),
        ('[security]\nrealm = "zürich"', "security.realm: "),
        (NOBODY + 'admins = [""]', "management.authentication.admins: is empty"),
        (MANAGEMENTS_CERTIFICATES_ONLY, "frontend.authentication.enabled: nobody"),
        ('[security]\nplugins = ["acme"]', "security.plugins: 'acme' is not module:function"),
        (JWT.replace("hermes", ""), "security.jwt.audiences: is empty"),
        (JWT, None),
        (JWT.replace('["hermes"]', "[]"), "security.jwt.audiences: is empty"),
        (JWT.replace("https://id.example.com", ""), "security.jwt.issuer: is empty"),
        (
            JWT + 'jwks_url = "https://id.example.com"',
            "security.jwt.jwks_url: cannot be combined with",
        ),
        (JWT + 'algorithms = ["none"]', "security.jwt.algorithms: 'none' is not one of"),
        (JWT + 'algorithms = ["RS256", "HS256"]', "security.jwt.algorithms: mixes"),
        (JWT + 'algorithms = ["HS256"]', None),
        (JWT + "algorithms = []", "security.jwt.algorithms: is empty"),
        (JWT.replace("jwks_file", "jwks_url"), "is not a URL"),
        (JWT.replace('jwks_file = "jwks.json"', 'jwks_url = "https://[x/"'), "is not a URL"),
        (JWT.replace('jwks_file = "jwks.json"', 'jwks_url = "https://h:99999/"'), "is not a URL"),
        (
            JWT.replace('jwks_file = "jwks.json"', 'jwks_url = "http://id.example.com/jwks"'),
            "security.jwt.jwks_url: with http",
        ),
        (JWT.replace('jwks_file = "jwks.json"', 'jwks_url = "http://127.0.0.1:9/jwks"'), None),
        ('[frontend.tls]\nclient_auth = "required"', "frontend.tls.client_auth: required needs"),
        (
            f'[frontend.tls]\n{TLS}client_auth = "required"',
            "frontend.tls.client_ca_file: goes together",
        ),
        (f'[management.tls]\n{TLS}client_ca_file = "ca.pem"', "management.tls.client_ca_file: "),
        ('[management.tls]\nkey_file = "k.pem"', "management.tls.certificate_file: goes together"),
        ("[frontend.tls]\nonly = true", "frontend.tls.only: "),
        ("[management.tls]\nonly = true", "management.tls.only: "),
        ("[security.certificates]\nenabled = true", "security.certificates.enabled: no listener"),
        (
            '[management]\nsubscribers_with_access_to_any_topic = ["crawler"]',
            "management.subscribers_with_access_to_any_topic: 'crawler' is not",
        ),
        (
            SUBSCRIBERS,
            None,
        ),
        ("[management]\nowner_sources = []", "management.owner_sources: is empty"),
        (
            '[management]\nowner_sources = ["Teams"]',
            "management.authentication.owner_sources: 'Plaintext' is not among",
        ),
    ],
)
def test_a_relation_that_does_not_hold_is_named(text, said, tmp_path):
    file = tmp_path / "node.toml"
    file.write_text(text)
    if said is None:
        configuration.load(file, {})
    else:
        with pytest.raises(ConfigError) as refused:
            configuration.load(file, {})
        assert said in str(refused.value)


def test_the_command_lines_own_variables_are_passed_over():
    variables = {
        "HERMES_USER": "ada",
        "HERMES_PASSWORD_FILE": "p",
        "HERMES_TOKEN_FILE": "t",
        "HERMES_SECURITY_JWT_LEEWAY_MS": "5",
    }
    assert configuration.load(None, variables).security.jwt.leeway_ms == 5
