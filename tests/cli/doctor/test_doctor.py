"""`hermes doctor` run as somebody on call runs it: whatever is broken, it answers in time."""

import json
import logging
import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import pytest
import trustme

from hermes_local.ports import free_ports


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)
    publish, management = free_ports(2)
    (tmp_path / "node.toml").write_text(
        f"node = 'n1'\n[frontend]\nport = {publish}\n[management]\nport = {management}\n"
    )
    return tmp_path


def add(folder, text):
    with (folder / "node.toml").open("a") as file:
        file.write(text)


def doctor(hermes, *more, timeout_s="3"):
    result = hermes("doctor", "node.toml", "--json", "--timeout-s", timeout_s, *more)
    found = json.loads(result.stdout)
    assert result.exit_code == (1 if found["grade"] == "FAIL" else 0)
    return found


def those(found, grade):
    return [each for each in found["diagnoses"] if each["grade"] == grade]


def test_before_the_first_start_all_is_well_and_nothing_is_made(hermes, folder):
    before = (folder / "node.toml").stat().st_mtime_ns
    found = doctor(hermes)
    assert those(found, "FAIL") == []
    assert (found["dc"], found["node"]) == ("dc1", "n1")
    assert [each["check"] for each in those(found, "WARN")] == ["node"]
    assert "no node runs here" in those(found, "WARN")[0]["seen"]
    assert [each.name for each in folder.iterdir()] == ["node.toml"]
    assert (folder / "node.toml").stat().st_mtime_ns == before


def test_people_read_a_line_for_each_and_the_sum(hermes, folder):
    result = hermes("doctor", "node.toml")
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "OK    config      node n1 of dc1, frontend, consumers, management: node.toml: valid"
    )
    assert lines[-1].startswith("1 WARN, ")


def test_looking_at_nothing_but_defaults_is_a_warning(hermes, folder):
    (folder / "node.toml").write_text("")
    first, *_ = doctor(hermes)["diagnoses"]
    assert (first["check"], first["grade"]) == ("config", "WARN")


def test_looking_at_nothing_at_all_fails_and_says_so(hermes, folder, monkeypatch):
    monkeypatch.setenv("HERMES_FRONTEND_PORT", str(free_ports(1)[0]))
    result = hermes("doctor", "--json")
    assert result.exit_code == 1
    (failure,) = those(json.loads(result.stdout), "FAIL")
    assert "nothing was checked" in failure["seen"]


def test_what_a_start_would_warn_of_is_a_finding(hermes, folder, monkeypatch):
    def warn(config, now_ms):
        logging.getLogger("hermes_actors.x").warning("it is odd; mend it")
        return iter(())

    monkeypatch.setattr("hermes_actors.cli.doctor.command.look_at_machine", warn)
    (warning,) = [each for each in doctor(hermes)["diagnoses"] if each["check"] == "start"]
    assert (warning["seen"], warning["wayOut"]) == ("it is odd", "mend it")


def test_a_running_node_says_which_dependency_fails(hermes, folder, server):
    port = server.url.rpartition(":")[2]
    (folder / "node.toml").write_text(f"node = 'n1'\n[frontend]\nport = {port}\n")
    names = {"metadata": ("", True), "log": ("Kafka is away", True), "log dc2": ("late", False)}
    listed = [
        {"name": name, "isWorking": not reason, "isNeeded": is_needed, "reason": reason}
        for name, (reason, is_needed) in names.items()
    ]
    body = {"dc": "dc1", "node": "n1", "phase": "SERVING", "dependencies": listed}
    server.on("GET /status/details", (200, body))
    found = [each for each in doctor(hermes)["diagnoses"] if each["check"] == "node"]
    assert [(each["grade"], each["about"], each["seen"]) for each in found] == [
        ("FAIL", "n1 of dc1, log", "Kafka is away"),
        ("WARN", "n1 of dc1, log dc2", "late"),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [("[kafka]\nreplication_factor = 'x'\n", "Expected `int`"), ("= =", "not valid TOML")],
)
def test_a_broken_configuration_is_one_failure_with_its_place(hermes, folder, text, says):
    (folder / "node.toml").write_text(text)
    (only,) = doctor(hermes)["diagnoses"]
    assert says in only["seen"]
    result = hermes("doctor", "nowhere.toml")
    assert result.exit_code == 1
    assert "nowhere.toml: cannot be read" in result.stdout


@pytest.mark.slow
def test_what_hangs_at_the_nodes_port_keeps_nobody_waiting(hermes, folder):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        (folder / "node.toml").write_text(f"[frontend]\nport = {port}\n[management]\nport = 0\n")
        (failure,) = those(doctor(hermes, timeout_s="4"), "FAIL")
    assert failure["about"] == f"frontend.port 127.0.0.1:{port}"
    assert "does not answer like a node" in failure["seen"]


def test_a_program_that_is_no_node_is_told_apart_from_one(hermes, folder, server):
    port = server.url.rpartition(":")[2]
    (folder / "node.toml").write_text(f"[frontend]\nport = {port}\n[management]\nport = 0\n")
    server.on("GET /status/details", (200, []))
    (failure,) = those(doctor(hermes), "FAIL")
    assert "does not answer like a node" in failure["seen"]
    other = {"dc": "dc2", "node": "n9", "phase": "SERVING", "dependencies": []}
    server.on("GET /status/details", (200, other))
    (failure,) = those(doctor(hermes), "FAIL")
    assert "HERMES_DC=dc2 HERMES_NODE=n9" in failure["wayOut"]


def test_kafka_that_is_away_is_told_for_each_datacentre(hermes, folder):
    (port,) = free_ports(1)
    add(folder, f"[kafka.clusters.dc1]\nbootstrap_servers = ['127.0.0.1:{port}']\n")
    add(folder, "[kafka.clusters.dc2]\nbootstrap_servers = ['kafka.invalid:9092']\n")
    own, other = those(doctor(hermes), "FAIL")
    assert own["about"] == f"Kafka of dc1, 127.0.0.1:{port}"
    assert own["seen"] == "the connection was refused"
    assert other["about"] == "Kafka of dc2, kafka.invalid:9092"
    assert "name" in other["seen"]


def test_files_that_are_gone_and_certificates_that_ended_are_told(hermes, folder):
    authority = trustme.CA()
    (folder / "ca.pem").write_bytes(authority.cert_pem.bytes())
    old = authority.issue_cert("a.test", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    (folder / "cert.pem").write_bytes(old.cert_chain_pems[0].bytes())
    (folder / "key.pem").write_bytes(old.private_key_pem.bytes())
    add(folder, "[frontend.tls]\ncertificate_file = 'cert.pem'\nkey_file = 'key.pem'\nport = 0\n")
    add(folder, "[consumers.tls]\nca_file = 'ca.pem'\n[security]\nusers_file = 'gone.toml'\n")
    found = doctor(hermes)
    failures = {each["about"]: each["seen"] for each in those(found, "FAIL")}
    certificate, users = sorted(failures)
    assert certificate == "frontend.tls.certificate_file: cert.pem"
    assert users == "security.users_file: gone.toml"
    assert "expired" in failures[certificate]
    assert any(each["about"] == "consumers.tls.ca_file: ca.pem" for each in found["diagnoses"])


def test_a_registry_and_a_collector_that_are_away_are_told_without_secrets(
    hermes, folder, monkeypatch
):
    registry, collector = free_ports(2)
    (folder / "secret").write_text("hunter2")
    add(folder, f"[schema]\nregistry = 'http'\nurls = ['http://127.0.0.1:{registry}']\n")
    add(folder, "user = 'ada'\npassword_file = 'secret'\n")
    endpoint = f"http://ada:hunter2@127.0.0.1:{collector}/?token=hunter2"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    result = hermes("doctor", "node.toml")
    assert result.exit_code == 1
    assert f"FAIL  registry    http://127.0.0.1:{registry}" in result.stdout
    assert f"WARN  telemetry   traces to 127.0.0.1:{collector}" in result.stdout
    assert "hunter2" not in result.stdout + result.stderr


def test_a_folder_that_cannot_be_made_is_told(hermes, folder):
    (folder / "hermes-spool").write_text("a file")
    failures = those(doctor(hermes), "FAIL")
    assert "is not a folder" in failures[0]["seen"]


@contextmanager
def serving_tls(folder, connections=1):
    """A TLS server on the port that is given, whose certificate is in `old.pem`; it reads a byte of
    each connection.
    """
    authority = trustme.CA()
    for name in ("old", "new"):
        leaf = authority.issue_cert("a.test")
        leaf.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "old.pem")

    def serve() -> None:
        for _ in range(connections):
            with suppress(OSError):
                client, _ = listener.accept()
                with context.wrap_socket(client, server_side=True) as secured:
                    secured.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(("file", "grade"), [("old.pem", "OK"), ("new.pem", "WARN")])
def test_the_certificate_that_is_served_is_the_one_in_the_file(hermes, folder, server, file, grade):
    body = {"dc": "dc1", "node": "n1", "phase": "SERVING", "dependencies": []}
    server.on("GET /status/details", (200, body))
    with serving_tls(folder) as tls_port:
        port = server.url.rpartition(":")[2]
        (folder / "node.toml").write_text(
            f"node = 'n1'\n[frontend]\nport = {port}\n[frontend.tls]\nport = {tls_port}\n"
            f"certificate_file = '{file}'\nkey_file = '{file}'\n"
        )
        found = doctor(hermes)["diagnoses"]
    (served,) = [each for each in found if each["check"] == "certificate"]
    assert served["grade"] == grade, served["seen"]


def test_a_node_that_answers_certificates_alone_still_has_its_own_looked_at(hermes, folder):
    with serving_tls(folder, connections=2) as port:
        (folder / "node.toml").write_text(
            "roles = ['frontend']\n[frontend]\nhost = '0.0.0.0'\nauthentication.enabled = true\n"
            f"[frontend.tls]\nport = {port}\nonly = true\n"
            "certificate_file = 'old.pem'\nkey_file = 'old.pem'\n"
            "client_auth = 'required'\nclient_ca_file = 'old.pem'\n"
            "[security.certificates]\nenabled = true\n"
        )
        found = doctor(hermes)["diagnoses"]
    grades = {each["check"]: (each["grade"], each["about"]) for each in found}
    assert grades["node"] == ("WARN", f"frontend.tls.port 0.0.0.0:{port}")
    assert grades["certificate"][0] == "OK"
    assert "start" not in grades, "no plain listener is open"
