"""What is asked of a provider of tokens, and what its answers mean."""

from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.senders.oauth.wire import Denied, Granted, OAuthCredentials, read_answer
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.subscription import OAuthPolicy

PROVIDER = OAuthProvider(
    name="sso",
    token_endpoint="https://id.example.com/token",
    client_id="hermes & co",
    client_secret="s3+cret=",
    token_request_initial_delay=100,
    token_request_max_delay=1_000,
    request_timeout=1_000,
)


def fields(**policy):
    form = OAuthCredentials(PROVIDER, OAuthPolicy(provider_name="sso", **policy)).form
    return parse_qs(form.decode(), strict_parsing=True, keep_blank_values=True)


def test_client_credentials_are_asked_for_with_the_clients_secret():
    asked = fields(grant_type="clientCredentials", scope="a b")
    assert asked == {
        "grant_type": ["client_credentials"],
        "scope": ["a b"],
        "client_id": ["hermes & co"],
        "client_secret": ["s3+cret="],
    }


def test_the_password_grant_names_the_user_too():
    asked = fields(grant_type="password", username="u", password="p&w")
    assert asked["grant_type"] == ["password"]
    assert (asked["username"], asked["password"]) == (["u"], ["p&w"])
    assert "scope" not in asked
    assert "username" not in fields(grant_type="clientCredentials", username="u", password="p")


@pytest.mark.parametrize(
    ("body", "lifetime_s"),
    [
        (b'{"access_token":"abc"}', None),
        (b'{"access_token":"abc","expires_in":3600}', 3_600.0),
        (b'{"access_token":"abc","expires_in":"3600"}', 3_600.0),
        (b'{"access_token":"abc","expires_in":1.5}', 1.5),
        (b'{"access_token":"abc","expires_in":null}', None),
        (b'{"access_token":"abc","expires_in":"soon"}', None),
        (b'{"access_token":"abc","expires_in":true}', None),
        (b'{"access_token":"abc","expires_in":1e300}', 1e9),
        (b'{"access_token":"abc","expires_in":1' + b"0" * 400 + b"}", 1e9),
    ],
)
def test_a_token_and_its_life_are_read(body, lifetime_s):
    assert read_answer(200, body) == Granted("abc", lifetime_s)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>", "without an access_token"),
        (200, b"[]", "without an access_token"),
        (200, b'{"access_token":""}', "without an access_token"),
        (200, b'{"access_token":7}', "without an access_token"),
        (200, b'{"access_token":"a b"}', "cannot stand"),
        (200, b'{"access_token":"a\\r\\nX: 1"}', "cannot stand"),
        (200, b'{"access_token":"abc","expires_in":0}', "has run out"),
        (201, b'{"access_token":"abc"}', "HTTP 201"),
        (302, b"", "HTTP 302"),
        (400, b'{"error":"invalid_client"}', "HTTP 400: invalid_client"),
        (401, b'{"error":["hush"]}', "HTTP 401"),
        (500, b"hush", "HTTP 500"),
    ],
)
def test_anything_else_is_no_token_and_says_why(status, body, words):
    answer = read_answer(status, body)
    assert isinstance(answer, Denied)
    assert words in answer.problem
    assert "hush" not in answer.problem


@given(st.integers(100, 599), st.binary(max_size=200))
def test_no_answer_is_too_strange(status, body):
    assert isinstance(read_answer(status, body), Granted | Denied)


def test_equal_credentials_are_equal_and_a_password_makes_a_difference():
    def made(password):
        policy = OAuthPolicy(
            grant_type="password", provider_name="sso", username="u", password=password
        )
        return OAuthCredentials(PROVIDER, policy)

    assert made("a") == made("a")
    assert hash(made("a")) == hash(made("a"))
    assert made("a") != made("b")
    assert "s3+cret" not in repr(made("hush"))
    assert "hush" not in repr(made("hush"))
