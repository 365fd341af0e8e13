import base64
import hashlib
import hmac

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import OKPAlgorithm

from hermes_actors.consumer.recipients.signing import Signer, signer_of
from hermes_actors.consumer.senders.sender import parse_lines
from hermes_actors.errors import Refused
from hermes_actors.model.signing_secrets import (
    BadSecret,
    hmac_secret,
    parse_secret,
    signing_violations,
)
from hermes_actors.model.subscription import SigningPolicy

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
# RFC 8032, section 7.1, test 1.
SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")


def signed(secrets, request_id="msg_1", timestamp_s=1_614_265_330, body=b"{}"):
    lines = Signer([parse_secret(each) for each in secrets]).sign(request_id, timestamp_s, body)
    return {name.decode(): value.decode() for name, value in parse_lines(lines)}


def test_the_vector_of_standard_webhooks_comes_out() -> None:
    headers = signed(
        [SECRET], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}'
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@given(
    keys=st.lists(st.binary(min_size=24, max_size=64), min_size=1, max_size=3),
    request_id=st.text(max_size=40),
    timestamp_s=st.integers(0, 2**40),
    body=st.binary(max_size=200),
)
def test_each_secret_signs_what_the_headers_and_the_body_say(keys, request_id, timestamp_s, body):
    lines = Signer([parse_secret(hmac_secret(key)) for key in keys]).sign(
        request_id, timestamp_s, body
    )
    headers = dict(parse_lines(lines))
    content = b"%b.%b.%b" % (headers[b"webhook-id"], headers[b"webhook-timestamp"], body)
    expected = [hmac.new(key, content, hashlib.sha256).digest() for key in keys]
    listed = headers[b"webhook-signature"].split(b" ")
    assert [each[:3] for each in listed] == [b"v1,"] * len(keys)
    assert [base64.b64decode(each[3:]) for each in listed] == expected
    assert lines.count(b"\r\n") == 3


@pytest.mark.parametrize("key", [SEED, SEED + PUBLIC], ids=["seed", "seed-and-public"])
def test_an_ed25519_key_signs_for_whoever_has_the_public_one(key) -> None:
    headers = signed(["whsk_" + base64.b64encode(key).decode()], body=b"x")
    kind, _, signature = headers["webhook-signature"].partition(",")
    public = OKPAlgorithm.from_jwk(
        {"kty": "OKP", "crv": "Ed25519", "x": base64.urlsafe_b64encode(PUBLIC).decode()}
    )
    assert kind == "v1a"
    assert OKPAlgorithm().verify(b"msg_1.1614265330.x", public, base64.b64decode(signature))


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ("open-sesame", "must begin with"),
        ("whsec_open-sesame!", "is not Base64"),
        ("whsec_ä", "is not Base64"),
        ("whsec_" + base64.b64encode(b"x" * 23).decode(), "holds 23 bytes; 24 to 64"),
        ("whsec_" + base64.b64encode(b"x" * 65).decode(), "holds 65 bytes"),
        ("whsk_" + base64.b64encode(b"x" * 31).decode(), "holds 31 bytes"),
    ],
)
def test_what_is_no_secret_is_refused_and_not_repeated(secret, why) -> None:
    with pytest.raises(BadSecret, match=why) as refusal:
        parse_secret(secret)
    assert secret[6:12] not in str(refusal.value)
    (violation,) = signing_violations("Subscription.signing.secrets", [secret])
    assert violation.startswith("Subscription.signing.secrets[0] ")
    assert secret[6:12] not in violation


def test_a_policy_has_one_to_five_secrets_each_once() -> None:
    assert list(signing_violations("s", [SECRET])) == []
    assert "between 1 and 5" in next(signing_violations("s", []))
    assert list(signing_violations("s", [SECRET, SECRET])) == ["s[1] appears twice"]
    assert "between 1 and 5" in next(
        signing_violations("s", [hmac_secret(bytes([each]) * 24) for each in range(6)])
    )


async def test_a_stored_policy_that_cannot_sign_is_refused_by_place(world) -> None:
    subscription = msgspec.structs.replace(
        world.live().subscription, signing=SigningPolicy([SECRET, "whsec_x"])
    )
    with pytest.raises(Refused, match=r"signing.secrets\[1\]"):
        signer_of(subscription)


async def test_who_has_no_secret_is_not_signed(world) -> None:
    assert signer_of(world.live().subscription) is None
    assert "k" * 24 not in repr(parse_secret(hmac_secret(b"k" * 24)))
