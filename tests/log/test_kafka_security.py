"""TLS and log-ins against real brokers, with certificates made here."""

from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trustme

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.base import Stored, TopicSettings
from hermes_actors.log.kafka.log import open_kafka_log
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import SystemClock
from tests.kafka_security import Security

pytestmark = pytest.mark.kafka

PATIENCE_S = 60
PASSWORD = "s3cret-of-alice"


class Files:
    """One authority, a broker's certificate, a client's, and a password."""

    def __init__(self, folder):
        self.folder = folder
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(folder / "ca.pem")
        self._issue("certificate.pem", "key.pem", "127.0.0.1", "localhost")
        self._issue("client.pem", "client-key.pem", "hermes")
        (folder / "password").write_text(PASSWORD + "\n")

    def _issue(self, certificate_name, key_name, *names):
        certificate = self.authority.issue_cert(*names)
        certificate.private_key_pem.write_to_path(self.folder / key_name)
        with (self.folder / certificate_name).open("wb") as file:
            for pem in certificate.cert_chain_pems:
                file.write(pem.bytes())

    def of_client(self, security):
        """The client's configuration that fits a broker's security; without its addresses."""
        fields = {"security_protocol": security.protocol}
        if security.tls:
            fields["ca_file"] = str(self.folder / "ca.pem")
        if security.client_auth:
            fields["certificate_file"] = str(self.folder / "client.pem")
            fields["key_file"] = str(self.folder / "client-key.pem")
        if security.mechanism != "none":
            fields["sasl_mechanism"] = security.mechanism
            fields["sasl_username"] = security.username
            fields["sasl_password_file"] = str(self.folder / "password")
        return KafkaClusterConfig(**fields)


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "secrets"
    folder.mkdir()
    return Files(folder)


@asynccontextmanager
async def opened(cluster):
    async with open_kafka_log("dc1", cluster, KafkaConfig(), SystemClock()) as log:
        yield log


async def reason_of(cluster):
    """Why a log is not connected."""
    async with opened(cluster) as log:
        with trio.fail_after(PATIENCE_S):
            # What is waited for is on the other loop.
            while log.statistics().reason in ("", "not connected yet"):  # noqa: ASYNC110
                await trio.sleep(0.02)
        assert not log.statistics().is_connected
        return log.statistics().reason


async def use(cluster):
    """Everything that the log has a connection of its own for."""
    with trio.fail_after(PATIENCE_S):
        async with opened(cluster) as log:
            await log.topics.create("t", TopicSettings())
            for ack in (Ack.LEADER, Ack.ALL):
                (outcome,) = await log.append("t", 0, [Record(None, b"v", (), 1)], ack)
                assert isinstance(outcome, Stored)
            async with log.reader("t", {0: 0}) as reader:
                assert [each.value for each in await reader.next_batch(2, 1_000)][:1] == [b"v"]


async def test_tls_with_certificates_on_both_sides(files, make_kafka_cluster):
    security = Security(files.folder, tls=True, client_auth=True)
    config = files.of_client(security)
    kafka = await trio.to_thread.run_sync(lambda: make_kafka_cluster(**security.options()))
    config = msgspec.structs.replace(config, bootstrap_servers=kafka.bootstrap_servers)
    await use(config)

    stranger = trustme.CA()
    stranger.cert_pem.write_to_path(files.folder / "stranger.pem")
    distrusting = msgspec.structs.replace(config, ca_file=str(files.folder / "stranger.pem"))
    assert "kafka.clusters.dc1.ca_file" in await reason_of(distrusting)

    anonymous = msgspec.structs.replace(config, certificate_file="", key_file="")
    assert "kafka.clusters.dc1.certificate_file" in await reason_of(anonymous)

    plain = msgspec.structs.replace(config, security_protocol="PLAINTEXT")
    assert "kafka.clusters.dc1.security_protocol" in await reason_of(plain)


@pytest.mark.parametrize(
    ("mechanism", "tls"),
    [("SCRAM-SHA-512", True), ("SCRAM-SHA-256", False), ("PLAIN", True)],
)
async def test_a_login_works_and_a_wrong_password_is_told_by_its_field(
    files, make_kafka_cluster, mechanism, tls
):
    security = Security(
        files.folder, mechanism=mechanism, username="alice", password=PASSWORD, tls=tls
    )
    kafka = await trio.to_thread.run_sync(lambda: make_kafka_cluster(**security.options()))
    config = msgspec.structs.replace(
        files.of_client(security), bootstrap_servers=kafka.bootstrap_servers
    )
    await use(config)

    (files.folder / "password").write_text("wrong")
    reason = await reason_of(config)
    assert "dc1" in reason
    assert "'alice'" in reason
    assert "kafka.clusters.dc1.sasl_password_file" in reason
    assert "wrong" not in reason

    other = "PLAIN" if mechanism != "PLAIN" else "SCRAM-SHA-256"
    (files.folder / "password").write_text(PASSWORD)
    reason = await reason_of(msgspec.structs.replace(config, sasl_mechanism=other))
    assert "kafka.clusters.dc1.sasl_mechanism" in reason


async def test_no_append_is_unknown_because_a_log_in_has_become_too_old(files, make_kafka_cluster):
    security = Security(files.folder, mechanism="PLAIN", username="alice", password=PASSWORD)
    options = security.options()
    options["settings"]["connections.max.reauth.ms"] = "2000"
    kafka = await trio.to_thread.run_sync(lambda: make_kafka_cluster(**options))
    config = msgspec.structs.replace(
        files.of_client(security), bootstrap_servers=kafka.bootstrap_servers
    )
    async with opened(config) as log:
        with trio.fail_after(PATIENCE_S):
            while not log.statistics().is_connected:  # noqa: ASYNC110
                await trio.sleep(0.02)
            await log.topics.create("t", TopicSettings())
        until_s = trio.current_time() + 7
        position = 0
        async with log.reader("t", {0: 0}) as reader:
            while trio.current_time() < until_s:
                (outcome,) = await log.append("t", 0, [Record(None, b"v", (), 1)], Ack.LEADER)
                assert outcome == Stored(position)
                (found,) = await reader.next_batch(10, 1_000)
                assert found.offset == position
                position += 1
                await trio.sleep(0.02)
        assert log.statistics().lost == 0


async def test_a_log_closes_soon_while_a_broker_with_tls_is_stopped(files, make_kafka_cluster):
    security = Security(files.folder, tls=True)
    kafka = await trio.to_thread.run_sync(lambda: make_kafka_cluster(**security.options()))
    config = msgspec.structs.replace(
        files.of_client(security), bootstrap_servers=kafka.bootstrap_servers
    )
    async with opened(config) as log:
        await log.topics.create("t", TopicSettings())
        await log.append("t", 0, [Record(None, b"v", (), 1)], Ack.ALL)
        (broker,) = kafka.brokers
        broker.pause()
        started_s = trio.current_time()
    broker.resume()
    assert trio.current_time() - started_s < 5
