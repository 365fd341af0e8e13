"""How many subscriptions are ill, however many nodes tell of each."""

from hermes_actors.status.fold import GONE_AFTER_S, StatusFold
from hermes_actors.status.record import NodeHeader, StatusRecord, SubscriptionStatus
from hermes_actors.status.sums import Ill, ill


def tell(fold, dc, node, now_s, *, stopped=(), failing=(), is_leaving=False):
    header = NodeHeader(
        node=node,
        dc=dc,
        boot_id=node,
        sequence=1,
        stopped_subscriptions=len(stopped),
        failing_subscriptions=len(failing),
        is_leaving=is_leaving,
    )
    entries = [SubscriptionStatus(name=name, state="STOPPED") for name in stopped]
    entries += [SubscriptionStatus(name=name, state="FAILING") for name in failing]
    fold.take(dc, StatusRecord(header, (), tuple(entries)), now_s)


def test_each_counts_once_by_what_nodes_say_that_are_there():
    fold = StatusFold()
    for dc in ("dc1", "dc2"):
        fold.report(dc, "", 0, 0.0)
    tell(fold, "dc1", "gone", 0.0, stopped=["g.t$x"])
    now_s = GONE_AFTER_S + 1
    for dc, node in (("dc1", "n1"), ("dc1", "n2"), ("dc2", "n3")):
        tell(fold, dc, node, now_s, stopped=["g.t$a"], failing=["g.t$b", "g.t$c"])
    tell(fold, "dc2", "left", now_s, failing=["g.t$y"], is_leaving=True)
    assert ill(fold, now_s) == Ill(stopped=1, failing=2)
    # What is stopped on one node and fails on another is stopped.
    tell(fold, "dc2", "n4", now_s, stopped=["g.t$b"])
    assert ill(fold, now_s) == Ill(stopped=2, failing=1)
