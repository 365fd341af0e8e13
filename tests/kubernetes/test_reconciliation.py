"""What the reconciliation's pod submits to Kubernetes' API, and how it ends."""

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Thread
from typing import Any

import pytest
import trustme

from hermes_actors.errors import HermesError
from tests.kubernetes.chart import CHART, Workload, of_kind, rendered, workloads
from tests.kubernetes.programs import BUILD_WITHIN_S
from tests.kubernetes.test_policy import rules_of_a_container, rules_of_a_pod

pytestmark = [pytest.mark.spark, pytest.mark.timeout(BUILD_WITHIN_S)]

ENTRYPOINT = CHART.parents[1] / "spark" / "entrypoint.py"
EVERYTHING = "everything.yaml"
UID = "99999999-2222-3333-4444-555555555555"


class Api:
    """Takes Spark's objects; the driver's pod ends at once with `exit_code`."""

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self.objects: list[dict[str, Any]] = []
        self.changed = Condition()

    def take(self, new: dict[str, Any]) -> dict[str, Any]:
        new["metadata"] |= {"uid": UID, "resourceVersion": "1"}
        if new["kind"] == "Pod":
            ended = {"terminated": {"exitCode": self.exit_code, "reason": "Ended"}}
            status = {"name": "hermes", "ready": False, "restartCount": 0, "state": ended}
            new["status"] = {
                "phase": "Failed" if self.exit_code else "Succeeded",
                "containerStatuses": [status | {"image": "", "imageID": ""}],
            }
        with self.changed:
            self.objects.append(new)
            self.changed.notify_all()
        return new

    def driver(self) -> dict[str, Any]:
        with self.changed:
            self.changed.wait_for(lambda: of_kind(tuple(self.objects), "Pod"), timeout=60)
            return of_kind(tuple(self.objects), "Pod")[0]


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    api: Api

    def take(self):
        length = int(self.headers["Content-Length"])
        self.answer(json.dumps(self.api.take(json.loads(self.rfile.read(length)))).encode())

    def do_POST(self):
        self.take()

    def do_PATCH(self):
        self.take()

    def do_GET(self):
        if "/log?" in self.path:
            self.answer(b"lost: 1 message\n")
        elif "watch=true" in self.path:
            change = {"type": "MODIFIED", "object": self.api.driver()}
            self.answer(json.dumps(change).encode() + b"\n")
        else:
            self.answer(json.dumps(self.api.driver()).encode())

    def answer(self, body: bytes):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """The files of a service account."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("token")
    (folder / "namespace").write_text("default")
    return folder


@pytest.fixture(params=[1, 3])
def api(request, account: Path) -> Iterator[tuple[Api, str]]:
    """A server and its URL."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(account / "ca.crt"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    found = Api(request.param)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Given", (Answers,), {"api": found}))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield found, f"https://localhost:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_spark_starts_a_driver_that_keeps_to_the_policy_and_its_exit_code_is_the_job_s(
    api, account, tmp_path
):
    server, url = api
    objects = rendered(EVERYTHING)
    [job] = [each for each in workloads(objects) if each.kind == "CronJob"]
    [container] = job.containers
    [template] = [
        each["data"]["pod.yaml"]
        for each in of_kind(objects, "ConfigMap")
        if "pod.yaml" in each.get("data", {})
    ]
    (tmp_path / "pod.yaml").write_text(template)
    reports = tmp_path / "reports"
    for day in range(1, 29):
        (reports / f"2020-01-{day:02}T0317").mkdir(parents=True)
    environment = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    environment["SPARK_CONFIG"] += (
        "spark.kubernetes.authenticate.submission.oauthToken=token\n"
        f"spark.kubernetes.authenticate.submission.caCertFile={account / 'ca.crt'}\n"
    )
    done = submitted(
        url,
        account,
        container["args"],
        environment
        | {
            "POD_NAME": "hermes-reconciliation-1-abcde",
            "POD_UID": UID,
            "POD_TEMPLATE": str(tmp_path / "pod.yaml"),
            "REPORTS": str(reports),
        },
    )
    # 3 is unknown: nothing is known to be lost.
    assert done.returncode == (0 if server.exit_code == 3 else server.exit_code), done.stderr
    assert "lost: 1 message" in done.stdout
    kept = sorted(each.name for each in reports.iterdir())
    assert (len(kept), kept[0]) == (13, "2020-01-16T0317")

    [pod] = of_kind(tuple(server.objects), "Pod")
    driver = Workload("CronJob", "driver", 1, {}, [], pod)
    [own] = driver.containers
    held = rules_of_a_pod(driver) | rules_of_a_container(own, driver)
    assert [rule for rule, is_held in held.items() if not is_held] == []
    assert own["image"] == container["image"]
    words = own["args"]
    assert words[words.index("reconcile") :][:-1] == [*container["args"][1:], "--output"]
    assert words[-1].startswith(str(reports))
    assert pod["metadata"]["ownerReferences"][0]["uid"] == UID
    same = ("config", "reports", "kafka")
    assert {each["name"]: each for each in driver.pod["volumes"] if each["name"] in same} == {
        each["name"]: each for each in job.pod["volumes"] if each["name"] in same
    }
    [account_name] = {
        each["metadata"]["name"]
        for each in of_kind(objects, "ServiceAccount")
        if each["metadata"]["name"] == job.pod["serviceAccountName"]
    }
    assert driver.pod["serviceAccountName"] == account_name


def submitted(
    url: str, account: Path, arguments: list[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the image's entry point, here with the API's other address and another account."""
    import pyspark

    from hermes_spark.jars import SPARK

    try:
        jars = SPARK.folder()
    except HermesError as error:
        pytest.skip(str(error))
    start = (
        "import importlib.util, pathlib, sys\n"
        f"spec = importlib.util.spec_from_file_location('entrypoint', {str(ENTRYPOINT)!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        f"module.API, module.ACCOUNT = {url!r}, pathlib.Path({str(account)!r})\n"
        "module.main(sys.argv[1:])\n"
    )
    home = Path(pyspark.__file__).parent
    return subprocess.run(
        [sys.executable, "-c", start, *arguments],
        env=os.environ | environment | {"SPARK_HOME": str(home), "HERMES_SPARK_JARS": str(jars)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
