"""`hermes subscription rotate-secret|retire-secrets`, and secrets in files."""

import json

from hermes_actors.model.redaction import MASK
from hermes_actors.model.signing_secrets import signing_violations

PATH = "/topics/shop.orders/subscriptions/billing"


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
