"""What is deployed refers only to what exists: files, services, users."""

import importlib.util
import json
import re
import runpy
import tomllib
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from hermes_actors import config
from hermes_local.compose import HEALTHCHECK, NODE_CONFIG, NODE_IMAGE, NODE_WORDS

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
NODES = {name: each for name, each in SERVICES.items() if "HERMES_NODE" in str(each)}
PORTS = {"frontend": 8080, "consumers": 8070, "management": 8090}


@dataclass
class Stage:
    """One stage: `instructions` in order; `copied` maps paths of the image to the context's."""

    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)
    copied: dict[str, str] = field(default_factory=dict)

    def last(self, name: str) -> str | None:
        """The argument of the last such instruction."""
        return next((text for each, text in reversed(self.instructions) if each == name), None)

    def words(self, name: str) -> tuple[str, ...]:
        """The same as a list, from its JSON form."""
        return tuple(json.loads(self.last(name) or "[]"))


def stages(dockerfile: str = "Dockerfile") -> list[Stage]:
    text = (DEPLOY / dockerfile).read_text()
    found: list[Stage] = []
    for name, argument in instructions(text):
        if name == "FROM":
            found.append(Stage(argument.split()[0]))
            continue
        if not found:
            continue
        found[-1].instructions.append((name, argument))
        if name == "COPY" and not argument.startswith("--from"):
            *sources, target = argument.split()
            for source in sources:
                whole = target.rstrip("/")
                if target.endswith("/") and not source.endswith("/"):
                    whole = f"{whole}/{Path(source).name}"
                found[-1].copied[whole] = source
    return found


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, its whole argument) in order, continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines) + "\n")
    return [
        (word.upper(), rest.strip())
        for word, _, rest in (line.strip().partition(" ") for line in joined.splitlines())
        if word
    ]


def locked(path):
    return set(re.findall(r"^([a-z0-9._-]+==\S+)", path.read_text(), re.MULTILINE))


# The image


@pytest.mark.parametrize("dockerfile", ["Dockerfile", "spark/Dockerfile"])
def test_every_file_that_the_image_copies_exists_and_is_let_into_the_build(dockerfile):
    let_in = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    copied = [source for stage in stages(dockerfile) for source in stage.copied.values()]
    assert len(copied) >= 8
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source.split("/")[0] in let_in, f".dockerignore keeps {source} out"


def test_the_image_runs_a_node_as_nobody_in_particular():
    image = stages()[-1]
    uid, _, gid = image.last("USER").partition(":")
    assert int(uid) >= 10_000
    assert uid == gid
    assert f"hermes:x:{uid}:{gid}:" in (DEPLOY / "Dockerfile").read_text()
    assert image.words("ENTRYPOINT") == ("hermes",)
    assert image.words("CMD") == ("node", "--config", "/etc/hermes/node.toml")
    assert image.last("STOPSIGNAL") == "SIGTERM"
    assert [name for name, _ in image.instructions].index("USER") > 0


def test_the_launcher_without_docker_runs_what_the_image_runs():
    image = stages()[-1]
    assert image.words("ENTRYPOINT") == ("hermes",)
    assert image.words("CMD") == (*NODE_WORDS[-2:], NODE_CONFIG)
    assert image.copied[HEALTHCHECK] == "deploy/healthcheck.py"
    assert all(node["image"].startswith(NODE_IMAGE) for node in NODES.values())


def test_nothing_after_the_user_is_set_needs_root():
    names = [name for name, _ in stages()[-1].instructions]
    assert not {"RUN", "COPY", "ADD"} & set(names[names.index("USER") :])


def test_the_image_says_how_its_health_is_asked_and_holds_what_that_needs():
    image = stages()[-1]
    check = image.last("HEALTHCHECK")
    command = json.loads(check.partition("CMD")[2])
    assert command[0] == "python"
    assert image.copied[command[1]] == "deploy/healthcheck.py"
    assert "curl" not in (DEPLOY / "Dockerfile").read_text()


def test_the_image_has_no_system_and_its_environment_comes_from_one_stage():
    build, runtime = stages()
    assert build.base == "${PYTHON_IMAGE}"
    assert runtime.base == "scratch"
    assert not [text for name, text in runtime.instructions if name == "RUN"]


def test_the_spark_image_runs_as_the_same_user_and_spark_s_words_reach_its_entry_point():
    image = stages("spark/Dockerfile")[-1]
    assert image.last("USER") == stages()[-1].last("USER")
    assert image.copied[image.words("ENTRYPOINT")[-1]] == "deploy/spark/entrypoint.py"
    assert image.copied["/opt/hermes/__main__.py"] == "spark/hermes_spark/__main__.py"


def test_the_image_opens_the_ports_of_all_roles_and_of_grpc():
    opened = set(stages()[-1].last("EXPOSE").split())
    assert opened == {str(port) for port in (*PORTS.values(), config.Config().grpc.port)}


def test_images_are_named_without_a_registry_and_with_a_version():
    images = {service["image"] for service in SERVICES.values()}
    assert len(images) == 5
    for image in images:
        name, _, version = image.partition(":")
        assert re.fullmatch(r"[a-z0-9-]+(?:/[a-z0-9-]+)?", name), image
        assert re.search(r"\d", version), image


def test_everything_in_the_image_is_locked_with_a_hash_as_in_the_whole_lock():
    whole = locked(ROOT / "requirements.lock")
    runtime, build = locked(DEPLOY / "requirements.lock"), locked(DEPLOY / "build.lock")
    assert runtime <= whole
    assert build <= whole
    assert any(each.startswith("httptools==") for each in runtime)
    assert any(each.startswith("hatchling==") for each in build)
    assert not any(each.startswith(("pytest==", "mypy==")) for each in runtime)
    for name in ("requirements.lock", "build.lock"):
        text = (DEPLOY / name).read_text()
        assert "://" not in text
        requirements = re.split(r"\n(?=\S)", text.strip())
        assert [each for each in requirements if "--hash=sha256:" not in each] == []


def test_each_direct_dependency_of_the_product_is_in_the_image():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    written = [re.match(r"[A-Za-z0-9._-]+", each)[0] for each in project["dependencies"]]
    # As locks write names: a dash for an underscore.
    wanted = {each.replace("_", "-") for each in written}
    names = {each.partition("==")[0] for each in locked(DEPLOY / "requirements.lock")}
    assert wanted <= names


def test_the_label_tells_the_version_of_the_project():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for dockerfile in ("Dockerfile", "spark/Dockerfile"):
        assert f'image.version="{version}"' in stages(dockerfile)[-1].last("LABEL")
    assert all(f":-{version}}}" in node["image"] for node in NODES.values())


# The bill of materials


@pytest.fixture(scope="module")
def bill():
    return runpy.run_path(str(DEPLOY / "sbom.py"))["bill"]()


def test_the_bill_of_materials_has_each_package_of_the_image_with_its_hashes(bill):
    written = {each["purl"]: each["externalReferences"][0]["hashes"] for each in bill["components"]}
    text = (DEPLOY / "requirements.lock").read_text()
    wanted = {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        name, version = re.match(r"(\S+)==(\S+)", entry).groups()
        if "'win32'" not in entry:
            wanted[f"pkg:pypi/{name}@{version}"] = re.findall(r"sha256:(\w+)", entry)
    assert {ref: [each["content"] for each in hashes] for ref, hashes in written.items()} == wanted


def test_the_bill_of_materials_is_valid_and_names_no_host(bill):
    text = json.dumps(bill)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert re.findall(r"https?://[^\"]+", text) == [bill["$schema"]]
    refs = {each["bom-ref"] for each in [bill["metadata"]["component"], *bill["components"]]}
    assert {each["ref"] for each in bill["dependencies"]} == refs
    reached, new = set(), {bill["metadata"]["component"]["bom-ref"]}
    graph = {each["ref"]: set(each["dependsOn"]) for each in bill["dependencies"]}
    while new:
        reached |= new
        new = set().union(*(graph[each] for each in new)) - reached
    assert reached == refs, "a package that nothing needs"


# The health check


@pytest.fixture
def healthcheck():
    spec = importlib.util.spec_from_file_location("healthcheck", DEPLOY / "healthcheck.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def page():
    """A page that answers with the status in its path: its URL."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(int(self.path[1:]))
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"DOWN")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_node_is_healthy_when_each_page_that_was_named_answers_200(healthcheck, page, capsys):
    assert healthcheck.main([f"{page}/200"]) == 0
    assert healthcheck.main([f"{page}/200", f"{page}/503"]) == 1
    assert "503 DOWN" in capsys.readouterr().out


def test_a_page_that_nobody_serves_is_not_healthy(healthcheck, capsys):
    assert healthcheck.main(["http://127.0.0.1:1/"]) == 1
    assert "refused" in capsys.readouterr().out


def test_without_names_the_pages_that_are_served_decide(healthcheck, page, monkeypatch, capsys):
    nobody = "http://127.0.0.1:1/"
    monkeypatch.setattr(healthcheck, "DEFAULTS", (nobody, f"{page}/200"))
    assert healthcheck.main([]) == 0
    monkeypatch.setattr(healthcheck, "DEFAULTS", (f"{page}/200", f"{page}/503"))
    assert healthcheck.main([]) == 1
    monkeypatch.setattr(healthcheck, "DEFAULTS", (nobody,))
    assert healthcheck.main([]) == 1
    assert "no status page" in capsys.readouterr().out


def test_the_default_pages_are_those_of_the_default_ports(healthcheck):
    default = config.Config()
    # Every node has one of these; management's own page is down while Kafka is.
    ports = [default.frontend.port, default.frontend.tls.port, default.status.port]
    assert [int(re.search(r":(\d+)/", url)[1]) for url in healthcheck.DEFAULTS] == ports


# The nodes


def config_of(name):
    """The configuration that a service's container would run with."""
    service = NODES[name]
    mount, *_others = service["volumes"]
    source, target, _ = mount.split(":")
    assert target == "/etc/hermes/node.toml"
    return config.load(DEPLOY / source, service["environment"])


def test_each_frontend_has_a_volume_of_its_own_for_its_spool():
    volumes = {}
    for name, service in NODES.items():
        spools = [mount for mount in service["volumes"] if mount.endswith(":/var/lib/hermes")]
        if "frontend" in config_of(name).roles:
            (volumes[name],) = spools
            assert config_of(name).spool.directory.startswith("/var/lib/hermes/")
        else:
            assert spools == []
    assert len(set(volumes.values())) == len(volumes) == 4


def test_there_are_two_of_each_but_one_management_in_each_datacentre():
    roles = [(config_of(name).dc, *config_of(name).roles) for name in NODES]
    expected = [("frontend", 2), ("consumers", 2), ("management", 1)]
    assert sorted(roles) == sorted(
        (dc, role) for dc in ("dc1", "dc2") for role, count in expected for _ in range(count)
    )


@pytest.mark.parametrize("name", NODES)
def test_a_nodes_configuration_is_valid_and_fits_its_service(name):
    node = config_of(name)
    (role,) = node.roles
    assert node.node == name
    assert f"-{node.dc}" in name
    for section in (node.frontend, node.management, node.status):
        assert section.host == "0.0.0.0"
    ports = {"frontend": node.frontend.port, "management": node.management.port}
    assert ports.get(role, node.status.port) == PORTS[role]
    assert f":{PORTS[role]}/" in NODES[name]["healthcheck"]["test"][-1]


@pytest.mark.parametrize("name", NODES)
def test_a_stop_reaches_a_node_that_has_not_begun_to_listen_for_it(name):
    # Process 1 of a container takes no signal that it has no handler for, so it must be another.
    assert NODES[name]["init"] is True


@pytest.mark.parametrize("name", NODES)
def test_a_node_knows_both_clusters_and_names_no_replicator(name):
    node = config_of(name)
    for dc, cluster in node.kafka.clusters.items():
        (server,) = cluster.bootstrap_servers
        service, _, port = server.partition(":")
        advertised = SERVICES[service]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
        assert advertised == f"PLAINTEXT://{service}:{port}"
        assert dc in service
        assert set(SERVICES[service]["networks"]) & set(NODES[name]["networks"])
    assert set(node.kafka.clusters) == {"dc1", "dc2"}
    assert not node.metadata.replicator


@pytest.mark.parametrize("name", NODES)
def test_a_node_has_more_time_to_end_than_its_drain_takes(name):
    node = config_of(name)
    frontend_s = (
        node.frontend.graceful_shutdown_initial_wait_ms + node.frontend.graceful_shutdown_drain_ms
    ) / 1_000
    # What waits for the log then has 20 s, the consumers' last commits 10 s, side by side.
    assert int(NODES[name]["stop_grace_period"].rstrip("s")) > frontend_s + 20
    assert node.consumers.stop_grace_ms / 1_000 + 10 < 45


@pytest.mark.parametrize("name", NODES)
def test_a_node_gets_no_more_than_it_needs(name):
    node = NODES[name]
    assert node["read_only"] is True
    assert node["cap_drop"] == ["ALL"]
    assert node["security_opt"] == ["no-new-privileges:true"]
    assert node["deploy"]["resources"]["limits"]["memory"]
    assert node["restart"] == "unless-stopped"


def test_ports_are_published_to_this_machine_alone_and_none_twice():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) >= 6
    defaults = [re.fullmatch(r"127\.0\.0\.1:\$\{\w+:-(\d+)\}:\d+", port)[1] for port in ports]
    assert len(set(defaults)) == len(ports)


def test_every_mounted_file_is_there():
    for service in SERVICES.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), source
            else:
                assert source in COMPOSE["volumes"]


def test_kafka_is_the_version_that_the_tests_run():
    pom = (DEPLOY / "local" / "hermes_local" / "pom.xml").read_text()
    version = re.search(r"<kafka.version>([\d.]+)</kafka.version>", pom)[1]
    assert {SERVICES[name]["image"] for name in ("kafka-dc1", "kafka-dc2")} == {
        f"apache/kafka:{version}"
    }
    ids = [SERVICES[name]["environment"]["CLUSTER_ID"] for name in ("kafka-dc1", "kafka-dc2")]
    assert len(set(ids)) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{22}", each) for each in ids)


# What looks at them


def scraped():
    tree = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    return {job["job_name"]: job for job in tree["scrape_configs"]}


def test_prometheus_asks_every_node_where_it_answers():
    job = scraped()["hermes"]
    assert job["metrics_path"] == "/status/prometheus"
    found = {}
    for group in job["static_configs"]:
        for target in group["targets"]:
            found[target] = group["labels"]
    assert found == {
        f"{name}:{PORTS[node.roles[0]]}": {"dc": node.dc, "role": node.roles[0]}
        for name, node in ((name, config_of(name)) for name in NODES)
    }
    watching = set(SERVICES["prometheus"]["networks"])
    assert all(watching & set(NODES[target.split(":")[0]]["networks"]) for target in found)


def test_prometheus_asks_the_collector_where_it_answers():
    collector = yaml.safe_load((DEPLOY / "otel" / "collector.yaml").read_text())
    reader = collector["service"]["telemetry"]["metrics"]["readers"][0]
    own = reader["pull"]["exporter"]["prometheus"]["port"]
    passed_on = collector["exporters"]["prometheus"]["endpoint"].rpartition(":")[2]
    (group,) = scraped()["otel-collector"]["static_configs"]
    assert group["targets"] == [f"otel-collector:{own}", f"otel-collector:{passed_on}"]
    for pipeline in collector["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= set(collector[kind])
