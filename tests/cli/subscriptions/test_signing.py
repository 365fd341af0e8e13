"""`hermes subscription rotate-secret|retire-secrets`."""

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
