"""What the chart passes on unchanged: the nodes' settings, alerts, dashboards, and itself."""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

from hermes_actors.config import Config, load
from hermes_actors.node.measures import tables
from tests.kubernetes.chart import CHART, RELEASE, ROOT, VALUES, Refused, helm, of_kind, rendered
from tests.kubernetes.programs import BUILD_WITHIN_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILD_WITHIN_S)]

MINIMAL = "values-minimal.yaml"
DC1 = "values-dc1.yaml"
EVERYTHING = "everything.yaml"
TLS = {name: {"enabled": True, "secretName": "certificate"} for name in ("frontend", "management")}


def test_a_package_renders_as_the_checkout_does(tmp_path):
    helm("package", str(CHART), f"--destination={tmp_path}")
    (package,) = tmp_path.glob("*.tgz")
    for values in VALUES.values():
        texts = [
            helm("template", RELEASE, str(chart), f"--values={values}")
            for chart in (package, CHART)
        ]
        assert texts[0] == texts[1], values.name


def test_alerts_and_dashboards_are_those_of_the_compose_file():
    objects = rendered(EVERYTHING)
    (rule,) = of_kind(objects, "PrometheusRule")
    alerts = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    assert rule["spec"] == alerts
    written = {
        name: text
        for each in of_kind(objects, "ConfigMap")
        for name, text in each["data"].items()
        if name.endswith(".json")
    }
    files = (ROOT / "deploy" / "grafana" / "dashboards").glob("*.json")
    assert {name: json.loads(text) for name, text in written.items()} == {
        path.name: json.loads(path.read_text()) for path in files
    }


def test_the_runbooks_of_alerts_lead_to_the_given_address():
    url = "https://docs.example.com/hermes"
    (rule,) = of_kind(
        rendered(EVERYTHING, f"monitoring.prometheusRule.runbookUrl={url}/"), "PrometheusRule"
    )
    alerts = [alert for group in rule["spec"]["groups"] for alert in group["rules"]]
    runbooks = [alert["annotations"]["runbook_url"] for alert in alerts]
    assert all(each.startswith(f"{url}/alerts.md#") for each in runbooks)


CHART_KNOWS = {
    *("dc", "node", "roles", "log.directory", "spool.enabled", "spool.directory", "kafka.clusters"),
    *("frontend.memory.host", "frontend.memory.port", "frontend.memory.url"),
    *("consumers.pull.host", "consumers.pull.port", "consumers.pull.url"),
}


def leaves(tree: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting of a tree, by its path."""
    for name, each in tree.items():
        if isinstance(each, dict):
            yield from leaves(each, f"{path}{name}.")
        elif path + name not in CHART_KNOWS and not name.endswith("_file"):
            yield path + name, each


def tree_of(settings: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, each in settings.items():
        *sections, name = path.split(".")
        inner = tree
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = each
    return tree


def test_each_setting_reaches_the_node_as_it_was_written(tmp_path):
    settings = dict(leaves(msgspec.to_builtins(Config())))
    for name, each in settings.items():
        if type(each) is int:
            settings[name] = min(each, 2**53)
    settings["frontend.propagation.allowed"] = ['quo"ted', "<&>", "{{ braces }}", "ą", "a\\b"]
    settings["consumers.balancer.cores"] = 0.25
    values = tmp_path / "values.yaml"
    config = tree_of(settings)
    values.write_text(
        yaml.safe_dump({"standalone": {"enabled": True}, "tls": TLS, "config": config})
    )
    text = helm("template", RELEASE, str(CHART), f"--values={values}")
    (rendering,) = of_kind(tuple(each for each in yaml.safe_load_all(text) if each), "ConfigMap")
    node = tmp_path / "node.toml"
    node.write_text(rendering["data"]["node.toml"])
    written = dict(leaves(tomllib.loads(node.read_text())))
    own = written.pop("management.allowed_hosts")
    assert "hermes-management.default.svc" in own
    # Kafka is not for a standalone node.
    wanted = {name: each for name, each in settings.items() if not name.startswith("kafka.")}
    del wanted["management.allowed_hosts"]
    assert written == wanted
    assert [type(each) for _, each in sorted(written.items())] == [
        type(each) for _, each in sorted(wanted.items())
    ]
    load(node, {})


SPARK = "reconciliation.image"
NO_USERS = "config.security.users_file="
ANYBODY_MANAGES = "config.management.authentication.enabled=false"
DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("values", "change", "place"),
    [
        (MINIMAL, "frontend.replica=3", "/frontend"),
        (MINIMAL, "config.frontend.prot=8080", "/config/frontend"),
        (MINIMAL, "config.frontend.port=many", "/config/frontend/port"),
        (MINIMAL, "config.node=node1", "/config"),
        (MINIMAL, "consumers.autoscaling.minReplicas=0", "/consumers/autoscaling/minReplicas"),
        (MINIMAL, "standalone.enabled=false", "config.kafka.clusters"),
        (MINIMAL, "tls.frontend.enabled=true", "tls.frontend.secretName"),
        (MINIMAL, "config.schema.password_file=/etc/hermes/secrets/a/b", "secrets.a"),
        (MINIMAL, "config.frontend.tls.only=true", "tls.frontend.enabled"),
        (MINIMAL, "management.config.management.tls.only=true", "tls.management.enabled"),
        (MINIMAL, "config.frontend.tls.client_auth=requested", "tls.frontend.enabled"),
        (MINIMAL, "gateway.grpc.enabled=true", "/gateway/parentRefs"),
        (DC1, "gateway.management.enabled=true,gateway.parentRefs[0].name=a", "/hostnames"),
        (DC1, "standalone.enabled=true", "config.kafka.clusters"),
        (DC1, NO_USERS, "config.management.authentication.enabled"),
        (DC1, f"{NO_USERS},{ANYBODY_MANAGES}", "config.frontend.authentication.enabled"),
        (DC1, f"image.tag=v1,image.digest={DIGEST}", "image.tag and image.digest"),
        (EVERYTHING, f"{SPARK}.tag=v1,{SPARK}.digest={DIGEST}", f"{SPARK}.tag and"),
        (EVERYTHING, "consumers.autoscaling.minReplicas=21", "consumers.autoscaling.maxReplicas"),
        (EVERYTHING, "frontend.replicas=21", "frontend.autoscaling.maxReplicas"),
        (EVERYTHING, "spool.size=1Gi", "config.spool.disk_bytes_max"),
        (EVERYTHING, "spool.size=900M", "config.spool.disk_bytes_max"),
        (EVERYTHING, "config.spool.disk_bytes_max=3000000000", "spool.size"),
        (EVERYTHING, "config.grpc.enabled=false", "config.grpc.enabled"),
    ],
)
def test_a_wrong_value_gets_an_error_that_names_its_place(values, change, place):
    with pytest.raises(Refused, match=re.escape(place)):
        helm("template", RELEASE, str(CHART), f"--values={VALUES[values]}", "--set", change)


def test_the_scaling_of_consumers_asks_for_metrics_that_nodes_have():
    (scaler,) = of_kind(rendered(EVERYTHING), "ScaledObject")
    (query,) = (
        each["metadata"]["query"]
        for each in scaler["spec"]["triggers"]
        if each["type"] == "prometheus"
    )
    names = set(re.findall(r"hermes_[a-z_]+", query))
    assert len(names) == 5
    assert {each for each in names if f"`{each}`" not in tables()} == set()
