"""What every pod of the chart keeps to, and what its objects say about each other."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_actors import config
from tests.kubernetes.chart import VALUES, Objects, Workload, of_kind, rendered, workloads
from tests.kubernetes.programs import BUILD_WITHIN_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILD_WITHIN_S)]

CONFIG = "/etc/hermes/node.toml"


def rules_of_a_pod(work: Workload) -> dict[str, bool]:
    pod, user = work.pod, work.pod.get("securityContext", {})
    return {
        "runs as an unprivileged user": user.get("runAsNonRoot") and user["runAsUser"] >= 10_000,
        "system calls are filtered": user.get("seccompProfile") == {"type": "RuntimeDefault"},
        "shares nothing with its host": not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        and not any("hostPath" in each for each in pod.get("volumes", [])),
        "has no token of the API server, unless it submits to Spark": work.kind == "CronJob"
        or pod.get("automountServiceAccountToken") is False,
        "is spread over zones and nodes": work.replicas < 2
        or {each["topologyKey"] for each in pod["topologySpreadConstraints"]}
        == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"},
        "its selector finds it, and counts its spread": all(
            selector.items() <= work.labels.items()
            for selector in (
                work.selector,
                *(
                    each["labelSelector"]["matchLabels"]
                    for each in pod.get("topologySpreadConstraints", [])
                ),
            )
        ),
    }


def rules_of_a_container(container: dict[str, Any], work: Workload) -> dict[str, bool]:
    security, resources = container.get("securityContext", {}), container.get("resources", {})
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    probes = {"startupProbe", "livenessProbe", "readinessProbe"}
    mounts = {each["name"] for each in container.get("volumeMounts", [])}
    claims = {each["metadata"]["name"] for each in work.claims}
    return {
        "cannot write its image": security.get("readOnlyRootFilesystem") is True,
        "has no capability": security.get("capabilities") == {"drop": ["ALL"]},
        "cannot gain privileges": security.get("allowPrivilegeEscalation") is False,
        "has a memory limit, and asks for CPU and memory": "memory" in limits
        and {"cpu", "memory"} <= requests.keys(),
        "has the three probes": not work.is_node or probes <= container.keys(),
        "its probes ask a port that it opens": {
            container[each]["httpGet"]["port"] for each in probes & container.keys()
        }
        <= work.ports.keys(),
        "mounts only volumes of its pod": mounts
        <= claims | {each["name"] for each in work.pod.get("volumes", [])},
        "has a versioned image": bool(re.search(r":[^/]*\d[^/]*$", container["image"])),
    }


def breaches(objects: Objects) -> Iterator[str]:
    for work in workloads(objects):
        for rule, held in rules_of_a_pod(work).items():
            if not held:
                yield f"{work}: {rule}"
        for container in work.containers:
            for rule, held in rules_of_a_container(container, work).items():
                if not held:
                    yield f"{work}, {container['name']}: {rule}"


@pytest.mark.parametrize("values", VALUES)
def test_every_pod_keeps_to_the_policy(values):
    assert list(breaches(rendered(values))) == []


def selectors(objects: Objects) -> Iterator[tuple[str, dict[str, str]]]:
    """Each selector of pods, with its owner."""
    for each in objects:
        spec, owner = each.get("spec", {}), f"{each['kind']} {each['metadata']['name']}"
        match each["kind"]:
            case "Service":
                yield owner, spec["selector"]
            case "PodDisruptionBudget" | "PodMonitor":
                yield owner, spec["selector"]["matchLabels"]
            case "NetworkPolicy":
                yield owner, spec["podSelector"]["matchLabels"]


@pytest.mark.parametrize("values", VALUES)
def test_each_selector_finds_pods_which_have_the_ports_of_the_service(values):
    objects = rendered(values)
    pods = list(workloads(objects))
    for owner, selector in selectors(objects):
        assert any(selector.items() <= work.labels.items() for work in pods), owner
    for service in of_kind(objects, "Service"):
        wanted = {each["targetPort"] for each in service["spec"]["ports"]}
        for work in pods:
            if service["spec"]["selector"].items() <= work.labels.items():
                assert wanted <= work.ports.keys(), f"{service['metadata']['name']}, {work}"


@pytest.mark.parametrize("values", VALUES)
def test_several_pods_of_a_workload_have_a_budget_that_lets_some_go(values):
    objects = rendered(values)
    budgets = [each["spec"] for each in of_kind(objects, "PodDisruptionBudget")]
    for work in workloads(objects):
        own = [
            each
            for each in budgets
            if each["selector"]["matchLabels"].items() <= work.labels.items()
        ]
        assert len(own) <= 1, work
        assert work.replicas < 2 or own[0]["maxUnavailable"] >= 1, work


@pytest.mark.parametrize("values", VALUES)
def test_network_policies_open_each_port_of_a_pod_and_no_other(values):
    objects = rendered(values)
    policies = [each["spec"] for each in of_kind(objects, "NetworkPolicy")]
    for work in workloads(objects):
        own = [
            each
            for each in policies
            if each["podSelector"]["matchLabels"].items() <= work.labels.items()
        ]
        opened = {
            port["port"] for each in own for rule in each["ingress"] for port in rule["ports"]
        }
        named = {work.ports.get(each, each) for each in opened}
        assert named == set(work.ports.values()), work


def references(objects: Objects) -> Iterator[tuple[str, str, str]]:
    """(owner, kind, name) of each object that another one names."""
    for each in objects:
        spec, owner = each.get("spec", {}), f"{each['kind']} {each['metadata']['name']}"
        if "scaleTargetRef" in spec:
            target = spec["scaleTargetRef"]
            yield owner, target.get("kind", "Deployment"), target["name"]
        if "serviceName" in spec:
            yield owner, "Service", spec["serviceName"]
        for rule in spec.get("rules", []):
            for backend in rule.get("backendRefs", []):
                yield owner, "Service", backend["name"]
            for path in rule.get("http", {}).get("paths", []):
                yield owner, "Service", path["backend"]["service"]["name"]
    for work in workloads(objects):
        if work.is_node:
            yield str(work), "ServiceAccount", work.pod["serviceAccountName"]
        for volume in work.pod.get("volumes", []):
            if "configMap" in volume:
                yield str(work), "ConfigMap", volume["configMap"]["name"]
            if "secret" in volume:
                yield str(work), "Secret", volume["secret"]["secretName"]


@pytest.mark.parametrize("values", VALUES)
def test_each_name_is_that_of_an_object_or_comes_from_the_values(values):
    objects = rendered(values)
    known = {(each["kind"], each["metadata"]["name"]) for each in objects}
    known |= {("Secret", each["spec"]["secretName"]) for each in of_kind(objects, "Certificate")}
    given = VALUES[values].read_text()
    assert [
        (owner, kind, name)
        for owner, kind, name in references(objects)
        if (kind, name) not in known and not (kind == "Secret" and name in given)
    ] == []


def test_pods_with_listed_egress_resolve_names():
    objects = rendered("everything.yaml")
    for each in of_kind(objects, "NetworkPolicy"):
        opened = [rule.get("ports") for rule in each["spec"].get("egress", [])]
        both = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
        assert (both in opened) == each["metadata"]["name"].endswith("-consumers")


def test_a_pod_monitor_checks_certificates_as_the_values_say():
    def tls(*changes: str) -> dict[str, Any]:
        (monitor,) = of_kind(rendered("values-dc1.yaml", *changes), "PodMonitor")
        found: dict[str, Any] = monitor["spec"]["podMetricsEndpoints"][0]["tlsConfig"]
        return found

    assert tls()["serverName"] == "hermes-frontend"
    assert tls("monitoring.podMonitor.tlsConfig.insecureSkipVerify=true") == {
        "insecureSkipVerify": True
    }


def test_an_autoscaler_alone_decides_how_many_pods_there_are():
    objects = rendered("everything.yaml")
    scalers = of_kind(objects, "HorizontalPodAutoscaler", "ScaledObject")
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in scalers}
    assert len(scaled) == 2
    for each in of_kind(objects, "Deployment", "StatefulSet"):
        assert ("replicas" in each["spec"]) == (each["metadata"]["name"] not in scaled)


def configuration(work: Workload, objects: Objects, folder: Path) -> config.Config:
    """What a pod's node would read."""
    (name,) = (
        volume["configMap"]["name"] for volume in work.pod["volumes"] if volume["name"] == "config"
    )
    (text,) = (
        each["data"]["node.toml"]
        for each in of_kind(objects, "ConfigMap")
        if each["metadata"]["name"] == name
    )
    path = folder / f"{name}.toml"
    path.write_text(text)
    (container,) = work.pod["containers"]
    fields = {"metadata.name": f"{work.name}-0", "status.podIP": "192.0.2.7"}
    return config.load(
        path,
        {
            each["name"]: each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in container["env"]
        },
    )


SLOW_STOP = ",".join(
    (
        "spool.drainTimeoutSeconds=600",
        "config.frontend.graceful_shutdown_initial_wait_ms=30000",
        "config.frontend.graceful_shutdown_drain_ms=90000",
        "config.consumers.stop_grace_ms=120000",
    )
)
CERTIFICATES = ",".join(
    (
        "config.security.users_file=,config.security.certificates.enabled=true",
        "config.frontend.tls.client_auth=requested",
        "config.frontend.tls.client_ca_file=/etc/hermes/secrets/users/ca.crt",
        "management.config.security.users_file=/etc/hermes/secrets/users/users.toml",
    )
)


@pytest.mark.parametrize("changes", [(), (SLOW_STOP,)])
@pytest.mark.parametrize("values", VALUES)
def test_a_node_accepts_its_configuration_and_has_time_to_stop(values, changes, tmp_path):
    objects = rendered(values, *changes)
    for work in workloads(objects):
        if not work.is_node:
            continue
        node = configuration(work, objects, tmp_path)
        (container,) = work.pod["containers"]
        assert node.node == f"{work.name}-0"
        stops_s = 0.0
        if "consumers" in node.roles:
            stops_s += node.consumers.stop_grace_ms / 1_000 + 10
        if "frontend" in node.roles:
            waits = node.frontend
            stops_s += (
                waits.graceful_shutdown_initial_wait_ms + waits.graceful_shutdown_drain_ms
            ) / 1_000
            # Queued messages are appended to the log.
            stops_s += 20
        before = container.get("lifecycle", {}).get("preStop", {}).get("exec", {"command": []})
        stops_s += sum(int(each) for each in before["command"] if each.isdecimal())
        assert work.pod["terminationGracePeriodSeconds"] >= stops_s, work


def test_each_role_accepts_certificates_that_only_frontends_ask_for(tmp_path):
    objects = rendered("values-dc1.yaml", CERTIFICATES)
    by_certificate = {
        work.name: configuration(work, objects, tmp_path).security.certificates.enabled
        for work in workloads(objects)
        if work.is_node
    }
    assert [name for name, each in by_certificate.items() if each] == ["hermes-frontend"]
