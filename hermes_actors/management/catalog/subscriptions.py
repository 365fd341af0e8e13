"""Subscriptions: created, shown, changed and removed. A new subscription gets the messages that are
published from then on.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import trio
from msgspec.structs import replace

from hermes_actors.config import ManagementConfig
from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.log.base import Log, LogUnavailable, OffsetOutOfRange, UnknownTopic
from hermes_actors.management.access.roles import (
    Caller,
    group_named,
    owners_of,
    require_owner,
    sees_secrets,
)
from hermes_actors.management.bodies.constraints import (
    problems_of,
    require_new_name,
    require_valid_subscription,
)
from hermes_actors.management.bodies.decoding import decode_subscription, merge, required_text
from hermes_actors.management.bodies.secrets import (
    require_secrets_for_other_hosts,
    with_secrets_kept,
)
from hermes_actors.management.bodies.views import subscription_view
from hermes_actors.management.catalog.rules import (
    PrivilegedSubscriber,
    require_acceptable,
    require_fitting_filters,
    require_open_topic,
)
from hermes_actors.management.changes import Changes
from hermes_actors.metadata.bodies import Suspension, subscription_body
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.metadata.commands import Absent, Alive, Change, StampIs, delete, put
from hermes_actors.metadata.creation import Creation, read_creation
from hermes_actors.metadata.keys import subscription_key, topic_key
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.model.subscription import (
    Subscription,
    SubscriptionState,
    TrackingMode,
)
from hermes_actors.model.topic import Owner
from hermes_actors.runtime.clock import Clock
from hermes_actors.runtime.turns import each_in_turns
from hermes_actors.runtime.workers import WorkerPool
from hermes_actors.security.address_guard import AddressGuard

_ENDS_TIMEOUT_S = 2.0
"""How long the creation of a subscription waits for the ends of its topic's partitions."""


class Subscriptions:
    """The subscriptions of one datacentre's metadata. Its coroutines run in trio."""

    def __init__(
        self,
        metadata: Metadata,
        log: Log,
        changes: Changes,
        config: ManagementConfig,
        clock: Clock,
        guard: AddressGuard,
        pool: WorkerPool,
    ) -> None:
        self._metadata = metadata
        self._log = log
        self._changes = changes
        self._config = config
        self._clock = clock
        self._guard = guard
        self._pool = pool
        self._privileged = [
            PrivilegedSubscriber.parse(each) for each in config.subscribers_with_access_to_any_topic
        ]

    async def names(self, topic: str, *, tracked: bool = False) -> list[str]:
        """The names of a topic's subscriptions, sorted. `tracked`: only those that are tracked and
        not suspended.

        Raises Refused with TOPIC_NOT_EXISTS.
        """
        live = self._live_topic(topic)
        return [
            each.name.name
            for each in self._metadata.catalog.subscriptions_of(live.name)
            if not tracked
            or (
                each.subscription.tracking_mode is not TrackingMode.OFF
                and each.state is not SubscriptionState.SUSPENDED
            )
        ]

    async def get(self, caller: Caller, topic: str, name: str) -> dict[str, Any]:
        """One subscription's JSON object, its secrets masked; but owners and administrators see
        the secrets in its fixed headers. Raises Refused.
        """
        return self.view(caller, self.live(topic, name))

    async def of_owner(self, caller: Caller, source: str, owner_id: str) -> list[dict[str, Any]]:
        """The JSON objects of all subscriptions of one owner, sorted by name."""
        known, owner = self._metadata.catalog.subscriptions, Owner(source, owner_id)
        names = sorted(name for name, each in known.items() if each.subscription.owner == owner)
        return [
            self.view(caller, live)
            async for name in each_in_turns(names)
            # It may have been removed meanwhile.
            if (live := self._metadata.catalog.subscriptions.get(name)) is not None
        ]

    async def create(self, caller: Caller, topic: str, body: Mapping[str, Any]) -> None:
        """Create a subscription, which gets the messages published from now on. Raises Refused and
        Unavailable.
        """
        in_body = required_text(body, "topicName", "Subscription")
        _require_same("topicName", in_body, topic)
        new = decode_subscription(with_secrets_kept(None, body))
        require_valid_subscription(new, await problems_of(new.filters, self._pool))
        require_acceptable(new, None, caller, self._config, self._guard)
        name = SubscriptionName(TopicName.parse(topic), new.name)
        require_new_name(name)
        key = subscription_key(name)

        def decide() -> Change:
            live = self._live_topic(topic)
            require_fitting_filters(new.filters, live.topic)
            self._require_open_topic(new, None, live, caller)
            if str(name) in self._metadata.catalog.orphans:
                raise Unavailable(
                    f"Subscription {name.name} of an earlier topic {topic} is being removed; "
                    "try again in a minute"
                )
            if str(name) in self._metadata.catalog.subscriptions:
                raise Refused(
                    f"Subscription {name.name} of topic {topic} already exists",
                    ErrorCode.SUBSCRIPTION_ALREADY_EXISTS,
                )
            now_s = self._clock.now_ms() / 1_000
            stored = replace(
                new, state=_stored_state(new.state), created_at=now_s, modified_at=now_s
            )
            suspended = self._suspension(caller, None, stored)
            return put(
                key,
                subscription_body(stored, live.incarnation, suspended, ends.get(live.log_topic)),
                Absent(key),
                Alive(topic_key(live.name), live.incarnation),
            )

        ends = await self._ends(topic)
        await self._changes.make(decide)

    async def _ends(self, topic: str) -> dict[str, Creation]:
        """The ends of the partitions of the topic's log topic, by its name. Empty if the log does
        not answer in time: then the subscription starts by its creation time, as it does in other
        datacentres.
        """
        log_topic = self._live_topic(topic).log_topic
        with trio.move_on_after(_ENDS_TIMEOUT_S):
            try:
                return {log_topic: await read_creation(self._log, log_topic)}
            except (LogUnavailable, UnknownTopic, OffsetOutOfRange):
                return {}
        return {}

    async def update(self, caller: Caller, topic: str, name: str, patch: Mapping[str, Any]) -> None:
        """Change the fields that the patch names. Raises Refused and Unavailable."""
        asked = _patched(self.owned(caller, topic, name, "change subscription").subscription, patch)
        filter_problems = await problems_of(asked.filters if "filters" in patch else (), self._pool)

        def decide() -> Change | None:
            live = self.owned(caller, topic, name, "change subscription")
            old, owning = live.subscription, self._live_topic(topic)
            new = _patched(old, patch)
            sees_headers = sees_secrets(caller, *self.owners(live))
            require_secrets_for_other_hosts(old, new, patch, sees_headers=sees_headers)
            _require_same("topicName", new.topic_name, topic)
            _require_same("name", new.name, name)
            require_valid_subscription(new, filter_problems)
            require_acceptable(new, old, caller, self._config, self._guard)
            require_fitting_filters(new.filters, owning.topic)
            self._require_open_topic(new, old, owning, caller)
            return self._rewrite(caller, live, new)

        await self._changes.make(decide)

    async def amend(
        self,
        caller: Caller,
        topic: str,
        name: str,
        change: Callable[[Subscription], Subscription],
    ) -> None:
        """Replace the subscription by the result of `change`. Raises Refused, Unavailable, and the
        errors of `change`.
        """

        def decide() -> Change | None:
            live = self.owned(caller, topic, name, "change subscription")
            return self._rewrite(caller, live, change(live.subscription))

        await self._changes.make(decide)

    async def state(self, topic: str, name: str) -> str:
        """PENDING, ACTIVE or SUSPENDED. Raises Refused."""
        return self.live(topic, name).state.value

    async def set_state(self, caller: Caller, topic: str, name: str, state: object) -> None:
        """Suspend or activate. `PENDING` has no effect. Raises Refused and Unavailable."""
        if state not in tuple(each.value for each in SubscriptionState):
            raise Refused(
                'The body must be the JSON string "ACTIVE" or "SUSPENDED"', ErrorCode.FORMAT_ERROR
            )

        def decide() -> Change | None:
            live = self.owned(caller, topic, name, "change the state of subscription")
            wanted = SubscriptionState(state)
            if wanted is SubscriptionState.PENDING:
                return None
            new = replace(live.subscription, state=_stored_state(wanted))
            return self._rewrite(caller, live, new)

        await self._changes.make(decide)

    async def delete(self, caller: Caller, topic: str, name: str) -> None:
        """Remove a subscription. Raises Refused and Unavailable."""

        def decide() -> Change:
            live = self.owned(caller, topic, name, "remove subscription")
            key = subscription_key(live.name)
            return delete(key, Alive(key, live.incarnation))

        await self._changes.make(decide)

    def owned(self, caller: Caller, topic: str, name: str, action: str) -> LiveSubscription:
        """The subscription, for an action of its owners and administrators. Raises Refused."""
        live = self.live(topic, name)
        require_owner(caller, f"{action} {live.name}", *self.owners(live))
        return live

    def managed_by(self, caller: Caller, topic: str | None = None) -> list[LiveSubscription]:
        """The subscriptions that the caller may manage, of one topic or of all."""
        return [
            each
            for each in self._metadata.catalog.subscriptions.values()
            if topic in (None, str(each.name.topic))
            and (caller.is_admin or any(map(caller.owns, self.owners(each))))
        ]

    def owners(self, live: LiveSubscription) -> tuple[Owner, ...]:
        """The owners who may manage it: its own, its topic's, and its group's if it has one."""
        topic = live.name.topic
        owning = self._live_topic(str(topic)).topic.owner
        return owners_of(self._metadata.catalog, topic, owning, live.subscription.owner)

    def live(self, topic: str, name: str) -> LiveSubscription:
        """The subscription as it is now. Raises Refused with SUBSCRIPTION_NOT_EXISTS."""
        live = self._metadata.catalog.subscriptions.get(f"{topic}${name}")
        if live is None:
            raise Refused(
                f"Subscription {name} of topic {topic} does not exist",
                ErrorCode.SUBSCRIPTION_NOT_EXISTS,
            )
        return live

    def view(self, caller: Caller, live: LiveSubscription) -> dict[str, Any]:
        """A subscription's JSON object with the secrets that the caller may see."""
        return subscription_view(
            live.subscription,
            live.state,
            live.suspension,
            shows_headers=sees_secrets(caller, *self.owners(live)),
        )

    def _require_open_topic(
        self, new: Subscription, old: Subscription | None, topic: LiveTopic, caller: Caller
    ) -> None:
        group = group_named(self._metadata.catalog, topic.name.group)
        require_open_topic(new, old, topic.topic, group, caller, self._privileged)

    def _rewrite(self, caller: Caller, live: LiveSubscription, new: Subscription) -> Change | None:
        if new == live.subscription:
            return None
        new = replace(new, modified_at=self._clock.now_ms() / 1_000)
        key = subscription_key(live.name)
        suspended = self._suspension(caller, live, new)
        body = subscription_body(new, live.topic_incarnation, suspended, live.creation)
        return put(key, body, StampIs(key, live.stamp))

    def _suspension(
        self, caller: Caller, live: LiveSubscription | None, new: Subscription
    ) -> Suspension | None:
        """The suspension to store with `new`: the present one, or one by this caller; None if it is
        not suspended.
        """
        if new.state is not SubscriptionState.SUSPENDED:
            return None
        if live is not None and live.state is SubscriptionState.SUSPENDED:
            return live.suspension
        return Suspension(self._clock.now_ms(), caller.name)

    def _live_topic(self, name: str) -> LiveTopic:
        topic = self._metadata.catalog.topics.get(name)
        if topic is None:
            raise Refused(f"Topic {name} does not exist", ErrorCode.TOPIC_NOT_EXISTS)
        return topic


def _patched(old: Subscription, patch: Mapping[str, Any]) -> Subscription:
    """The old subscription with the patch applied, its createdAt and modifiedAt unchanged."""
    base = msgspec.to_builtins(old)
    wanted = with_secrets_kept(old, patch)
    flag_alone = "trackingEnabled" in wanted and "trackingMode" not in wanted
    if flag_alone and not (wanted["trackingEnabled"] is True and old.tracking_enabled):
        # The flag decides: the old mode is dropped unless both say that tracking is on.
        base.pop("trackingMode")
    new = decode_subscription(merge(base, wanted))
    asked = wanted.get("state")
    keeps_state = asked is None or asked == SubscriptionState.PENDING.value
    return replace(
        new,
        state=old.state if keeps_state else _stored_state(new.state),
        created_at=old.created_at,
        modified_at=old.modified_at,
    )


def _stored_state(asked: SubscriptionState) -> SubscriptionState:
    """SUSPENDED or PENDING: ACTIVE is not stored, because consumers report it."""
    if asked is SubscriptionState.SUSPENDED:
        return SubscriptionState.SUSPENDED
    return SubscriptionState.PENDING


def _require_same(field: str, in_body: str, in_path: str) -> None:
    if in_body != in_path:
        raise Refused(f"Subscription.{field} is '{in_body}', but the path names '{in_path}'")
