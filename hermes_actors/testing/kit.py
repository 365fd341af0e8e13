"""What a test does with the broker: create topics and subscriptions, publish, wait.

Waiting has two forms: `await hermes.delivered(…)` on asyncio or trio, so that a service in the
test's own loop can answer, and `hermes.wait_delivered(…)` in tests without a loop.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any, ParamSpec, TypeVar

import anyio.to_thread
import httpx

from hermes_actors.runtime.clock import SystemClock
from hermes_actors.testing.broker import Broker
from hermes_actors.testing.sink import Delivery, Sink, open_sink

# pytest leaves the frames of this module out of its reports.
__tracebackhide__ = True

_T = TypeVar("_T")
_P = ParamSpec("_P")
_POLL_S = 0.05
_PUSHES_SHOWN_MAX = 10
_CREATED = {"description": "", "owner": {"source": "Plaintext", "id": "test"}}


def _awaited(wait: Callable[_P, _T]) -> Callable[_P, Awaitable[_T]]:
    """Return the form of a waiting method that does not block the loop."""

    async def waiting(*args: _P.args, **options: _P.kwargs) -> _T:
        call = partial(wait, *args, **options)
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)

    return waiting


class Hermes:
    """A broker that is empty at the start of the test.

    Fields are those of the management API. An AssertionError says what the broker refuses, or what
    has not come within `timeout_s` and why.
    """

    def __init__(self, broker: Broker, client: httpx.Client, sink: Sink) -> None:
        self.publish_url, self.management_url = broker.publish_url, broker.management_url
        self._client, self._sink = client, sink

    def topic(self, name: str, schema: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Create or change the topic `group.topic`. `schema` is a JSON Schema, or with
        `contentType="AVRO"` an Avro schema.
        """
        known = _CREATED | {"contentType": "JSON", "retentionTime": {"duration": 1}, "name": name}
        if schema:
            fields["schema"] = json.dumps(schema)
        group = {"groupName": name.rpartition(".")[0]}
        self._apply({"groups": [group], "topics": [known | fields]})

    def subscribe(self, topic: str, name: str = "test", to: str = "", **fields: Any) -> None:
        """Create or change a subscription. Its pushes are recorded, and passed on to the URL `to`,
        or accepted without one. With `deliveryType="PULL"` nothing is pushed.
        """
        self._sink.services[topic, name] = to
        known = {"topicName": topic, "name": name}
        if fields.get("deliveryType") != "PULL":
            known["endpoint"] = f"{self._sink.url}/{topic}/{name}"
        self._apply({"subscriptions": [_CREATED | known | fields]})

    def publish(self, topic: str, body: Any, headers: Mapping[str, str] | None = None) -> str:
        """Publish bytes, or anything else as JSON; return the message's id."""
        sent: Any = {"content": body} if isinstance(body, bytes) else {"json": body}
        answer = self._ask("POST", f"{self.publish_url}/topics/{topic}", headers=headers, **sent)
        return str(answer.headers["Hermes-Message-Id"])

    def fail_next(self, topic: str, times: int = 1, status: int = 503) -> None:
        """Answer the topic's next pushes with this status; they are not passed on."""
        self._sink.failures.setdefault(topic, []).extend([status] * times)

    def deliveries(self, topic: str, subscription: str = "") -> list[Delivery]:
        """Return all pushes until now, refused ones too, to one subscription or to all."""
        pushes = list(self._sink.deliveries)
        return [p for p in pushes if p.topic == topic and subscription in ("", p.subscription)]

    def wait_delivered(
        self, topic: str, count: int = 1, subscription: str = "", timeout_s: float = 10.0
    ) -> list[Delivery]:
        """Wait until that many pushes are accepted; return all accepted ones, in their order."""

        def find() -> list[Delivery]:
            return [p for p in self.deliveries(topic, subscription) if 200 <= p.status < 300]

        return self._wait(topic, find, count, "deliveries", timeout_s)

    def wait_settled(self, topic: str, timeout_s: float = 10.0) -> list[Delivery]:
        """Wait until no message is pending: each is delivered, filtered, a dead letter, or
        acknowledged by a puller. Return the accepted pushes.
        """
        path = f"/topics/{topic}/subscriptions"
        names = self._get(path)

        def find() -> list[str]:
            return [name for name in names if self._get(f"{path}/{name}/lag")["lag"] == 0]

        self._wait(topic, find, len(names), "subscriptions without lag", timeout_s)
        return self.wait_delivered(topic, 0)

    def wait_dead_letters(
        self, topic: str, count: int = 1, timeout_s: float = 10.0
    ) -> list[dict[str, Any]]:
        """Wait until the topic has that many dead letters; return all, oldest first, with their
        `message`.
        """
        find = partial(self._dead_letters, topic)
        letters = self._wait(topic, find, count, "dead letters", timeout_s)
        path = f"/topics/{topic}/subscriptions/{{subscription}}/dead-letters/{{id}}"
        return [self._get(path.format_map(each)) for each in reversed(letters)]

    delivered = _awaited(wait_delivered)
    settled = _awaited(wait_settled)
    dead_letters = _awaited(wait_dead_letters)

    def _ask(self, method: str, url: str, **sent: Any) -> httpx.Response:
        answer = self._client.request(method, url, **sent)
        assert answer.is_success, f"{method} {answer.url}: {answer.status_code} {answer.text}"
        return answer

    def _get(self, path: str) -> Any:
        return self._ask("GET", path).json()

    def _apply(self, items: Mapping[str, Any]) -> None:
        rows = self._ask("POST", "/apply", json=items).json()
        refused = [
            f"{row['resource']}: {row['error']['message']}" for row in rows if "error" in row
        ]
        assert not refused, "\n".join(refused)

    def _clear(self) -> None:
        kinds = ("subscriptions", "topics", "groups")
        found = {k: self._ask("POST", f"/query/{k}", json={"query": {}}).json() for k in kinds}
        self._apply({"delete": found})

    def _dead_letters(self, topic: str) -> list[dict[str, Any]]:
        return list(self._get(f"/dead-letters?topicName={topic}&limit=500")["deadLetters"])

    def _wait(
        self, topic: str, find: Callable[[], list[_T]], count: int, wanted: str, timeout_s: float
    ) -> list[_T]:
        clock = SystemClock()
        end = clock.monotonic_s() + timeout_s
        while len(found := find()) < count:
            if clock.monotonic_s() > end:
                text = f"{topic}: {len(found)} of {count} {wanted} within {timeout_s:g} s"
                raise AssertionError("\n  ".join([text, *self._account(topic)]))
            with self._sink.changed:
                self._sink.changed.wait(_POLL_S)
        return found

    def _account(self, topic: str) -> Iterator[str]:
        """Say what the topic holds, and what became of it at each subscription."""
        stored = self._ask("GET", f"/topics/{topic}/messages?from=beginning&follow=false").text
        yield f"messages stored: {len(stored.splitlines())}"
        for name in self._get(f"/topics/{topic}/subscriptions"):
            path = f"/topics/{topic}/subscriptions/{name}"
            dcs = self._get(f"{path}/why")["datacenters"]
            nodes = [node for dc in dcs for node in dc.get("nodes", [])]
            states = [f"{e['state']}, {e['reason']}" for e in nodes if e["state"] != "UNKNOWN"]
            # A node's state becomes known after some seconds.
            known = "; ".join(states) or f"messages that wait: {self._get(f'{path}/lag')['lag']}"
            yield f"subscription {name}: {known}"
            answers = [
                f"  answered {each.status}: {each.body[:200].decode(errors='replace')}"
                for each in self.deliveries(topic, name)
            ]
            runs = [(text, len(list(run))) for text, run in groupby(answers)]
            for text, times in runs[-_PUSHES_SHOWN_MAX:]:
                yield text if times == 1 else f"{text} ({times} times)"
        for letter in self._dead_letters(topic)[:_PUSHES_SHOWN_MAX]:
            yield "dead letter of {subscription}: {reason}, {detail}".format_map(letter)


@contextmanager
def open_kit(broker: Broker) -> Iterator[Hermes]:
    """Lend the broker to one test, and empty it afterwards."""
    client = httpx.Client(base_url=broker.management_url, timeout=30, trust_env=False)
    with client, open_sink() as sink:
        kit = Hermes(broker, client, sink)
        yield kit
        kit._clear()
