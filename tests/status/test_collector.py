import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.status.collector import Collector, Sources, SubscriptionFigures
from hermes_actors.status.dependencies import Dependency
from hermes_actors.status.record import Flow, Published, decode


class Node:
    """Counters that a test moves."""

    def __init__(self):
        self.reasons = []
        self.topics = {}
        self.latencies = {}
        self.subscriptions = {}

    def sources(self):
        return Sources(
            dependencies=lambda: [Dependency("log", each, is_needed=True) for each in self.reasons],
            topics=lambda: list(self.topics),
            published=self.topics.get,
            publish_latency=self.latencies.get,
            subscriptions=lambda: list(self.subscriptions),
            consumed=self.subscriptions.get,
        )


def collect(collector, now_s, bytes_max=100_000, *, is_stored=True):
    collector.begin(int(now_s * 1_000), now_s, bytes_max)
    while collector.add_some(now_s, 3):
        pass
    encoded = collector.encode()
    assert len(encoded) <= bytes_max
    collector.took(is_stored=is_stored)
    return decode(encoded)


def test_a_record_says_who_reports_what_was_published_and_what_is_consumed(identity):
    node = Node()
    collector = Collector(identity(), node.sources())
    node.topics["a.b"] = Published(10, 1_000)
    node.subscriptions["a.b$c"] = SubscriptionFigures(
        "", Flow(delivered=4), 2, 1, "HTTP 500", 77, "a.b", {0: 4}
    )
    collect(collector, 0.0)
    node.topics["a.b"] = Published(12, 1_400)
    node.subscriptions["a.b$c"] = SubscriptionFigures(
        "", Flow(delivered=8), 2, 1, "HTTP 500", 77, "a.b", {0: 8}, 78
    )
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
    assert (subscription.last_failure, subscription.last_failure_at_ms) == ("HTTP 500", 77)
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


def test_2000_subscriptions_are_all_told_within_a_few_records(identity):
    node = Node()
    names = [f"group{n % 7}.topic{n:04}$subscription" for n in range(2_000)]
    for name in names:
        node.subscriptions[name] = SubscriptionFigures("x" * 1_000, Flow(*[2**40] * 11))
    collector = Collector(identity(), node.sources())
    told = []
    for second in range(8):
        record = collect(collector, second, 262_144)
        assert record.header.subscriptions == 2_000
        if record.header.round == 1:
            told += [each.name for each in record.subscriptions]
    assert told == sorted(names)
    assert record.header.round > 1


def test_a_record_that_was_not_stored_is_told_again_with_new_figures(identity):
    node = Node()
    node.topics = {f"a.t{n}": Published(n) for n in range(10)}
    collector = Collector(identity(), node.sources(), entries_max=4)
    first = collect(collector, 0.0)
    lost = collect(collector, 1.0, is_stored=False)
    node.topics["a.t4"] = Published(99)
    again = collect(collector, 2.0)
    assert [each.name for each in first.topics] == ["a.t0", "a.t1", "a.t2", "a.t3"]
    assert [each.name for each in again.topics] == [each.name for each in lost.topics]
    assert again.topics[0].counts.messages == 99
    assert again.header.sequence == lost.header.sequence + 1
    assert (lost.header.missed, again.header.missed) == (0, 1)


def test_an_entry_that_fits_into_no_record_is_left_out_and_counted(identity):
    node = Node()
    node.topics = {"a." + "x" * 5_000: Published(1), "a.b": Published(2), "z.z": Published(3)}
    record = collect(Collector(identity(), node.sources()), 0.0, 2_000)
    assert [each.name for each in record.topics] == ["a.b"]
    collector = Collector(identity(), node.sources())
    names, left_out = [], 0
    for second in range(4):
        record = collect(collector, second, 2_000)
        left_out = max(left_out, record.header.left_out)
        names += [each.name for each in record.topics if record.header.round == 1]
    assert names == ["a.b", "z.z"]
    assert left_out == 1


def test_what_goes_is_not_told_any_more_and_counts_no_more(identity):
    node = Node()
    node.subscriptions = {
        "a.b$c": SubscriptionFigures("stopped", Flow(delivered=1)),
        "a.b$d": SubscriptionFigures("", Flow(delivered=1)),
    }
    collector = Collector(identity(), node.sources())
    collect(collector, 0.0)
    node.subscriptions["a.b$d"] = SubscriptionFigures("", Flow(delivered=9))
    assert collect(collector, 1.0).header.stopped_subscriptions == 1
    node.subscriptions.clear()
    record = collect(collector, 2.0)
    assert record.subscriptions == ()
    assert record.header.stopped_subscriptions == 0
    assert record.header.delivered_rate == 0


def test_a_topic_tells_how_long_its_publishes_took_where_there_were_some(identity):
    node = Node()
    collector = Collector(identity(), node.sources())
    node.topics |= {"a.b": Published(10, 1_000), "a.c": Published(1, 1)}
    node.latencies["a.b"] = (1.5, 9.0)
    one, other = collect(collector, 1.0).topics
    assert (one.latency_p50_ms, one.latency_p99_ms) == (1.5, 9.0)
    assert (other.latency_p50_ms, other.latency_p99_ms) == (-1.0, -1.0)


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
    st.lists(st.booleans(), max_size=20),
)
def test_each_round_tells_everything_once_that_fits_whatever_is_lost(
    counters, bytes_max, entries_max, fates
):
    node = Node()
    node.topics = {name: Published(count) for name, count in counters.items()}
    collector = Collector(make(), node.sources(), entries_max=entries_max)
    rounds = {}
    for second, is_stored in enumerate(fates + [True] * (len(counters) + 2)):
        record = collect(collector, second, bytes_max, is_stored=is_stored)
        if is_stored:
            told = rounds.setdefault(record.header.round, [])
            told += [each.name for each in record.topics]
    whole = list(rounds.values())[:-1]
    assert whole
    assert all(told == sorted(counters) for told in whole)


def make():
    from hermes_actors.status.collector import NodeIdentity

    return NodeIdentity("dc1", "n1", "b1", ("frontend",), "0", 0)


def test_sources_need_not_all_be_given(identity):
    record = collect(Collector(identity(), Sources()), 0.0)
    assert (record.topics, record.subscriptions, record.header.reasons) == ((), (), ())
    assert msgspec.structs.asdict(record.header)["roles"] == ("frontend", "consumers")


def test_a_record_says_what_waits_on_the_disk_and_how_much_goes_elsewhere(identity):
    sent = [100]
    sources = Sources(spooled=lambda: 7, elsewhere=lambda: sent[0])
    collector = Collector(identity(), sources)
    assert collect(collector, 0.0).header.elsewhere_rate == 0
    sent[0] += 3
    header = collect(collector, 1.0).header
    assert (header.spooled, header.elsewhere_rate) == (7, 3_000)
