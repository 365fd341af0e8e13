"""The webhook for changes: posts each to a URL, in order and at least once, signed by Standard
Webhooks.
"""

import logging
from collections.abc import Callable

import msgspec
import trio

from hermes_actors.actors.restart import TENANT
from hermes_actors.actors.supervisor import Supervisor, run_until
from hermes_actors.config import Config
from hermes_actors.consumer.recipients.endpoint import Unresolved, parse_endpoint
from hermes_actors.consumer.recipients.signing import Signer
from hermes_actors.consumer.senders.oauth.request import pushed
from hermes_actors.consumer.senders.sender import Push, PushRoute, Sender
from hermes_actors.errors import Refused, StartupError
from hermes_actors.log.base import Commit, LogUnavailable
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.past import Past
from hermes_actors.metadata.registry import Metadata
from hermes_actors.metadata.resources import as_json
from hermes_actors.metadata.trail import LAST_INDEX, Entry, Place
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.model.signing_secrets import BadSecret, parse_secret
from hermes_actors.model.subscription import Subscription
from hermes_actors.model.topic import Owner
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.telemetry.metrics import Metrics

GROUP = "_hermes.webhook"
"""The consumer group in which the webhook's position in the metadata log is committed."""

REQUEST_TIMEOUT_MS = 10_000
_AT_ONCE = 100
# Kafka forgets a commit that was not repeated for days.
_COMMIT_INTERVAL_S = 3_600.0
_NAME = SubscriptionName(TopicName("_hermes", "changes"), "webhook")
_LINES = b"User-Agent: hermes_actors\r\nContent-Type: application/json\r\n"
_logger = logging.getLogger(__name__)


class Webhook:
    """Posts the changes of a datacentre's metadata. `trouble` says why it cannot now."""

    def __init__(
        self,
        metadata: Metadata,
        sender: Sender,
        route: PushRoute,
        lines: bytes,
        signer: Signer,
        backoff: Backoff,
    ) -> None:
        self.trouble = ""
        self._metadata = metadata
        self._sender = sender
        self._route = route
        self._lines = lines
        self._signer = signer
        self._backoff = backoff

    async def run(self) -> None:
        """Post the changes after the committed position; at first, those from now on."""
        await self._metadata.wait_own()
        while True:
            trouble = ""
            try:
                await self._post_all()
            except LogUnavailable as error:
                trouble = error.message
            await self._pause(trouble)

    async def _post_all(self) -> None:
        metadata, past = self._metadata, Past(self._metadata)
        place = await self._committed()
        while True:
            if place < (dropped := metadata.trail.dropped):
                entries = [each for each in await past.next(dropped[0] + 1) if each.place > place]
            else:
                past = Past(metadata)
                with trio.move_on_after(_COMMIT_INTERVAL_S):
                    await metadata.wait_noted(place)
                entries = metadata.trail.after(place, _AT_ONCE)
            for entry in entries:
                await self._post(entry)
                place = entry.place
                await self._commit(place)
            if not entries:
                await self._commit(place)

    async def _committed(self) -> Place:
        metadata, last = self._metadata, self._metadata.trail.last
        commit = (await metadata.log.committed(GROUP, metadata.topic)).get(0)
        if commit is None:
            await self._commit(last)
            return last
        index = commit.metadata
        place = commit.position - 1, int(index) if index.isdecimal() else LAST_INDEX
        # A log that lost its end holds fewer.
        return min(place, last)

    async def _commit(self, place: Place) -> None:
        commit = Commit(place[0] + 1, str(place[1]))
        await self._metadata.log.commit(GROUP, self._metadata.topic, {0: commit})

    async def _post(self, entry: Entry) -> None:
        change = as_json(entry, self._metadata.dc)
        body = msgspec.json.encode(change)
        while True:
            now_s = self._metadata.clock.now_ms() // 1_000
            lines = self._lines + self._signer.sign(change["id"], now_s, body)
            outcome = await pushed(self._sender, Push(self._route, lines, body, REQUEST_TIMEOUT_MS))
            if outcome.is_success:
                self._backoff.reset()
                self.trouble = ""
                return
            await self._pause(f"{outcome.reason()}; changes from {change['id']} on are waiting")

    async def _pause(self, trouble: str) -> None:
        if not self.trouble:
            _logger.warning("management.webhook: %s", trouble)
        self.trouble = trouble
        await trio.sleep(self._backoff.next_s())


async def start_webhook(
    config: Config,
    environment: NodeEnvironment,
    metadata: Metadata,
    control: Supervisor,
    duties: dict[str, Callable[[], str]],
) -> None:
    """Start the webhook if it is configured, as one of the node's duties. Raises StartupError."""
    webhook = config.management.webhook
    if not webhook.url:
        return
    try:
        endpoint = parse_endpoint(webhook.url, str(_NAME))
        route = endpoint.resolve(b"{}")
        secret = await trio.Path(webhook.secret_file).read_text("ascii")
        signer = Signer([parse_secret(secret.strip())])
    except (Refused, Unresolved, OSError, BadSecret, UnicodeDecodeError) as error:
        raise StartupError(f"management.webhook cannot be used: {error}") from error
    lines = _LINES
    if endpoint.authorization:
        lines += f"Authorization: {endpoint.authorization}\r\n".encode("ascii")
    # As for a subscription to this endpoint: the same guard, proxy and certificates.
    live = LiveSubscription(
        _NAME,
        Subscription(
            topic_name=str(_NAME.topic),
            name=_NAME.name,
            endpoint=webhook.url,
            description="",
            owner=Owner("", ""),
        ),
        0,
        0,
        0,
    )

    async def run(stop: trio.Event) -> None:
        metrics = Metrics("hermes_webhook", environment.clock.monotonic_s)
        backoff = Backoff(environment.split_rng(), 1.0, 60.0)
        async with environment.open_senders(lambda _: None, metrics) as sender_of:
            posting = Webhook(metadata, sender_of(live), route, lines, signer, backoff)
            posting.trouble = duties["webhook"]()
            duties["webhook"] = lambda: posting.trouble
            try:
                await run_until(stop, posting.run)
            finally:
                posting.trouble = posting.trouble or "it crashed; the node's log says why"

    duties["webhook"] = str
    control.start_task("webhook", run, restart=TENANT)
