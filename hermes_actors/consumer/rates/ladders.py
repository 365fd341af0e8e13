"""The ladders of a node's subscriptions: a consumer that starts again goes on where it was."""

from typing import NamedTuple

from hermes_actors.consumer.rates.ladder import Ladder


class _Known(NamedTuple):
    identity: object
    epoch: int
    ladder: Ladder


class Ladders:
    """The ladder of each subscription, by name.

    Bounded by the subscriptions that exist: `forget` what does not.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def of(
        self, name: str, identity: object, maximum: float, now_s: float, *, epoch: int = 0
    ) -> Ladder:
        """The ladder of the subscription; a new one when it, its endpoint or the grant (`epoch`)
        is another: what happened between two grants is for another owner to tell.
        """
        known = self._known.get(name)
        if known is not None and (known.identity, known.epoch) == (identity, epoch):
            ladder = known.ladder
            ladder.resume(now_s)
            ladder.change(maximum, now_s)
            return ladder
        ladder = Ladder(maximum, now_s)
        self.keep(name, identity, ladder, epoch=epoch)
        return ladder

    def has(self, name: str, identity: object, *, epoch: int) -> bool:
        """True when `of` would go on with a ladder."""
        known = self._known.get(name)
        return known is not None and (known.identity, known.epoch) == (identity, epoch)

    def keep(self, name: str, identity: object, ladder: Ladder, *, epoch: int = 0) -> None:
        """The ladder is now that of this identity."""
        self._known[name] = _Known(identity, epoch, ladder)

    def forget(self, name: str) -> None:
        """Forget a subscription that is no more."""
        self._known.pop(name, None)
