"""The contents of two Kafka clusters, read with librdkafka and loops, without the product."""

from collections import Counter

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic


def records_of(servers, topics):
    """(topic, message id, datacentre, route) of each record; `servers` by datacentre."""
    found = []
    for dc, address in servers.items():
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "oracle",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        for topic in topics:
            found += [(topic, *each, dc) for each in _whole_topic(consumer, topic)]
        consumer.close()
    return [(topic, message_id, dc, way) for topic, message_id, way, dc in found]


def _whole_topic(consumer, topic):
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    left = set(partitions)
    while left:
        record = consumer.poll(30)
        assert record is not None, f"{topic} does not end"
        if record.error():
            # The end of a partition.
            left.discard(record.partition())
            continue
        headers = dict(record.headers() or ())
        yield headers["id"].decode(), headers["via"].decode()


def causes(records):
    """By topic: how many messages have further copies by each cause, and the number of
    such copies.
    """
    order = ["local", "fallback", "hedge", "spool"]
    copies = {}
    for topic, message_id, _, way in records:
        copies.setdefault((topic, message_id), []).append(way)
    found, surplus = {}, Counter()
    for (topic, _), ways in copies.items():
        if len(ways) > 1:
            surplus[topic] += len(ways) - 1
            named = sorted(set(ways), key=order.index)[1:]
            if len(ways) > len(set(ways)):
                named.append("again")
            found.setdefault(topic, Counter()).update(named)
    return found, surplus


def lose(address, topics):
    """Delete the topics and create them again, empty, as in a cluster that lost its disks."""
    admin = AdminClient({"bootstrap.servers": address})
    counts = {
        topic: len(admin.list_topics(topic, timeout=30).topics[topic].partitions)
        for topic in topics
    }
    for done in admin.delete_topics(topics, operation_timeout=30).values():
        done.result()
    made = set()
    while made != set(topics):
        # A deletion continues for a moment after its answer.
        wanted = [NewTopic(topic, counts[topic], 1) for topic in topics if topic not in made]
        for topic, done in admin.create_topics(wanted, operation_timeout=30).items():
            if done.exception() is None:
                made.add(topic)
