"""Which messages are traced: decided from a trace's id and flags, before any span is made. Pure."""

from msgspec import Struct

from hermes_actors.model.trace_context import is_sampled


class Sampling(Struct, frozen=True):
    """Decides as the standard's samplers: a trace that begins here is recorded if the low half of
    its random id is below `bound`, one from elsewhere if its sender records it. Without
    `follows_parent` the id decides for both.
    """

    ratio: float
    follows_parent: bool

    @property
    def bound(self) -> int:
        """What the low 64 bits of a recorded trace's id are below."""
        return round(self.ratio * (1 << 64))

    def takes(self, traceparent: str) -> bool:
        """True if a trace that came with this well-formed `traceparent` is recorded."""
        if self.follows_parent:
            return is_sampled(traceparent)
        return int(traceparent[19:35], 16) < self.bound
