"""The figures of whole datacentres, summed over their nodes. Pure."""

from collections.abc import Generator

from msgspec import Struct

from hermes_actors.status.fold import StatusFold


class Figures(Struct):
    """One datacentre at one moment. Rates are per second; `lag` is the known part.

    `refused` and `lost` are publishes answered with 4xx and 5xx, `failed` are pushes that did not
    succeed, `elsewhere` are messages sent to another datacentre, as hedges or because the own log
    did not take them. `slowest_ms` is the longest delay of a loop.
    """

    nodes: int = 0
    missing: int = 0
    published: float = 0.0
    refused: float = 0.0
    lost: float = 0.0
    delivered: float = 0.0
    failed: float = 0.0
    elsewhere: float = 0.0
    lag: int = 0
    spooled: int = 0
    slowest_ms: float = 0.0


def figures(fold: StatusFold, now_s: float) -> Generator[None, None, dict[str, Figures]]:
    """The figures of each datacentre whose status is followed or was. Yields after each node."""
    found = {dc: Figures() for dc in fold.readings}
    for view in fold.nodes(now_s):
        header = view.header
        if not view.is_there:
            if view.is_gone and not header.is_leaving and header.dc in found:
                found[header.dc].missing += 1
            continue
        sums = found.setdefault(header.dc, Figures())
        sums.nodes += 1
        sums.published += header.published_rate / 1_000
        sums.delivered += header.delivered_rate / 1_000
        sums.elsewhere += header.elsewhere_rate / 1_000
        sums.spooled += header.spooled
        sums.slowest_ms = max(sums.slowest_ms, header.loop_lag_ms)
        for topic in fold.topics_of(view):
            sums.refused += topic.rates.rejected / 1_000
            sums.lost += topic.rates.failed / 1_000
        for each in fold.subscriptions_of(view):
            sums.failed += (each.rates.attempts - each.rates.codes_2xx) / 1_000
            sums.lag += max(0, each.lag)
        yield
    return found
