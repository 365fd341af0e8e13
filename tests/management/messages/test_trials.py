"""POST …/test: who may push a message, and what is said where nothing can."""

import base64

import pytest

from hermes_actors.errors import Refused, Unavailable
from hermes_actors.model.push_trial import PushTrial, TrialAnswer, TrialPush, TrialRequest

PATH = "/topics/shop.orders/subscriptions/billing/test"
PUSH = TrialPush(
    TrialRequest("POST", "http://a.test:80/", (("A", "1"),), "{}", 2),
    "HTTP 200",
    7,
    TrialAnswer(200, (("B", "2"),), "ok", 2),
)
DONE = PushTrial(True, "HTTP 200", 9, (PUSH,))


class Endpoint:
    """Stands where the node's senders do, and remembers what it was asked for."""

    def __init__(self):
        self.bodies = []
        self.error = None

    async def __call__(self, live, topic, body):
        assert (str(live.name), str(topic.name)) == ("shop.orders$billing", "shop.orders")
        self.bodies.append(body)
        if self.error is not None:
            raise self.error
        return DONE


@pytest.fixture
async def endpoint(api):
    endpoint = Endpoint()
    api.administered_with(try_push=endpoint)
    await api.with_topic()
    await api.with_subscription()
    return endpoint


async def test_the_answer_says_from_where_was_pushed_what_and_what_came_back(api, endpoint):
    answer = await api.post(PATH, {})
    assert answer.status_code == 200
    assert answer.json() == {
        "datacenter": "dc1",
        "node": api.config.node,
        "isDelivered": True,
        "outcome": "HTTP 200",
        "tookMs": 9,
        "pushes": [
            {
                "request": {
                    "method": "POST",
                    "url": "http://a.test:80/",
                    "headers": [["A", "1"]],
                    "body": "{}",
                    "bodyBytes": 2,
                },
                "outcome": "HTTP 200",
                "tookMs": 7,
                "answer": {"status": 200, "headers": [["B", "2"]], "body": "ok", "bodyBytes": 2},
            }
        ],
    }


async def test_the_message_is_given_in_base64_or_is_made_up(api, endpoint):
    assert (await api.client.post(PATH)).status_code == 200
    message = base64.b64encode(b'{"id":1}').decode()
    assert (await api.post(PATH, {"message": message})).status_code == 200
    assert endpoint.bodies == [None, b'{"id":1}']
    answer = await api.post(PATH, {"message": "%"})
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    assert api.message(answer).startswith("PushTest.message must be Base64")


@pytest.mark.parametrize(
    ("error", "status"), [(Refused("endpoint: no"), 400), (Unavailable("no sender"), 503)]
)
async def test_why_nothing_could_be_pushed_is_told_and_the_next_may_try(
    api, endpoint, error, status
):
    endpoint.error = error
    answer = await api.post(PATH, {})
    assert (answer.status_code, api.message(answer)) == (status, error.message)
    endpoint.error = None
    assert (await api.post(PATH, {})).status_code == 200
