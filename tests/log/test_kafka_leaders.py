"""What a cluster says of its topics and leaders is believed for what it is worth."""

import asyncio  # noqa: TID251 -- brokers are asked on the host loop
import logging
import random
from types import SimpleNamespace

import aiokafka.errors as kafka_errors
import pytest

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.base import RefusedRecord, UnavailableRecord
from hermes_actors.log.kafka.brokers import Brokers
from hermes_actors.log.kafka.connection import RECONNECT_BACKOFF_MAX_S, KafkaCluster
from hermes_actors.log.kafka.leaders import Leaders
from hermes_actors.log.kafka.perpetual import Perpetual
from hermes_actors.log.kafka.producers import Producers
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock, system_rng
from tests.seeds import seeds

NO_RIGHT = kafka_errors.TopicAuthorizationFailedError.errno
UNKNOWN = kafka_errors.UnknownTopicOrPartitionError.errno


class ScriptedBrokers(Brokers):
    """`codes`: what is said of each topic, in turn, the last for ever; no broker is up."""

    def __init__(self, *codes):
        cluster = KafkaClusterConfig(["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"])
        settings = KafkaConfig(reconnect_backoff_ms=1)
        super().__init__(KafkaCluster("dc1", cluster, settings), system_rng())
        self.codes = list(codes)

    async def describe(self, topics, *, node=None):
        code = self.codes.pop(0) if len(self.codes) > 1 and topics else self.codes[0]
        return [(code, topic, False, []) for topic in topics]


def append(brokers):
    async def main():
        producers = Producers(brokers, SystemClock(), system_rng())
        await guest.call(producers.open)
        try:
            return await producers.append("t", 0, [Record(None, b"v", (), 1)], Ack.ALL)
        finally:
            await guest.call(producers.close)

    return guest.run(main)


def test_a_topic_without_rights_is_not_called_unknown():
    (outcome,) = append(ScriptedBrokers(NO_RIGHT))
    assert isinstance(outcome, UnavailableRecord)
    assert "topic t" in outcome.reason
    assert "TopicAuthorizationFailed" in outcome.reason or "29" in outcome.reason


def test_a_topic_that_no_broker_has_is_refused():
    (outcome,) = append(ScriptedBrokers(UNKNOWN))
    assert outcome == RefusedRecord("there is no topic t")


@pytest.mark.slow
def test_a_defect_does_not_end_the_search_for_brokers(caplog):
    caplog.set_level(logging.ERROR)

    class Defective(ScriptedBrokers):
        asked = 0

        async def describe(self, topics, *, node=None):
            self.asked += 1
            if self.asked == 1:
                raise LookupError("a defect")
            return await super().describe(topics, node=node)

    async def main():
        brokers = Defective(UNKNOWN)
        producers = Producers(brokers, SystemClock(), system_rng())
        await producers.open()
        try:
            async with asyncio.timeout(30):
                while not producers.statistics().is_connected:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            await producers.close()

    asyncio.run(main())
    (told,) = caplog.records
    assert "asking Kafka of dc1 who leads failed and starts again" in told.getMessage()
    assert told.exc_info is not None


def test_perpetual_work_ends_when_it_is_closed_also_between_two_runs():
    runs = []

    async def work():
        runs.append(1)
        raise LookupError("a defect")

    async def main():
        perpetual = Perpetual(work, "it")
        perpetual.start()
        await asyncio.sleep(0.01)
        await perpetual.close()
        assert perpetual._pause is None or perpetual._pause.cancelled()

    asyncio.run(main())
    assert runs == [1]


def test_a_broker_that_knows_no_better_is_not_asked_next():
    async def main():
        brokers = ScriptedBrokers(UNKNOWN)
        brokers._last = ("127.0.0.1", 2)
        asked = []
        for _ in range(4):
            asked.append(brokers._candidates()[0][1])
            brokers.doubt()
        return asked

    assert asyncio.run(main()) == [2, 3, 1, 2]


class AwayUntil(KafkaCluster):
    """A cluster whose brokers refuse connections until `up_s`, then answer."""

    def __init__(self, up_s):
        servers = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
        super().__init__("dc1", KafkaClusterConfig(servers), KafkaConfig())
        self.up_s = up_s
        self.attempts = 0

    async def connect(self, host, port, purpose, *, timeout_ms=None):
        self.attempts += 1
        if asyncio.get_running_loop().time() < self.up_s:
            raise ConnectionRefusedError
        return AnsweringConnection()


class AnsweringConnection:
    def connected(self):
        return True

    def close(self, reason=None):
        pass

    async def send(self, request):
        return SimpleNamespace(brokers=[(1, "127.0.0.1", 1)], topics=[])


@pytest.mark.parametrize("seed", seeds(20))
def test_a_cluster_that_is_back_is_found_within_a_second(seed, jumping_loop):
    rng = random.Random(seed)
    loop = jumping_loop()
    connection = AwayUntil(rng.uniform(5, 120))

    async def main():
        brokers = Brokers(connection, rng)
        changed = asyncio.Event()
        leaders = Leaders(brokers, loop, rng, lambda: leaders.is_connected and changed.set())
        leaders.start()
        await changed.wait()
        late_s = loop.time() - connection.up_s
        await leaders.close()
        await brokers.close()
        return late_s

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        late_s = runner.run(main())
    assert 0 <= late_s <= RECONNECT_BACKOFF_MAX_S
    assert RECONNECT_BACKOFF_MAX_S <= 1.0
    # Each broker is tried about once a second, not in a tight circle.
    assert connection.attempts <= 3 * (2 * connection.up_s + 5)
