import ssl

import pytest
import trustme
from aiokafka import errors

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.errors import StartupError
from hermes_actors.log.kafka.connection import KafkaCluster

SERVERS = ["kafka1.example.com:9092", "[::1]:9093"]


@pytest.fixture
def files(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("hermes")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    (tmp_path / "password").write_text("s3cret\n")
    return tmp_path


def secured(files, **changes):
    fields = {
        "bootstrap_servers": SERVERS,
        "security_protocol": "SASL_SSL",
        "ca_file": str(files / "ca.pem"),
        "certificate_file": str(files / "certificate.pem"),
        "key_file": str(files / "key.pem"),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "alice",
        "sasl_password_file": str(files / "password"),
    }
    return KafkaCluster("dc1", KafkaClusterConfig(**{**fields, **changes}), KafkaConfig())


def test_a_plain_cluster_needs_its_addresses_only():
    cluster = KafkaCluster("dc1", KafkaClusterConfig(SERVERS), KafkaConfig())
    assert cluster.bootstrap_servers == SERVERS
    assert cluster.security() == {"security_protocol": "PLAINTEXT"}


def test_tls_and_a_login_are_read_from_files(files):
    arguments = secured(files).security()
    assert arguments["sasl_mechanism"] == "SCRAM-SHA-512"
    assert arguments["sasl_plain_username"] == "alice"
    assert arguments["sasl_plain_password"] == "s3cret"
    context = arguments["ssl_context"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1


def test_a_renewed_password_is_used_by_the_next_client(files):
    connection = secured(files)
    (files / "password").write_text("renewed")
    assert connection.security()["sasl_plain_password"] == "renewed"


def test_a_tls_context_is_made_once_for_files_that_stay_the_same(files):
    connection = secured(files)
    context = connection.security()["ssl_context"]
    assert connection.security()["ssl_context"] is context
    ca = files / "ca.pem"
    ca.write_bytes(ca.read_bytes() + b"\n")
    assert connection.security()["ssl_context"] is not context


def test_while_a_file_is_away_what_it_held_last_is_used(files):
    connection = secured(files)
    (files / "password").unlink()
    assert connection.security()["sasl_plain_password"] == "s3cret"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"bootstrap_servers": []}, "bootstrap_servers"),
        ({"bootstrap_servers": ["kafka1"]}, "bootstrap_servers"),
        ({"bootstrap_servers": ["kafka1:port"]}, "bootstrap_servers"),
        ({"bootstrap_servers": ["kafka1:70000"]}, "bootstrap_servers"),
        ({"ca_file": "/nowhere/ca.pem"}, "ca_file"),
        ({"ca_file": "{files}/password"}, "ca_file"),
        ({"certificate_file": "/nowhere/c.pem"}, "certificate_file"),
        ({"certificate_file": ""}, "key_file"),
        ({"key_file": "{files}/ca.pem"}, "certificate_file"),
        ({"sasl_username": ""}, "sasl_username"),
        ({"sasl_password_file": ""}, "sasl_password_file"),
        ({"sasl_password_file": "/nowhere/password"}, "sasl_password_file"),
    ],
)
def test_what_cannot_work_is_said_at_the_start_by_its_field(files, changes, field):
    changes = {
        name: value.replace("{files}", str(files)) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    with pytest.raises(StartupError, match=rf"kafka\.clusters\.dc1\.{field}: "):
        secured(files, **changes)


REFUSED = errors.kafka_errors[58]("Authentication failed")


@pytest.mark.parametrize(
    ("error", "shows"),
    [
        (REFUSED, ["'alice'", "SCRAM-SHA-512", "dc1.sasl_password_file"]),
        (errors.UnsupportedSaslMechanismError("PLAIN only"), ["dc1.sasl_mechanism"]),
        (ssl.SSLCertVerificationError("self-signed"), ["dc1.ca_file"]),
        (ssl.SSLError("wrong version"), ["dc1.security_protocol"]),
        (TimeoutError(), ["no answer within 5000 ms"]),
        (ConnectionRefusedError(111, "no"), ["refused"]),
        (errors.KafkaConnectionError("closed"), ["dc1.security_protocol"]),
        (errors.KafkaConnectionError("no way"), ["no way"]),
    ],
)
def test_failures_name_the_datacentre_and_the_field_and_never_the_password(files, error, shows):
    connection = secured(files)
    line = connection.explain(error, "kafka1:9092")
    assert line.startswith("Kafka of dc1 at kafka1:9092: ")
    assert "\n" not in line
    for text in shows:
        assert text in line
    assert "s3cret" not in line + repr(connection)


def test_a_certificate_is_found_behind_the_error_that_aiokafka_raises(files):
    error = errors.KafkaConnectionError("closed")
    error.__cause__ = ssl.SSLCertVerificationError("expired")
    assert "dc1.ca_file" in secured(files).explain(error)


def test_a_password_in_the_clear_is_warned_of_once(files, caplog):
    secured(files, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN")
    (line,) = caplog.messages
    assert "kafka.clusters.dc1.security_protocol" in line
    assert "s3cret" not in line
