"""What Prometheus and Grafana ask for in deploy/ is what nodes show; alerts are explained."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import promql_parser
import pytest
import trio
import yaml
from prometheus_client.parser import text_string_to_metric_families

from hermes_actors.management.access.roles import Anonymous
from hermes_actors.telemetry.metrics import render
from hermes_chaos.wanted import subscription_body, topic_body
from tests.nodes_scene import Endpoint, memory_spool, publish, two_datacentres

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
# What Prometheus makes itself.
OWN = {"up": set(), "ALERTS": {"alertname", "alertstate", "severity"}}
# What a node shows only with TLS, and only of what is suspended.
RARE = {
    "hermes_certificate_expires_timestamp_seconds": {"listener"},
    "hermes_consumers_subscription_suspended_timestamp_seconds": {"group", "topic", "subscription"},
}
INFO = "hermes_consumers_subscription_info"
RUNBOOKS = "https://docs.invalid/hermes_actors/alerts.md"


@cache
def alerts():
    (file,) = PROMETHEUS["rule_files"]
    groups = yaml.safe_load((DEPLOY / "prometheus" / file).read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


@cache
def panels():
    """Each dashboard's panels, but for the rows."""
    boards = {path.stem: json.loads(path.read_text()) for path in DASHBOARDS}
    return {
        name: [panel for panel in board["panels"] if panel["type"] != "row"]
        for name, board in boards.items()
    }


def queries():
    """All that is asked, by who asks it."""
    asked = {f"alert {name}": rule["expr"] for name, rule in alerts().items()}
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        for panel in panels()[path.stem]:
            for target in panel["targets"]:
                where = f"{path.stem}: {panel['id']} {panel['title']} {target['refId']}"
                assert where not in asked
                asked[where] = target["expr"]
        for each in board["templating"]["list"][1:]:
            # Grafana's own function, which no query language has: the label counts as asked for.
            of, label = re.fullmatch(r"label_values\((.+), (\w+)\)", each["definition"]).groups()
            asked[f"{path.stem}: ${each['name']}"] = f"sum by ({label}) ({of})"
    return asked


def parsed(query):
    """The parts of a query in which Grafana has put its interval."""
    found = []
    tree = promql_parser.parse(query.replace("$__rate_interval", "1m"))
    promql_parser.walk(tree, lambda part: found.append(part))
    return found


def selectors(query):
    """Metric → labels that the query compares."""
    found = {}
    for part in parsed(query):
        part = getattr(part, "vector_selector", part)
        if isinstance(part, promql_parser.VectorSelector):
            asked = {matcher.name for matcher in part.matchers.matchers}
            found.setdefault(part.name, set()).update(asked)
    return found


def grouping(query):
    """(labels, the part whose metrics need them), of each sum and each join."""
    found = []
    for part in parsed(query):
        modifier = getattr(part, "modifier", None)
        if isinstance(part, promql_parser.AggregateExpr) and modifier is not None:
            found.append((set(modifier.labels), str(part.expr)))
        matching = getattr(modifier, "matching", None)
        if matching is not None:
            found.append((set(matching.labels), str(part)))
        if group_labels := getattr(modifier, "group_labels", None):
            found.append((set(group_labels), str(part.rhs)))
    return found


def grouped(query):
    """The labels that its sums leave; none if it has no sum."""
    return set().union(*(labels for labels, _ in grouping(query)))


async def create_shop(administration):
    caller = Anonymous()
    await administration.groups.create(caller, {"groupName": "shop"})
    for name, ack in (("shop.orders", "LEADER"), ("shop.bills", "ALL")):
        body = topic_body(name, ack=ack, fallbackToRemoteDatacenterEnabled=True)
        await administration.topics.create(caller, body)
        subscription = subscription_body(name, "sink", "http://sink.test/")
        await administration.subscriptions.create(caller, name, subscription)


@pytest.fixture
async def shown(autojump_clock):
    """Name → labels of all that a node shows that published, hedged, delivered and spooled."""
    async with trio.open_nursery() as nursery:
        sink = Endpoint(nursery, 500, *[200] * 20)
        async with two_datacentres(sink, create_shop, open_spool=memory_spool()) as (node, own, _):
            await trio.sleep(7)
            for topic in ("shop.orders", "shop.bills"):
                assert await publish(node, b"{}", topic=topic) == 201
            own.faults.silent = True
            assert await publish(node, b"{}") == 201
            own.faults.silent = False
            await trio.sleep(60)
            assert len(sink.pushes) >= 3
            text = render(node.metrics).decode()
        nursery.cancel_scope.cancel()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return as_scraped(found)


def as_scraped(shown):
    """With the labels that Prometheus adds; what is in the way of one is renamed."""
    (job,) = [each for each in PROMETHEUS["scrape_configs"] if each["job_name"] == "hermes"]
    added = {"job", "instance"}.union(*(group["labels"] for group in job["static_configs"]))
    assert not job.get("honor_labels")
    return {
        name: {f"exported_{each}" if each in added else each for each in labels} | added
        for name, labels in {**shown, **RARE, **OWN}.items()
    }


async def test_every_metric_and_label_that_is_asked_for_is_one_that_a_node_shows(shown):
    names = set()
    for where, query in queries().items():
        asked = selectors(query)
        assert asked, where
        names |= asked.keys()
        assert asked.keys() <= shown.keys(), where
        for name, labels in asked.items():
            assert labels <= shown[name], f"{where}: {name}"
        for labels, part in grouping(query):
            for name in selectors(part):
                assert labels <= shown[name], f"{where}: {name}"
    assert len(names) > 40


async def test_what_an_alert_or_a_panel_says_names_only_labels_that_are_left(shown):
    for name, rule in alerts().items():
        said = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert said <= grouped(rule["expr"]), name
    for board in panels().values():
        for panel in board:
            for target in panel["targets"]:
                said = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
                query = target["expr"]
                left = grouped(query) or set().union(*(shown[n] for n in selectors(query)))
                assert said <= left, panel["title"]


def test_each_alert_has_a_severity_and_one_about_a_subscription_its_own_and_the_owner():
    about = 0
    for name, rule in alerts().items():
        left = grouped(rule["expr"])
        if "subscription" not in left:
            assert rule["labels"]["severity"] in ("critical", "warning"), name
            continue
        about += 1
        assert {"dc", "group", "topic", "owner", "severity"} <= left, name
        assert INFO in selectors(rule["expr"]), name
        assert "labels" not in rule or rule["labels"] == {"severity": "critical"}, name
    assert about == 8


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_alerts_fire_when_they_should():
    folder = DEPLOY / "prometheus"
    command = ["promtool", "test", "rules", "alerts_test.yml"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_its_panel_that_asks_for_the_same_metrics():
    shows = {
        panel["description"].partition(":")[0]: panel
        for panel in panels()["hermes-alerts"]
        if panel["description"].startswith("Hermes")
    }
    assert shows.keys() == alerts().keys()
    for name, panel in shows.items():
        asked = set().union(*(selectors(each["expr"]) for each in panel["targets"]))
        assert selectors(alerts()[name]["expr"]).keys() - {INFO} <= asked, name


def test_a_panels_line_is_where_its_alert_begins():
    lines = 0
    for panel in panels()["hermes-alerts"]:
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps")
        if steps is None:
            continue
        lines += 1
        expression = alerts()[panel["description"].partition(":")[0]]["expr"]
        limit = float(re.search(r"== ?0$|(?:>=|>|<) ([\d.]+)", expression)[1] or 0)
        # What is 0 or 1, or counted, has its line at 1.
        assert steps[-1]["value"] == (limit or 1), panel["title"]
    assert lines > 10


def test_each_alert_is_explained_in_the_documentation():
    text = (ROOT / "docs" / "alerts.md").read_text()
    sections = re.findall(r"^### (\w+)$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in sections] == list(alerts())
    for name, section in sections:
        severity = alerts()[name].get("labels", {}).get("severity", "by subscription")
        assert f"({severity})" in section, name
        assert alerts()[name]["annotations"]["runbook_url"] == f"{RUNBOOKS}#{name.lower()}"
        assert "**Meaning.**" in section, name
        assert "**What to do.**" in section, name


def test_grafana_finds_prometheus_and_the_dashboards():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    provisioning = DEPLOY / "grafana" / "provisioning"
    sources = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())
    (source,) = sources["datasources"]
    assert source["url"] == "http://prometheus:9090"
    providers = yaml.safe_load((provisioning / "dashboards" / "hermes.yaml").read_text())
    (provider,) = providers["providers"]
    mounts = dict(each.split(":")[:2] for each in services["grafana"]["volumes"])
    assert mounts["./grafana/dashboards"] == provider["options"]["path"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/hermes.json"
    assert source["type"] == "prometheus"
    boards = [json.loads(path.read_text()) for path in DASHBOARDS]
    for board in boards:
        # Anybody's Prometheus will do, under whatever uid.
        variable = board["templating"]["list"][0]
        assert [variable[each] for each in ("name", "type", "query")] == [
            "datasource",
            "datasource",
            "prometheus",
        ]
        assert set(re.findall(r'"uid": "([^"]+)"', json.dumps(board))) == {
            board["uid"],
            "${datasource}",
        }
    assert len({board["uid"] for board in boards}) == len(boards) == 3


def test_prometheus_finds_the_alerts():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    prometheus = services["prometheus"]
    mounts = dict(each.split(":")[:2] for each in prometheus["volumes"])
    assert f"--config.file={mounts['./prometheus']}/prometheus.yml" in prometheus["command"]
    assert alerts()
