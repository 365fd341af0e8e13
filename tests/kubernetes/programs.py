"""Helm and Kubernetes' own programs, built by Go, once on each machine.

`python -m tests.kubernetes.programs helm` prints the path.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from hermes_local.files import locked

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "helm": "helm.sh/helm/v4/cmd/helm",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
PROMETHEUS = "example/prometheus-operator-crd/monitoring.coreos.com"
# Kinds of operators; their definitions are files of the operators' modules.
OPERATORS = {
    "github.com/cert-manager/cert-manager@v1.21.2": {
        "Certificate": "deploy/crds/cert-manager.io_certificates.yaml",
    },
    "github.com/kedacore/keda/v2@v2.21.0": {
        "ScaledObject": "config/crd/bases/keda.sh_scaledobjects.yaml",
        "TriggerAuthentication": "config/crd/bases/keda.sh_triggerauthentications.yaml",
    },
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": {
        "PodMonitor": f"{PROMETHEUS}_podmonitors.yaml",
        "PrometheusRule": f"{PROMETHEUS}_prometheusrules.yaml",
    },
    "sigs.k8s.io/gateway-api@v1.6.3": {
        "GRPCRoute": "config/crd/standard/gateway.networking.k8s.io_grpcroutes.yaml",
        "HTTPRoute": "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
    },
}
BUILD_WITHIN_S = 3600


@cache
def program(name: str) -> Path:
    """The program's path: an installed one, or built if necessary. Skips without Go."""
    if installed := shutil.which(name):
        return Path(installed)
    key = hashlib.sha256((HERE / "go.mod").read_bytes()).hexdigest()[:16]
    folder = cached() / key
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    with locked(folder / f"{name}.lock"):
        if not path.exists():
            partial = path.with_suffix(".partial")
            # Without symbols it is a third smaller.
            _go(HERE, "build", "-trimpath", "-ldflags=-s -w", "-o", str(partial), PACKAGES[name])
            partial.rename(path)
    return path


@cache
def definitions() -> dict[str, Path]:
    """The files that define the operators' kinds (CRDs), by kind. Skips without Go."""
    cached().mkdir(parents=True, exist_ok=True)
    # Outside the module, because it does not require them.
    answer = _go(cached(), "mod", "download", "-json", *OPERATORS)
    decoder, found = json.JSONDecoder(), {}
    while answer:
        module, end = decoder.raw_decode(answer)
        answer = answer[end:].lstrip()
        for kind, file in OPERATORS[f"{module['Path']}@{module['Version']}"].items():
            found[kind] = Path(module["Dir"], file)
    return found


def cached() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "hermes_actors" / "kubernetes"


def _go(folder: Path, *arguments: str) -> str:
    if shutil.which("go") is None:
        pytest.skip("no go on the PATH, which builds helm and Kubernetes' programs")
    done = subprocess.run(
        ["go", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BUILD_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"go {' '.join(arguments)}: {done.stderr[-2000:]}"
    return done.stdout


if __name__ == "__main__":
    for each in sys.argv[1:]:
        sys.stdout.write(f"{program(each)}\n")
