"""A real API server on loopback, with etcd and the definitions of the operators' kinds.

There are no controllers, so objects stay as they were written.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx
import trustme
import yaml

from hermes_local.ports import free_ports
from tests.kubernetes.programs import definitions, program
from tests.live.waiting import wait_until

TOKEN = "loopback-only"


class Cluster:
    """Runs kubectl and helm against one API server."""

    def __init__(self, folder: Path, port: int) -> None:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(port)))
        self.port = port
        self.environment = os.environ | {"KUBECONFIG": str(kubeconfig), "HOME": str(folder)}

    def run(self, name: str, *arguments: str, given: str = "") -> tuple[str, str]:
        """Run a program; return its output and its warnings."""
        done = subprocess.run(
            [program(name), *arguments],
            input=given,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{name} {' '.join(arguments)}: {done.stderr}"
        return done.stdout, done.stderr

    def is_ready(self) -> bool:
        try:
            answer = httpx.get(
                f"https://127.0.0.1:{self.port}/readyz",
                headers={"Authorization": f"Bearer {TOKEN}"},
                verify=False,
            )
        except httpx.TransportError:
            return False
        return answer.is_success


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start the processes, define the operators' kinds, and end the processes."""
    peers, clients, port = free_ports(3)
    key = folder / "accounts.pem"
    trustme.CA().private_key_pem.write_to_path(str(key))
    (folder / "tokens.csv").write_text(f'{TOKEN},tests,tests,"system:masters"\n')
    etcd, peer = (f"http://127.0.0.1:{each}" for each in (clients, peers))
    commands = {
        "etcd": (
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        ),
        "kube-apiserver": (
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder / 'certificates'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.test",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=192.0.2.0/24",
            "--endpoint-reconciler-type=none",
        ),
    }
    programs = {name: program(name) for name in commands}
    with contextlib.ExitStack() as stack:
        for name, arguments in commands.items():
            log = stack.enter_context((folder / f"{name}.log").open("w"))
            stack.enter_context(_running([str(programs[name]), *arguments], log))
        cluster = Cluster(folder, port)
        wait_until(cluster.is_ready, f"the API server is ready; its log is in {folder}")
        files = [f"--filename={each}" for each in definitions().values()]
        cluster.run("kubectl", "create", *files)
        cluster.run("kubectl", "wait", "--for=condition=Established", "crd", "--all")
        yield cluster


@contextlib.contextmanager
def _running(command: list[str], log: IO[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _kubeconfig(port: int) -> dict[str, Any]:
    server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": server}],
        "users": [{"name": "tests", "user": {"token": TOKEN}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        "current-context": "tests",
    }
