"""A real API server accepts the chart: each values file, its pods, every change of a release."""

import json

import pytest
import yaml

from tests.kubernetes.chart import CHART, RELEASE, VALUES, Objects, workloads
from tests.kubernetes.cluster import Cluster, cluster
from tests.kubernetes.programs import BUILD_WITHIN_S

pytestmark = [pytest.mark.soak, pytest.mark.timeout(BUILD_WITHIN_S)]

# Pods that are less than restricted are refused, and their workloads get a warning.
RESTRICTED = {f"pod-security.kubernetes.io/{each}": "restricted" for each in ("enforce", "warn")}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


class Space:
    """A namespace, and the chart's release in it."""

    def __init__(self, server: Cluster, name: str) -> None:
        self.server, self.name = server, name
        namespace = {"name": name, "labels": RESTRICTED}
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
        # In a whole cluster a controller creates it.
        account = {"name": "default", "namespace": name}
        self.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})

    def run(self, name: str, *arguments: str, given: str = "") -> str:
        """Run kubectl or helm in the namespace. No warning is expected."""
        output, warnings = self.server.run(
            name, *arguments, f"--namespace={self.name}", given=given
        )
        assert [line for line in warnings.splitlines() if "warn" in line.lower()] == []
        return output

    def create(self, *objects: dict) -> None:
        self.run("kubectl", "create", "--filename=-", given=yaml.safe_dump_all(objects))

    def objects(self) -> Objects:
        """What the server has of the release's workloads, autoscalers and Services."""
        kinds = "deployments,statefulsets,cronjobs,horizontalpodautoscalers,scaledobjects,services"
        return tuple(json.loads(self.run("kubectl", "get", kinds, "--output=json"))["items"])

    def make_a_pod_of_each_workload(self) -> None:
        """As controllers would, so that admission judges the pods themselves."""
        for work in workloads(self.objects()):
            metadata = {"generateName": f"{work.name}-", "labels": work.labels}
            # The StatefulSet's controller adds them.
            volumes = [
                {"name": each["metadata"]["name"], "emptyDir": {}} for each in work.claims
            ] + work.pod.get("volumes", [])
            spec = work.pod | {"volumes": volumes}
            self.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def arguments(values: str) -> tuple[str, ...]:
    return RELEASE, str(CHART), f"--values={VALUES[values]}"


@pytest.mark.parametrize("values", VALUES)
def test_each_values_file_is_applied_and_installed_and_its_pods_are_restricted(server, values):
    space = Space(server, f"apply-{VALUES[values].stem}")
    text = space.run("helm", "template", *arguments(values))
    apply = ("apply", "--server-side", "--filename=-")
    space.run("kubectl", *apply, "--dry-run=server", given=text)
    space.run("kubectl", *apply, given=text)
    space = Space(server, f"install-{VALUES[values].stem}")
    space.run("helm", "install", *arguments(values))
    space.make_a_pod_of_each_workload()
    space.run("helm", "uninstall", RELEASE)
    assert space.objects() == ()


@pytest.mark.parametrize("values", VALUES)
def test_a_release_is_changed_to_each_values_file_and_back(server, values):
    space = Space(server, f"upgrade-{VALUES[values].stem}")
    space.run("helm", "install", *arguments("values-dc1.yaml"))
    before = [(each["kind"], each["metadata"]["name"], each["spec"]) for each in space.objects()]
    space.run("helm", "upgrade", *arguments(values))
    space.make_a_pod_of_each_workload()
    space.run("helm", "rollback", RELEASE, "1")
    after = [(each["kind"], each["metadata"]["name"], each["spec"]) for each in space.objects()]
    assert after == before


def test_pods_that_are_less_than_restricted_are_refused(server):
    space = Space(server, "refused")
    container = {"name": "any", "image": "any:1"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"}}
    with pytest.raises(AssertionError, match='violates PodSecurity "restricted'):
        space.create(pod | {"spec": {"containers": [container]}})
