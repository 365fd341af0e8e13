"""The meaning and unit of each metric, as HELP and docs/metrics.md show them."""

import sys
from collections.abc import Iterator

_F, _S, _C = "hermes_frontend", "hermes_frontend_spool", "hermes_consumers_subscription"
_B, _L, _M = "hermes_balancer", "hermes_log", "hermes_metadata"

MEANINGS: dict[str, tuple[str, str]] = {
    # Publishing.
    f"{_F}_inflight_requests": ("requests", "Publish requests that have no answer yet"),
    f"{_F}_batch_streams": ("requests", "Requests with many messages that are under way"),
    f"{_F}_idempotency_keys": ("keys", "Idempotency keys that are remembered"),
    f"{_F}_idempotency_replays": ("answers", "Answers given again to a repeated Idempotency-Key"),
    f"{_F}_previews_left_out": ("messages", "Messages that fitted into no preview"),
    f"{_F}_topic_requests": ("messages", "Messages whose publish was read, of a topic"),
    f"{_F}_topic_published": ("messages", "Messages of a topic that a datacentre's log stored"),
    f"{_F}_topic_http_status_codes": ("messages", "Answers to publishes of a topic, by status"),
    f"{_F}_topic_throughput_bytes": ("bytes", "Bodies of a topic that were sent to the log"),
    f"{_F}_topic_message_size_bytes": ("bytes", "Count and size of the bodies sent of a topic"),
    f"{_F}_topic_duplicated_message": (
        "messages",
        "Messages of a topic that are stored in more than one datacentre, by cause",
    ),
    f"{_F}_topic_global_requests": ("messages", "Messages whose publish was read, of all topics"),
    f"{_F}_topic_global_http_status_codes": ("messages", "Answers to all publishes, by status"),
    f"{_F}_topic_global_throughput_bytes": ("bytes", "Bodies of all topics sent to the log"),
    f"{_F}_topic_global_message_size_bytes": ("bytes", "Count and size of all bodies sent"),
    **{
        f"{_F}_topic_{ack}_{kind}_seconds": ("seconds", f"{text}, for topics with ack {said}")
        for ack, said in (("ack_leader", "LEADER"), ("ack_all", "ALL"))
        for kind, text in (
            ("latency", "Time from a publish's headers to its 201, of a topic"),
            ("global_latency", "Time from a publish's headers to its 201, of all topics"),
            ("broker_latency", "Time the log took to acknowledge a message of a topic"),
        )
    },
    # Going on without the own log.
    f"{_F}_fallback_messages": ("messages", "Messages sent to another datacentre, by cause"),
    f"{_F}_fallback_late_acknowledgements": (
        "messages",
        "Messages acknowledged after their publish had been answered otherwise",
    ),
    f"{_F}_fallback_unknown_copies": (
        "messages",
        "Messages stored in another datacentre that may be in this one too",
    ),
    f"{_F}_fallback_budget_refused": ("messages", "Messages not hedged, the budget being spent"),
    f"{_F}_fallback_losers_cancelled": ("appends", "Appends given up that another one overtook"),
    f"{_F}_fallback_losers": ("appends", "Appends under way that another one overtook"),
    f"{_F}_fallback_losers_bytes": ("bytes", "Size of the appends that another one overtook"),
    f"{_F}_fallback_breaker_opened": ("openings", "Times that a breaker opened, by cause, scope"),
    f"{_F}_fallback_breaker_is_open": ("0 or 1", "Whether the breaker of a datacentre is open"),
    f"{_F}_fallback_topics_with_open_breaker": ("topics", "Topics whose breaker is open"),
    f"{_F}_fallback_hedge_delay_seconds": (
        "seconds",
        "Silence of the own log after which a message goes to another datacentre",
    ),
    # The spool.
    f"{_S}_entries": ("messages", "Messages on this node's disk that no log has taken yet"),
    f"{_S}_oldest_age_s": ("seconds", "Age of the oldest message in the spool, 0 if it is empty"),
    f"{_S}_bytes": ("bytes", "Size of the messages in the spool"),
    f"{_S}_disk_bytes": ("bytes", "Disk space that the spool takes"),
    f"{_S}_is_failing": ("0 or 1", "Whether the spool's disk takes nothing"),
    f"{_S}_written": ("messages", "Messages that were put into the spool and answered 202"),
    f"{_S}_replayed": ("messages", "Messages of the spool that a log has taken"),
    f"{_S}_late_acknowledgements": (
        "messages",
        "Messages of the spool that a log acknowledged late, so that they need no replay",
    ),
    f"{_S}_torn_tails": ("segments", "Unfinished ends that were cut off when the spool opened"),
    f"{_S}_accepted_missing": (
        "messages",
        "Messages that the spool lost at rest, as --accept-damage accepted",
    ),
    f"{_S}_refused": ("messages", "Messages that the spool did not take, by reason"),
    f"{_S}_set_aside": ("messages", "Messages of the spool that will not be sent, by reason"),
    f"{_S}_replay_failures": ("messages", "Replays that no log acknowledged, by outcome"),
    f"{_S}_write_seconds": ("seconds", "Time of a write to the spool with its fsync"),
    # Delivering, for each subscription.
    f"{_C}_lag_messages": (
        "messages",
        "Messages stored and not settled, in the partitions that this node owns",
    ),
    f"{_C}_oldest_age_seconds": (
        "seconds",
        "Age of the oldest message that is read and neither delivered nor given up",
    ),
    f"{_C}_rate_level": (
        "0 to 3",
        "Trust in the endpoint: 0 full rate, 1 adapting, 2 one a second, 3 one a minute",
    ),
    f"{_C}_rate_limit": ("messages per second", "The most that may be pushed now from this node"),
    f"{_C}_open_dead_letters": (
        "messages",
        "Dead letters of the datacentre that no re-drive has delivered nor anybody expired",
    ),
    f"{_C}_inflight": ("messages", "Messages whose push has no answer yet"),
    f"{_C}_waiting_retries": ("messages", "Messages that wait for their next attempt"),
    f"{_C}_waiting_dead_letters": ("messages", "Dead letters that the log has not taken yet"),
    f"{_C}_latency_seconds": ("seconds", "Time from the start of a push to its answer"),
    f"{_C}_delivered": ("messages", "Messages that the endpoint has taken"),
    f"{_C}_batches": ("batches", "Batches that the endpoint has taken"),
    f"{_C}_throughput_bytes": ("bytes", "Bodies that the endpoint has taken"),
    f"{_C}_http_status_codes": ("pushes", "Answers to pushes, by status"),
    f"{_C}_retries": ("pushes", "Attempts after the first one"),
    f"{_C}_failures": ("pushes", "Pushes without a 2xx answer"),
    f"{_C}_timeouts": ("pushes", "Pushes that got no answer in time"),
    f"{_C}_other_errors": ("pushes", "Pushes that got no answer for another reason"),
    f"{_C}_local_failures": ("pushes", "Pushes that failed on this node, before the endpoint"),
    f"{_C}_discarded": ("messages", "Messages that were given up"),
    f"{_C}_expired_by_retention": ("messages", "Messages that retention removed unsettled"),
    f"{_C}_filtered_out": ("messages", "Messages that the filters left out"),
    f"{_C}_filter_errors": ("messages", "Messages that a filter could not read"),
    f"{_C}_filter_timeouts": ("messages", "Messages that spent their filters' budget of CPU"),
    f"{_C}_poison": ("messages", "Messages set aside unread, two owners having been lost at them"),
    f"{_C}_undecodable": ("messages", "Records that hold no message"),
    f"{_C}_commit_failures": (
        "commits",
        "Commits that the log did not take; the next one says all",
    ),
    f"{_C}_dead_letters": ("messages", "Messages kept as dead letters"),
    f"{_C}_dead_letters_truncated": ("messages", "Dead letters kept without their message"),
    f"{_C}_dead_letters_lost": ("messages", "Dead letters that the log refused for good"),
    f"{_C}_dead_letter_failures": ("appends", "Appends of dead letters to be tried again"),
    f"{_C}_redriven": ("messages", "Dead letters that a re-drive has delivered"),
    "hermes_consumers_sender_faults": ("faults", "Defects in senders that a push met"),
    "hermes_consumers_oauth_token_requests": ("requests", "Requests for OAuth tokens, by result"),
    "hermes_consumers_oauth_token_request_latency_seconds": (
        "seconds",
        "Time that a provider took to answer a request for an OAuth token",
    ),
    # Who owns what.
    f"{_B}_is_current": ("0 or 1", "Whether the coordination log is read up to its end"),
    f"{_B}_position": ("offset", "How far the coordination log is read"),
    f"{_B}_undecodable_records": ("records", "Records of coordination that could not be read"),
    f"{_B}_term": ("term", "The leader's term"),
    f"{_B}_members": ("nodes", "Nodes of the datacentre that take part in delivering"),
    f"{_B}_leader_lease_age_seconds": ("seconds", "Time since the leader was last heard of"),
    f"{_B}_expired_leases": ("leases", "Leases that ran out: nodes that were lost"),
    f"{_B}_moves": ("tasks", "Tasks that have moved from one node to another"),
    f"{_B}_skew_max_to_mean": ("ratio", "Weight of the fullest node, to the mean"),
    f"{_B}_skew_max_to_ideal": ("ratio", "Weight of the fullest node, to the best that can be"),
    f"{_B}_unassigned_subscriptions": ("subscriptions", "Subscriptions that no node owns now"),
    f"{_B}_unplaced_subscriptions": ("subscriptions", "Subscriptions that fit on no node"),
    f"{_B}_full_nodes": ("nodes", "Nodes that may own no more"),
    f"{_B}_waiting_tasks": ("tasks", "Tasks that wait for their old owner to let go"),
    f"{_B}_draining_nodes": ("nodes", "Nodes that are being drained"),
    f"{_B}_is_leader": ("0 or 1", "Whether this node leads its datacentre"),
    f"{_B}_is_member": ("0 or 1", "Whether this node takes part in delivering"),
    f"{_B}_tasks": ("tasks", "Tasks that this node owns"),
    f"{_B}_weight": ("weight", "Weight of what this node owns"),
    f"{_B}_cpu_cores": ("cores", "Processor time that this node uses"),
    f"{_B}_lease_left_seconds": ("seconds", "Time for which this node may still act"),
    f"{_B}_fence_closed_seconds": ("seconds", "Time in which this node was not allowed to act"),
    # The event loop.
    "hermes_loop_lag_seconds": ("seconds", "How late the event loop was at worst just now"),
    "hermes_loop_stalls": ("standstills", "Times that the event loop stood still, by cause"),
    "hermes_loop_stalled_seconds": ("seconds", "Time that the event loop stood still, by cause"),
    # The log and the metadata.
    f"{_L}_commits": ("transactions", "Transactions of the embedded log, one fsync each"),
    f"{_L}_commits_failed": ("transactions", "Transactions of the embedded log that failed"),
    f"{_L}_records": ("records", "Records that were given to the log"),
    f"{_L}_bytes": ("bytes", "Size of the records that were given to the log"),
    f"{_L}_accepted_missing": (
        "records",
        "Records that the embedded log lost at rest, as --accept-damage accepted",
    ),
    f"{_L}_is_failing": ("0 or 1", "Whether the embedded log cannot store anything"),
    f"{_L}_is_connected": ("0 or 1", "Whether the Kafka cluster is reached"),
    f"{_L}_in_flight": ("requests", "Produce requests without an answer"),
    f"{_L}_connections": ("connections", "Open connections to brokers"),
    f"{_L}_appends": ("appends", "Batches that were given to the log"),
    f"{_L}_stored": ("records", "Records that the log has acknowledged"),
    f"{_L}_refused": ("records", "Records that the log has refused"),
    f"{_L}_unavailable": ("records", "Records that the log did not take, for want of a broker"),
    f"{_L}_unknown": ("records", "Records of which nobody knows whether they are stored"),
    f"{_L}_lost": ("records", "Records whose producer lost its place in the numbering"),
    f"{_L}_producer_ids_replaced": ("ids", "Producer ids that were given up for new ones"),
    f"{_M}_is_current": ("0 or 1", "Whether the metadata log is read up to its end"),
    f"{_M}_position": ("offset", "How far the metadata log is read"),
    f"{_M}_refolds": ("refolds", "Times that the metadata log was read anew from its start"),
    f"{_M}_undecodable_commands": ("commands", "Commands of the metadata log that are not read"),
    f"{_M}_undecodable_bodies": ("objects", "Topics, subscriptions and others that are not read"),
    f"{_M}_is_in_trouble": ("0 or 1", "Whether a duty of this node for its datacentre is stuck"),
    "hermes_security_authentications": ("requests", "Callers that were identified or refused"),
}


def meaning_of(name: str) -> str:
    """A sentence with the unit, for HELP; the name itself where nothing is known of it."""
    found = MEANINGS.get(name)
    return name if found is None else f"{found[1]}; in {found[0]}."


def table() -> Iterator[str]:
    """The lines of docs/metrics.md's table."""
    yield "| metric | unit | meaning |"
    yield "|---|---|---|"
    for name, (unit, meaning) in sorted(MEANINGS.items()):
        yield f"| `{name}` | {unit} | {meaning}. |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table())
