"""Signing secrets over HTTP: checked, masked, kept and rotated."""

import pytest

from hermes_actors.model.signing_secrets import hmac_secret, parse_secret

PATH = "/topics/shop.orders/subscriptions/billing"
A, B, C = (hmac_secret(bytes([each]) * 32) for each in (1, 2, 3))
MASK = "******"


def stored(api):
    signing = api.metadata.catalog.subscriptions["shop.orders$billing"].subscription.signing
    return None if signing is None else signing.secrets


async def signing(api, *secrets):
    await api.with_topic()
    await api.with_subscription(signing={"secrets": list(secrets)})


async def test_a_secret_is_stored_and_never_shown(api) -> None:
    await signing(api, A, B)
    answer = await api.get(PATH)
    assert answer.json()["signing"] == {"secrets": [MASK, MASK]}
    assert stored(api) == [A, B]


@pytest.mark.parametrize(
    ("secrets", "why"),
    [
        (["open-sesame"], "secrets[0] must begin with"),
        ([A, "whsec_c2hvcnQtc2VzYW1l"], "secrets[1] holds 12 bytes"),
        ([], "between 1 and 5"),
        ([A, A], "secrets[1] appears twice"),
        ([MASK], "give the secret"),
    ],
)
async def test_what_cannot_sign_is_refused_and_not_repeated(api, secrets, why) -> None:
    await api.with_topic()
    body = api.subscription(signing={"secrets": secrets})
    answer = await api.post("/topics/shop.orders/subscriptions", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
    assert why in api.message(answer)
    assert "sesame" not in answer.text
    assert "c2VzYW1l" not in answer.text


@pytest.mark.parametrize(
    ("sent", "kept"),
    [([MASK, MASK], [A, B]), ([MASK], [A]), ([C, MASK], [C, A]), ([C], [C])],
)
async def test_a_mask_sent_back_keeps_the_secret_of_its_turn(api, sent, kept) -> None:
    await signing(api, A, B)
    assert (await api.put(PATH, {"signing": {"secrets": sent}})).status_code == 200
    assert stored(api) == kept


async def test_what_is_shown_can_be_put_back_and_null_ends_the_signing(api) -> None:
    await signing(api, A)
    assert (await api.put(PATH, (await api.get(PATH)).json())).status_code == 200
    assert stored(api) == [A]
    assert (await api.put(PATH, {"signing": None})).status_code == 200
    assert stored(api) is None
    assert "signing" not in (await api.get(PATH)).json()


async def test_a_rotation_puts_a_new_secret_before_the_others_and_shows_it_once(api) -> None:
    await signing(api, A)
    answer = await api.post(f"{PATH}/signing/rotate", {})
    assert answer.status_code == 200, answer.text
    new = answer.json()["secret"]
    assert len(parse_secret(new).key) == 32
    assert answer.json()["olderSecrets"] == 1
    assert stored(api) == [new, A]
    assert new not in (await api.get(PATH)).text
    again = (await api.post(f"{PATH}/signing/rotate", {})).json()["secret"]
    assert stored(api) == [again, new, A]
    assert (await api.post(f"{PATH}/signing/retire", {})).status_code == 200
    assert stored(api) == [again]


async def test_a_rotation_takes_a_secret_of_the_callers_and_turns_signing_on(api) -> None:
    await api.with_topic()
    await api.with_subscription()
    answer = await api.post(f"{PATH}/signing/rotate", {"secret": B})
    assert answer.json() == {"olderSecrets": 0}
    assert stored(api) == [B]
    for wrong in ("sesame", 7):
        answer = await api.post(f"{PATH}/signing/rotate", {"secret": wrong})
        assert answer.status_code == 400
        assert "sesame" not in answer.text
    assert stored(api) == [B]


async def test_each_password_of_a_list_of_addresses_is_masked_and_kept(api) -> None:
    await api.with_topic()
    endpoint = "http://u:one@a:1/x;https://v:two@b/y;http://c/z"
    await api.with_subscription(endpoint=endpoint, mode="BROADCAST")
    shown = (await api.get(PATH)).json()["endpoint"]
    assert shown == "http://u:*****@a:1/x;https://v:*****@b/y;http://c/z"
    assert (await api.put(PATH, {"endpoint": shown})).status_code == 200
    live = api.metadata.catalog.subscriptions["shop.orders$billing"]
    assert live.subscription.endpoint == endpoint
    moved = "https://v:*****@b/new;http://d/"
    assert (await api.put(PATH, {"endpoint": moved})).status_code == 200
    live = api.metadata.catalog.subscriptions["shop.orders$billing"]
    assert live.subscription.endpoint == "https://v:two@b/new;http://d/"
    for elsewhere in ("http://a:1/;http://u:*****@b/", "https://v:*****@d/"):
        answer = await api.put(PATH, {"endpoint": elsewhere})
        assert answer.status_code == 400
        assert "two" not in answer.text


@pytest.mark.parametrize(
    "endpoint", ["http://a/;http://b:0/", "http://a/;ftp://b/", "http://a/;http://b_c/"]
)
async def test_each_address_of_a_list_is_checked(api, endpoint) -> None:
    await api.with_topic()
    body = api.subscription(endpoint=endpoint, mode="BROADCAST")
    assert (await api.post("/topics/shop.orders/subscriptions", body)).status_code == 400
