"""Tells which subscriptions could not commit: one line a minute for all of a node's together.

When a log is away none can, and a node may have thousands. What fails for a reason of its own goes
on failing, and is named when the others are well again.
"""

import logging
from collections.abc import Mapping

_logger = logging.getLogger(__name__)

INTERVAL_S = 60.0
_NAMED_MAX = 3


class Uncommitted:
    """The failed commits of all consumers of a node. Bounded by their number."""

    def __init__(self) -> None:
        self._kinds: dict[type[Exception], _Kind] = {}

    def failed(self, subscription: str, error: Exception, now_s: float) -> None:
        """Note a failed commit; the next one will say all that it would have said. Monotonic
        time.
        """
        # Few: a log that is away is no topic that is gone, and hides none.
        kind = self._kinds.setdefault(type(error), _Kind())
        failed = kind.failed(subscription, repr(error), now_s)
        if len(failed) == 1:
            _logger.warning("%s: not committed: %r", subscription, error)
        elif failed:
            named = list(failed.items())[:_NAMED_MAX]
            more = len(failed) - len(named)
            _logger.warning(
                "not committed in the last minute: %d subscriptions: %s%s",
                len(failed),
                "; ".join(f"{name}: {why}" for name, why in named),
                f"; and {more} more" if more else "",
            )


class _Kind:
    """Failures of one kind."""

    def __init__(self) -> None:
        self._next_s = float("-inf")
        # Since the last line: who failed, when last and why; the longest ago first.
        self._failed: dict[str, tuple[float, str]] = {}

    def failed(self, subscription: str, why: str, now_s: float) -> Mapping[str, str]:
        """Note a failure; return whom to tell of now, with why: all of the last minute, or
        nobody.
        """
        self._failed.pop(subscription, None)
        self._failed[subscription] = (now_s, why)
        if now_s < self._next_s:
            return {}
        self._next_s = now_s + INTERVAL_S
        found = {
            name: why for name, (at_s, why) in self._failed.items() if at_s >= now_s - INTERVAL_S
        }
        self._failed.clear()
        return found
