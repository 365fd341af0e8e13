"""`hermes subscription rotate-secret|retire-secrets`, and secrets in files."""

import json

from hermes_actors.model.redaction import MASK
from hermes_actors.model.signing_secrets import signing_violations

PATH = "/topics/shop.orders/subscriptions/billing"
NAMES = ("shop.orders", "billing")


def test_a_rotation_prints_the_new_secret_and_what_is_left_to_do(hermes, server):
    server.on(f"POST {PATH}/signing/rotate", (200, {"secret": "whsec_bmV3", "olderSecrets": 1}))
    result = hermes("subscription", "rotate-secret", *NAMES)
    assert result.exit_code == 0
    assert server.calls[0].json() == {}
    assert result.stdout.splitlines() == [
        "whsec_bmV3",
        "signing with 1 older too, until hermes subscription retire-secrets",
    ]


def test_a_first_secret_is_printed_alone_and_as_json_whole(hermes, server):
    answer = {"secret": "whsec_bmV3", "olderSecrets": 0}
    server.on(f"POST {PATH}/signing/rotate", (200, answer), (200, answer))
    assert hermes("subscription", "rotate-secret", *NAMES).stdout == "whsec_bmV3\n"
    shown = hermes("subscription", "rotate-secret", *NAMES, "-o", "json").stdout
    assert '"olderSecrets"' in shown


def test_retiring_says_what_is_left(hermes, server):
    server.on(f"POST {PATH}/signing/retire", (200, b""))
    result = hermes("subscription", "retire-secrets", *NAMES)
    assert result.exit_code == 0
    assert result.stdout.strip().endswith("signs with its newest secret only")


def test_a_signed_subscription_that_was_shown_can_be_given_back_and_signs_anew(
    hermes, server, tmp_path
):
    file = tmp_path / "shown.json"
    shown = {"name": "billing", "endpoint": "http://a.test/", "signing": {"secrets": [MASK, MASK]}}
    file.write_text(json.dumps(shown))
    server.on("POST /topics/shop.orders/subscriptions", (201, b""))
    server.on(f"GET {PATH}", (200, shown))
    result = hermes("subscription", "create", "shop.orders", "--from-file", str(file))
    assert result.exit_code == 0
    (secret,) = server.calls[-2].json()["signing"]["secrets"]
    assert not list(signing_violations("signing", [secret]))
    assert result.stderr.count(secret) == 1
    assert MASK not in server.calls[-2].body.decode()


def test_secrets_that_are_given_stay_as_they_are(hermes, server, tmp_path):
    file = tmp_path / "given.json"
    given = {"name": "billing", "endpoint": "http://a.test/", "signing": {"secrets": ["whsec_x"]}}
    file.write_text(json.dumps(given))
    server.on("POST /topics/shop.orders/subscriptions", (201, b""))
    server.on(f"GET {PATH}", (200, given))
    result = hermes("subscription", "create", "shop.orders", "--from-file", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    assert server.calls[0].json()["signing"] == {"secrets": ["whsec_x"]}
