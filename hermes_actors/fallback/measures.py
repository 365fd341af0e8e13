"""The metrics of publishing to several datacentres."""

from hermes_actors.telemetry.metrics import meanings

FALLBACK = meanings(
    "hermes_frontend",
    topic_duplicated_message=(
        "messages",
        "Messages of a topic that are stored in more than one datacentre, by cause",
    ),
    fallback_messages=("messages", "Messages sent to another datacentre, by cause"),
    fallback_unknown_copies=(
        "messages",
        "Messages stored in another datacentre that may be in this one too",
    ),
    fallback_budget_refused=("messages", "Messages not hedged because the budget was spent"),
    fallback_breaker_opened=("openings", "Times that a breaker opened, by cause"),
    fallback_breaker_is_open=("0 or 1", "Whether the breaker of a datacentre is open"),
    fallback_hedge_delay_seconds=(
        "seconds",
        "Time without an acknowledgement after which a message goes to another datacentre",
    ),
)
