"""Nodes' status records, put in as readers would do it."""

import trio
from msgspec.structs import replace

from hermes_actors.status.judging import judged
from hermes_actors.status.record import Flow, NodeHeader, StatusRecord, SubscriptionStatus

FULL = "shop.orders$billing"
TOPIC = "/topics/shop.orders"
SUBSCRIPTION = f"{TOPIC}/subscriptions/billing"
NOW_MS = 1_700_000_000_000


class Nodes:
    """Puts in records as readers would."""

    def __init__(self, fold, clock):
        self.fold = fold
        self._clock = clock
        self._sequence = 0

    def read(self, dc, trouble=""):
        self.fold.report(dc, trouble, NOW_MS, trio.current_time())

    def tell(self, dc, node, *, topics=(), subscriptions=(), boot="b", **header):
        self._sequence += 1
        header = NodeHeader(
            node=node,
            dc=dc,
            boot_id=boot,
            sequence=self._sequence,
            round=self._sequence,
            **{"roles": ("consumers",), "written_at_ms": NOW_MS, **header},
        )
        record = StatusRecord(header, tuple(topics), tuple(subscriptions))
        now_s = trio.current_time()
        self.fold.take(dc, record, now_s)


def consumed(rates=None, *, counts=None, **fields):
    flow = {name: round(1_000 * rate) for name, rate in (rates or {}).items()}
    entry = SubscriptionStatus(
        name=FULL, counts=Flow(**(counts or {})), rates=Flow(**flow), **fields
    )
    state, reasons = judged(entry, NOW_MS)
    return replace(entry, state=state, reasons=reasons)
