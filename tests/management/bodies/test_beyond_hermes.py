"""What subscriptions offer beyond Hermes: shown only where it is used, checked like the rest."""

import pytest

from hermes_actors.errors import Refused
from hermes_actors.management.bodies.constraints import require_valid_subscription
from hermes_actors.management.bodies.decoding import decode_subscription
from hermes_actors.management.bodies.views import subscription_view
from hermes_actors.model.redaction import MASK
from hermes_actors.model.subscription import SubscriptionState
from tests.management.plain_bodies import SUBSCRIPTION

SECRET = "whsec_" + "A" * 32


def view(**fields):
    return subscription_view(
        decode_subscription({**SUBSCRIPTION, **fields}), SubscriptionState.ACTIVE
    )


@pytest.mark.parametrize("delivery", ["SERIAL", "BATCH"])
def test_a_subscription_that_uses_nothing_beyond_hermes_is_shown_as_hermes_shows_it(delivery):
    shown = view(deliveryType=delivery)
    beyond = {"deadLettersEnabled", "signing", "cloudEventsEnabled", "tombstones"}
    assert not beyond & shown.keys()
    policy = {"ordered", "ttlFrom", "attemptsMax", "retryOn", "discardOn", "body"}
    assert not policy & shown["subscriptionPolicy"].keys()


def test_what_is_used_beyond_hermes_is_shown_and_comes_back_as_it_was():
    policy = {"ordered": True, "retryOn": [409], "attemptsMax": 7, "ttlFrom": "PUBLICATION"}
    shown = view(subscriptionPolicy=policy, deadLettersEnabled=False, tombstones="skip")
    assert policy.items() <= shown["subscriptionPolicy"].items()
    assert (shown["deadLettersEnabled"], shown["tombstones"]) == (False, "skip")
    again = decode_subscription(shown)
    assert again.subscription_policy.retry_on == [409]
    assert again.subscription_policy.ordered is True


def test_the_secrets_that_sign_are_never_shown():
    shown = view(signing={"secrets": [SECRET, SECRET]})
    assert shown["signing"] == {"secrets": [MASK] * 2}
    assert SECRET not in repr(
        decode_subscription({**SUBSCRIPTION, "signing": {"secrets": [SECRET]}})
    )


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        ({"attemptsMax": 0}, "attemptsMax must be greater than or equal to 1"),
        ({"retryOn": [99]}, r"retryOn\[0\] must be an HTTP status from 300 to 599"),
        ({"discardOn": [200]}, r"discardOn\[0\] must be an HTTP status from 300 to 599"),
        ({"retryOn": [409], "discardOn": [409]}, "discardOn must not contain 409"),
    ],
)
def test_attempts_that_make_no_sense_are_refused_by_name(policy, complaint):
    subscription = decode_subscription({**SUBSCRIPTION, "subscriptionPolicy": policy})
    with pytest.raises(Refused, match=complaint):
        require_valid_subscription(subscription)
