from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.runtime.turns import at_once
from hermes_actors.status.collector import Collector, Sources
from hermes_actors.status.dependencies import Dependency
from hermes_actors.status.lag import Reached
from hermes_actors.status.reasons import Code, because
from hermes_actors.status.record import Flow, Published, SubscriptionFigures, decode


class Node:
    """Counters that a test moves."""

    def __init__(self):
        self.reasons = []
        self.topics = {}
        self.latencies = {}
        self.subscriptions = {}
        self.reached = {}

    def sources(self):
        return Sources(
            dependencies=lambda: [Dependency("log", each, is_needed=True) for each in self.reasons],
            topics=lambda: list(self.topics),
            published=self.topics.get,
            latency_ms=self.latencies.get,
            subscriptions=lambda: list(self.subscriptions),
            consumed=self.subscriptions.get,
            reached=lambda name: self.reached.get(name, Reached()),
        )


def collect(collector, now_s, bytes_max=100_000):
    encoded = at_once(collector.record(int(now_s * 1_000), now_s, bytes_max))
    assert len(encoded) <= bytes_max
    return decode(encoded)


def figures(delivered=0, **fields):
    return SubscriptionFigures(counts=Flow(delivered=delivered), **fields)


STOPPED = {"reasons": (because(Code.SUSPENDED),)}


def test_a_record_says_who_reports_what_was_published_and_what_is_consumed(identity):
    node = Node()
    collector = Collector(identity(), node.sources())
    node.topics["a.b"] = Published(10, 1_000)
    fields = {"inflight": 2, "waiting_retries": 1, "last_failure": "HTTP 500"}
    node.subscriptions["a.b$c"] = figures(4, **fields)
    node.reached["a.b$c"] = Reached("a.b", {0: 8})
    collect(collector, 0.0)
    node.topics["a.b"] = Published(12, 1_400)
    node.subscriptions["a.b$c"] = figures(8, **fields, last_success_at_ms=78)
    collect(collector, 1.0)
    collector.ends.note("a.b", {0: 20}, 1.0)
    record = collect(collector, 1.0)
    header = record.header
    assert (header.node, header.dc, header.boot_id) == ("n1", "dc1", "b1")
    assert (header.sequence, header.round, header.reasons) == (3, 3, ())
    assert (header.topics, header.subscriptions, header.stopped_subscriptions) == (1, 1, 0)
    assert (header.published_rate, header.delivered_rate) == (2_000, 4_000)
    (topic,) = record.topics
    assert (topic.counts, topic.rates) == (Published(12, 1_400), Published(2_000, 400_000))
    (subscription,) = record.subscriptions
    assert (subscription.counts.delivered, subscription.rates.delivered) == (8, 4_000)
    assert (subscription.lag, subscription.inflight, subscription.waiting_retries) == (12, 2, 1)
    assert subscription.last_failure == "HTTP 500"
    assert (subscription.state, subscription.reasons[0].code) == ("DELIVERING", "DELIVERS")
    assert subscription.last_success_at_ms == 78


def test_what_is_first_published_between_two_records_has_a_rate_at_once(identity):
    node = Node()
    node.topics["a.old"] = Published(1_000)
    collector = Collector(identity(), node.sources())
    assert collect(collector, 0.0).header.published_rate == 0
    node.topics["a.new"] = Published(30)
    old, new = sorted(collect(collector, 2.0).topics, key=lambda each: each.rates.messages)
    assert (old.name, old.rates.messages) == ("a.old", 0)
    assert (new.name, new.rates.messages) == ("a.new", 15_000)


def test_an_entry_that_fits_into_no_record_is_left_out(identity):
    node = Node()
    node.topics = {"a." + "x" * 5_000: Published(1), "a.b": Published(2), "z.z": Published(3)}
    collector = Collector(identity(), node.sources())
    names = {each.name for second in range(4) for each in collect(collector, second, 2_000).topics}
    assert names == {"a.b", "z.z"}


def test_what_goes_is_not_told_any_more_and_counts_no_more(identity):
    node = Node()
    node.subscriptions = {
        "a.b$c": figures(1, **STOPPED),
        "a.b$d": figures(1),
    }
    collector = Collector(identity(), node.sources())
    collect(collector, 0.0)
    node.subscriptions["a.b$d"] = figures(9)
    assert collect(collector, 1.0).header.stopped_subscriptions == 1
    node.subscriptions.clear()
    record = collect(collector, 2.0)
    assert record.subscriptions == ()
    assert record.header.stopped_subscriptions == 0
    assert record.header.delivered_rate == 0


def test_reasons_are_bounded_in_number_and_length(identity):
    node = Node()
    node.reasons = ["", *("é" * 1_000 for _ in range(100))]
    record = collect(Collector(identity(), node.sources()), 0.0, 4_000)
    assert len(record.header.reasons) == 8
    assert all(len(each.encode()) <= 300 for each in record.header.reasons)


@given(
    st.dictionaries(st.text("abc.$", min_size=1, max_size=300), st.integers(0, 10**9), max_size=30),
    st.integers(800, 3_000),
    st.integers(1, 10),
)
def test_each_round_tells_everything_once(counters, bytes_max, entries_max):
    node = Node()
    node.topics = {name: Published(count) for name, count in counters.items()}
    collector = Collector(make(), node.sources(), entries_max=entries_max)
    rounds = {}
    for second in range(2 * len(counters) + 2):
        record = collect(collector, second, bytes_max)
        told = rounds.setdefault(record.header.round, [])
        told += [each.name for each in record.topics]
    whole = list(rounds.values())[:-1]
    assert whole
    assert all(told == sorted(counters) for told in whole)


def make():
    from hermes_actors.status.collector import NodeIdentity

    return NodeIdentity("dc1", "n1", "b1", ("frontend",), "0", 0)


def test_a_record_says_what_waits_on_the_disk_and_how_much_goes_elsewhere(identity):
    sent = [100]
    sources = Sources(spooled=lambda: 7, elsewhere=lambda: sent[0])
    collector = Collector(identity(), sources)
    assert collect(collector, 0.0).header.elsewhere_rate == 0
    sent[0] += 3
    header = collect(collector, 1.0).header
    assert (header.spooled, header.elsewhere_rate) == (7, 3_000)
