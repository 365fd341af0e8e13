"""The chart as Helm renders it, and what its objects say about each other."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.programs import program

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "hermes-actors"
EVERYTHING = Path(__file__).with_name("everything.yaml")
VALUES = {path.name: path for path in (*sorted(CHART.glob("examples/*.yaml")), EVERYTHING)}
RELEASE = "hermes"
Objects = tuple[dict[str, Any], ...]


class Refused(Exception):
    """Helm accepts neither chart nor values as they are."""


def helm(*arguments: str) -> str:
    """Run helm; return what it printed. Raises Refused."""
    done = subprocess.run(
        [program("helm"), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Refused(f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


@cache
def rendered(values: str, *sets: str) -> Objects:
    """The objects that the chart makes of this values file, with some values set otherwise."""
    arguments = (f"--values={VALUES[values]}", *(f"--set={each}" for each in sets))
    text = helm("template", RELEASE, str(CHART), *arguments)
    return tuple(each for each in yaml.safe_load_all(text) if each)


@dataclass(frozen=True)
class Workload:
    """An object that makes pods."""

    kind: str
    name: str
    replicas: int
    selector: dict[str, Any]
    claims: list[dict[str, Any]]
    template: dict[str, Any]

    @property
    def is_node(self) -> bool:
        return self.kind in ("Deployment", "StatefulSet")

    @property
    def labels(self) -> dict[str, str]:
        return self.template["metadata"]["labels"]

    @property
    def pod(self) -> dict[str, Any]:
        return self.template["spec"]

    @property
    def containers(self) -> list[dict[str, Any]]:
        return self.pod.get("initContainers", []) + self.pod["containers"]

    @property
    def ports(self) -> dict[str, int]:
        found = (each for container in self.containers for each in container.get("ports", []))
        return {each["name"]: each["containerPort"] for each in found}

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def workloads(objects: Objects) -> Iterator[Workload]:
    for each in objects:
        spec, metadata = each.get("spec", {}), each["metadata"]
        if each["kind"] == "Pod":
            spec = {"template": each, "replicas": 1}
        elif each["kind"] == "CronJob":
            spec = {"replicas": 1} | spec["jobTemplate"]["spec"]
        elif each["kind"] not in ("Deployment", "StatefulSet"):
            continue
        yield Workload(
            each["kind"],
            metadata["name"],
            # Without a number an autoscaler decides, so there may be several.
            spec.get("replicas", 2),
            spec.get("selector", {}).get("matchLabels", {}),
            spec.get("volumeClaimTemplates", []),
            spec["template"],
        )


def of_kind(objects: Objects, *kinds: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] in kinds]
