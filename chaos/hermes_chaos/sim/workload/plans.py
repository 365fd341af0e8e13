"""The topics and subscriptions of a run's cluster."""

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from hermes_actors.config import ConsumersConfig
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.subscription import BatchPolicy, SerialPolicy, TtlFrom
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.history.avro import schema_of
from hermes_chaos.sim.workload.subject import Audience

GROUP = "sim"


@dataclass(frozen=True)
class TopicPlan:
    """One topic of the workload; `name` is the full name.

    `falls_back`: it may be published to another datacentre if its own fails. `schema` is the first
    version of an Avro topic's schema.
    """

    name: str
    ack: Ack
    falls_back: bool = False
    schema: str = ""

    def wire(self) -> dict[str, Any]:
        """The request body that creates it."""
        of_avro = {"contentType": "AVRO", "schema": self.schema} if self.schema else {}
        return {
            "name": self.name,
            "description": "simulated",
            "owner": {"source": "Plaintext", "id": "simulation"},
            "contentType": "JSON",
            "retentionTime": {"duration": 1, "retentionUnit": "DAYS"},
            "ack": self.ack.value,
            "maxMessageSize": 100_000,
            "fallbackToRemoteDatacenterEnabled": self.falls_back,
            **of_avro,
        }


@dataclass(frozen=True)
class SubscriptionPlan:
    """One subscription of the workload. `is_late`: it is created while messages are published.

    `more` has further fields of the request. It has an endpoint on each of its hosts, where
    `fault_rate` of the requests fail by themselves.
    """

    topic: str
    name: str
    policy: dict[str, Any] = field(default_factory=dict)
    is_late: bool = False
    more: dict[str, Any] = field(default_factory=dict)
    hosts_count: int = 1
    fault_rate: float = 0.04

    @property
    def full_name(self) -> str:
        """The full name, `group.topic$subscription`."""
        return f"{self.topic}${self.name}"

    @property
    def group(self) -> str:
        """The name of its consumer group in the log."""
        return SubscriptionName.parse(self.full_name).consumer_group()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of its endpoints."""
        domain = f"{self.name}.{self.topic.partition('.')[2]}.test"
        if self.hosts_count == 1:
            return (domain,)
        return tuple(f"{number}.{domain}" for number in range(self.hosts_count))

    @property
    def _policy(self) -> SerialPolicy | BatchPolicy:
        if self.more.get("deliveryType") == "BATCH":
            return msgspec.convert(self.policy, BatchPolicy)
        return msgspec.convert(self.policy, SerialPolicy)

    @property
    def request_timeout_s(self) -> float:
        """How long a push waits for an answer."""
        return self._policy.request_timeout / 1_000

    def audience(self, config: ConsumersConfig) -> Audience:
        """The subscription as the checkers know it."""
        policy = self._policy
        return replace(
            self._of_kind(policy, config),
            retries_client_errors=policy.retry_client_errors,
            backoff_ms=policy.message_backoff,
            is_late=self.is_late,
            keeps_letters=self.more.get("deadLettersEnabled", True),
            wants_even="filters" in self.more,
            recipients=self.hosts_count,
            attempts_max=policy.attempts_max,
            retry_on=tuple(policy.retry_on),
            discard_on=tuple(policy.discard_on),
            ttl_s=policy.message_ttl,
            is_ttl_from_publication=isinstance(policy, SerialPolicy)
            and policy.ttl_from is TtlFrom.PUBLICATION,
        )

    def _of_kind(self, policy: SerialPolicy | BatchPolicy, config: ConsumersConfig) -> Audience:
        names = self.full_name, self.topic, self.group
        if isinstance(policy, BatchPolicy):
            assert policy.message_rate is not None, "checkers want a limit"
            return Audience(
                *names,
                rate=policy.message_rate,
                inflight_max=1,
                batch=(policy.batch_size, policy.batch_volume),
            )
        inflight_max = policy.inflight_size or config.inflight_max
        return Audience(
            *names, rate=policy.rate, inflight_max=inflight_max, is_ordered=policy.ordered
        )

    def wire(self) -> dict[str, Any]:
        """The request body that creates it."""
        return {
            "topicName": self.topic,
            "name": self.name,
            "endpoint": ";".join(f"http://{host}/push" for host in self.hosts),
            "description": "simulated",
            "owner": {"source": "Plaintext", "id": "simulation"},
            "subscriptionPolicy": self.policy,
            **self.more,
        }


TOPICS = (
    TopicPlan(f"{GROUP}.orders", Ack.ALL),
    TopicPlan(f"{GROUP}.clicks", Ack.LEADER),
    TopicPlan(f"{GROUP}.audit", Ack.NONE),
)
FALLBACK_TOPICS = (
    TopicPlan(f"{GROUP}.payments", Ack.ALL, falls_back=True),
    TopicPlan(f"{GROUP}.alerts", Ack.LEADER, falls_back=True),
)
LEADER_TOPICS = frozenset(
    topic.name for topic in TOPICS + FALLBACK_TOPICS if topic.ack is not Ack.ALL
)
"""Topics that may lose their end with a leader."""
VISITS = TopicPlan(f"{GROUP}.visits", Ack.ALL, falls_back=True, schema=schema_of(1))
"""The Avro topic, whose schema gets new versions during the run."""
KEYED_TOPICS = (*TOPICS, *FALLBACK_TOPICS, VISITS)
"""Messages with and without keys, from many publishers at once."""
LEDGER = TopicPlan(f"{GROUP}.ledger", Ack.ALL)
"""The topic that gets more partitions during the run. Without keys, no order is promised."""
KEYLESS_TOPICS = (
    LEDGER,
    TopicPlan(f"{GROUP}.ticks", Ack.LEADER),
)
"""Only messages without keys, from one publisher at a time in each datacentre (`run_in_turn`)."""
ALL_TOPICS = KEYED_TOPICS + KEYLESS_TOPICS
SLOWPOKE = SubscriptionPlan(
    f"{GROUP}.audit",
    "slowpoke",
    {"rate": 6, "requestTimeout": 300},
    more={"deadLettersEnabled": False},
)
"""The subscription that lags: its rate limit is reached all the time."""
STRICT = SubscriptionPlan(
    f"{GROUP}.payments",
    "strict",
    {"attemptsMax": 3, "discardOn": [500], "retryOn": [400], "messageBackoff": 50},
    fault_rate=0.25,
)
"""The subscription that gives up soon; its dead letters are re-driven."""
SUBSCRIPTIONS = (
    SubscriptionPlan(f"{GROUP}.orders", "billing", {"messageBackoff": 50, "requestTimeout": 400}),
    SubscriptionPlan(
        f"{GROUP}.orders",
        "stubborn",
        {"retryClientErrors": True, "messageBackoff": 100, "backoffMultiplier": 1.5},
    ),
    SubscriptionPlan(f"{GROUP}.clicks", "narrow", {"inflightSize": 2, "rate": 200}),
    SubscriptionPlan(f"{GROUP}.clicks", "plain"),
    SLOWPOKE,
    SubscriptionPlan(f"{GROUP}.payments", "books"),
    SubscriptionPlan(f"{GROUP}.alerts", "pager"),
    SubscriptionPlan(f"{GROUP}.orders", "sequence", {"ordered": True, "inflightSize": 20}),
    SubscriptionPlan(
        f"{GROUP}.clicks",
        "picky",
        more={"filters": [{"type": "jsonpath", "path": "$.serial", "matcher": "\\d*[02468]"}]},
    ),
    SubscriptionPlan(
        f"{GROUP}.audit",
        "bundles",
        {
            "batchSize": 5,
            "batchTime": 300,
            "batchVolume": 10_000,
            "messageBackoff": 100,
            "requestTimeout": 400,
            "messageRate": 40,
        },
        more={"deliveryType": "BATCH"},
    ),
    SubscriptionPlan(
        f"{GROUP}.ledger",
        "everyone",
        {"messageBackoff": 50},
        more={"mode": "BROADCAST"},
        hosts_count=2,
    ),
    STRICT,
    SubscriptionPlan(
        f"{GROUP}.alerts",
        "fresh",
        {"messageTtl": 1, "ttlFrom": "PUBLICATION", "messageBackoff": 100, "requestTimeout": 300},
        fault_rate=0.25,
    ),
    SubscriptionPlan(
        f"{GROUP}.payments",
        "patient",
        {"messageTtl": 1, "messageBackoff": 100, "requestTimeout": 300},
        fault_rate=0.25,
    ),
    SubscriptionPlan(VISITS.name, "guide"),
    SubscriptionPlan(
        VISITS.name,
        "archive",
        more={
            "contentType": "AVRO",
            "filters": [{"type": "avropath", "path": "serial", "matcher": "\\d*[02468]"}],
        },
    ),
)
LATE_SUBSCRIPTIONS = (
    SubscriptionPlan(f"{GROUP}.orders", "latecomer", is_late=True),
    SubscriptionPlan(f"{GROUP}.clicks", "straggler", {"inflightSize": 5}, is_late=True),
)
ALL_SUBSCRIPTIONS = SUBSCRIPTIONS + LATE_SUBSCRIPTIONS
PULLED_SUBSCRIPTIONS = (
    SubscriptionPlan(
        f"{GROUP}.orders",
        "workers",
        {"ackDeadlineSeconds": 1, "messageBackoff": 50},
        more={"deliveryType": "PULL", "endpoint": None},
    ),
    SubscriptionPlan(
        f"{GROUP}.payments",
        "cashiers",
        {"ackDeadlineSeconds": 1, "messageBackoff": 50, "ordered": True},
        more={"deliveryType": "PULL", "endpoint": None},
    ),
)
"""Only in runs with pull clients."""
SOUGHT_SUBSCRIPTIONS = tuple(plan for plan in SUBSCRIPTIONS if plan is not STRICT)
"""Subscriptions that are retransmitted. If one were re-driven at the same time, its attempts could
not be told apart.
"""
