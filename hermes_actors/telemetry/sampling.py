"""Which messages are traced: decided from a trace's id and flags, before any span is made. Pure."""

from hermes_actors.model.trace_context import is_sampled

_BITS = 64


class Sampling:
    """As the standard's samplers decide: a trace that begins here is recorded if the low half of
    its random id is below `bound`, one that came from elsewhere if its sender records it. Without
    `follows_parent` the id decides for both.
    """

    __slots__ = ("bound", "follows_parent")

    def __init__(self, ratio: float, *, follows_parent: bool) -> None:
        self.bound = round(ratio * (1 << _BITS))
        self.follows_parent = follows_parent

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sampling) and (self.bound, self.follows_parent) == (
            other.bound,
            other.follows_parent,
        )

    def __hash__(self) -> int:
        return hash((self.bound, self.follows_parent))

    def takes(self, traceparent: str) -> bool:
        """True if a trace that came with this well-formed `traceparent` is recorded."""
        if self.follows_parent:
            return is_sampled(traceparent)
        return int(traceparent[19:35], 16) < self.bound
