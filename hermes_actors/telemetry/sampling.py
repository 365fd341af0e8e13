"""Decides from a trace's id and flags if it is recorded, before any span is created. Pure."""

from msgspec import Struct

from hermes_actors.model.trace_context import is_sampled


class Sampling(Struct, frozen=True):
    """Decides like OpenTelemetry's samplers. A trace that begins here is recorded if the low half
    of its random id is below `bound`. A trace from elsewhere is recorded if its sender records it;
    without `follows_parent`, its id decides too.
    """

    ratio: float
    follows_parent: bool

    @property
    def bound(self) -> int:
        """The limit for the low 64 bits of a recorded trace's id (exclusive)."""
        return round(self.ratio * (1 << 64))

    def takes(self, traceparent: str) -> bool:
        """True if a trace from elsewhere is recorded. Its `traceparent` must be valid."""
        if self.follows_parent:
            return is_sampled(traceparent)
        return int(traceparent[19:35], 16) < self.bound
