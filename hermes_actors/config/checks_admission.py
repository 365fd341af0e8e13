"""Relations of what a frontend asks of a message."""

from collections.abc import Callable

from hermes_actors.config.publishing import FrontendConfig
from hermes_actors.model.message import is_reserved_header

_PREVIEW_RECORD_BYTES_MAX = 1_000_000


def check_admission(frontend: FrontendConfig, require: Callable[[bool, str], None]) -> None:
    """Each relation with its own sentence."""
    throughput = frontend.throughput
    require(
        throughput.dynamic_desired_bytes_per_s <= throughput.dynamic_threshold_bytes_per_s,
        "frontend.throughput.dynamic_desired_bytes_per_s: "
        f"{throughput.dynamic_desired_bytes_per_s} is above "
        f"frontend.throughput.dynamic_threshold_bytes_per_s "
        f"({throughput.dynamic_threshold_bytes_per_s}), so that the lowered limits would keep the "
        "total above it; lower the one or raise the other",
    )
    require(
        throughput.dynamic_idle_bytes_per_s >= 0,
        "frontend.throughput.dynamic_idle_bytes_per_s: is below 0; Hermes' default is 0.5",
    )
    for name in frontend.propagation.allowed:
        require(
            name == name.lower() and bool(name.strip()),
            f"frontend.propagation.allowed: '{name}' is not a header's name in lower case; "
            f"write '{name.strip().lower() or 'trace-id'}'",
        )
        require(
            not is_reserved_header(name),
            f"frontend.propagation.allowed: '{name}' is a header by which the broker speaks to "
            "subscribers, and a publisher's never travels; take it out of the list",
        )
    require(
        frontend.preview.total_bytes_max >= frontend.preview.message_bytes_max,
        f"frontend.preview.total_bytes_max: {frontend.preview.total_bytes_max} is below "
        f"frontend.preview.message_bytes_max ({frontend.preview.message_bytes_max}), so that a "
        "message might not fit; raise it",
    )
    together = frontend.preview.messages_max * frontend.preview.message_bytes_max
    require(
        together <= _PREVIEW_RECORD_BYTES_MAX,
        f"frontend.preview.messages_max: so many messages of frontend.preview.message_bytes_max "
        f"come to {together} bytes for one topic, more than the {_PREVIEW_RECORD_BYTES_MAX} that "
        "one record takes; lower one of them",
    )
