"""Starts what a container of the Spark image is for. Uses only the standard library.

entrypoint.py submit JOB…       submit a job and wait for it; exit code 0: nothing is lost
entrypoint.py driver …          Spark starts these two in the pods that it creates
entrypoint.py executor
entrypoint.py COMMAND…          anything else, such as `hermes spark reconcile`
"""

import json
import os
import shutil
import ssl
import string
import subprocess
import sys
import time  # noqa: TID251 -- outside of the product
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

SPARK = Path(os.environ["SPARK_HOME"])
SUBMIT = str(SPARK / "bin/spark-submit")
JARS = Path(os.environ["HERMES_SPARK_JARS"])
MAIN = "local:///opt/hermes/__main__.py"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
API = "https://kubernetes.default.svc"
UNREAD, UNKNOWN = 2, 3
"""Exit codes of `hermes spark reconcile`: no result; nothing is known to be lost."""


def main(arguments: Sequence[str]) -> None:
    """Replace this process by the command; `submit` stays, to report the result."""
    match arguments:
        case ["submit", *job]:
            sys.exit(submit(job))
        case ["driver", *rest]:
            address = os.environ["SPARK_DRIVER_BIND_ADDRESS"]
            command = [SUBMIT, "--conf", f"spark.driver.bindAddress={address}"]
            run([*command, "--deploy-mode", "client", *rest])
        case ["executor", *_]:
            run(executor(os.environ))
        case _:
            run(list(arguments))


def run(command: list[str]) -> None:
    """Replace this process."""
    os.execvp(command[0], command)  # noqa: S606 -- the container's own command


def executor(environment: Mapping[str, str]) -> list[str]:
    """The command of an executor, from the variables that Spark sets."""
    options = sorted(
        (name for name in environment if name.startswith("SPARK_JAVA_OPT_")),
        key=lambda name: int(name.rpartition("_")[2]),
    )
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    path = [environment.get("SPARK_CONF_DIR", ""), environment.get("SPARK_CLASSPATH", "")]
    return [
        "java",
        *(environment[name] for name in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join([*filter(None, path), str(SPARK / "jars/*")]),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", environment["SPARK_DRIVER_URL"]),
        *("--executor-id", environment["SPARK_EXECUTOR_ID"]),
        *("--cores", environment["SPARK_EXECUTOR_CORES"]),
        *("--app-id", environment["SPARK_APPLICATION_ID"]),
        *("--hostname", environment["SPARK_EXECUTOR_POD_IP"]),
        *("--resourceProfileId", environment["SPARK_RESOURCE_PROFILE_ID"]),
        *("--podName", environment["SPARK_EXECUTOR_POD_NAME"]),
    ]


def submit(job: Sequence[str]) -> int:
    """Submit in cluster mode, print the driver's log, and return its exit code; 0 for unknown.

    spark-submit itself returns 0 also if the driver fails. POD_NAME and POD_UID are this pod's: it
    owns the driver's pod, which is deleted with it. REPORTS is the folder of the reports, of which
    the newest REPORTS_KEPT stay. SPARK_CONFIG has one setting of Spark a line.
    """
    pod = f"{os.environ['POD_NAME']}-driver"
    reports = Path(os.environ["REPORTS"])
    for old in sorted(reports.glob("????-??-??T*"))[: -int(os.environ["REPORTS_KEPT"]) + 1 or None]:
        shutil.rmtree(old)
    template = Path("/tmp/pod.yaml")  # noqa: S108 -- of this container only
    text = Path(os.environ["POD_TEMPLATE"]).read_text()
    template.write_text(string.Template(text).safe_substitute(os.environ))
    settings = [
        *filter(None, os.environ["SPARK_CONFIG"].splitlines()),
        f"spark.kubernetes.driver.pod.name={pod}",
        f"spark.kubernetes.driver.podTemplateFile={template}",
        f"spark.kubernetes.executor.podTemplateFile={template}",
    ]
    command = [
        SUBMIT,
        *("--master", f"k8s://{API}", "--deploy-mode", "cluster"),
        *("--jars", ",".join(f"local://{each}" for each in sorted(JARS.glob("*.jar")))),
        *(word for each in settings for word in ("--conf", each)),
        *(MAIN, *job, "--output", str(reports / time.strftime("%Y-%m-%dT%H%M", time.gmtime()))),
    ]
    if subprocess.run(command, check=False).returncode:  # noqa: S603 -- ours
        return UNREAD
    path = f"/api/v1/namespaces/{(ACCOUNT / 'namespace').read_text()}/pods/{pod}"
    try:
        log = ask(f"{path}/log?container=hermes").decode(errors="replace")
    except urllib.error.HTTPError as error:
        log = f"the driver's log cannot be read: {error}"
    print(log)  # noqa: T201 -- the job's log
    status = json.loads(ask(path))["status"]
    ended = [each["state"].get("terminated") for each in status.get("containerStatuses", [])]
    if not any(ended):
        print(f"the driver did not end by itself: {status.get('reason') or status['phase']}")  # noqa: T201
        return UNREAD
    code = int(ended[0]["exitCode"])
    # Nodes that work always have messages of the last minute, which are unknown.
    return 0 if code == UNKNOWN else code


def ask(path: str) -> bytes:
    """The answer of the API server."""
    token = (ACCOUNT / "token").read_text()
    request = urllib.request.Request(API + path, headers={"Authorization": f"Bearer {token}"})  # noqa: S310
    trusted = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    with urllib.request.urlopen(request, timeout=60, context=trusted) as answer:  # noqa: S310
        return bytes(answer.read())


if __name__ == "__main__":
    main(sys.argv[1:])
