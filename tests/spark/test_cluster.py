"""The jobs on a standalone master and worker, where only the wheel brings our code."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_local.ports import free_ports
from hermes_spark.jars import jar_paths
from tests.spark.stored_scene import fill_embedded, native

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter as on a worker: all that we need is installed, but not we."""
    packages = next(each for each in sys.path if each.endswith("site-packages"))
    script = tmp_path / "python"
    # Without -S the checkout itself would be found.
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n'
    )
    script.chmod(0o755)
    return script


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", tmp_path],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    built = next(tmp_path.glob("*.whl"))
    # Spark takes Python code by the name of zip only.
    return built.rename(tmp_path / "hermes_actors.zip")


@pytest.fixture
def master(tmp_path: Path, python: Path) -> Iterator[str]:
    """The URL of a master with one worker of one core."""
    import pyspark

    (port,) = free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    # Becomes the Java process itself.
    start = [str(home / "bin" / "spark-class")]
    deploy = "org.apache.spark.deploy"
    commands = (
        [*start, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)],
        [
            *(*start, f"{deploy}.worker.Worker", url, "--host", "127.0.0.1", "--cores", "1"),
            *("--memory", "600m", "--work-dir", str(tmp_path / "work")),
        ],
    )
    running = []
    try:
        for number, command in enumerate(commands):
            with (tmp_path / f"{number}.log").open("wb") as log:
                running.append(
                    subprocess.Popen(
                        [*command, "--webui-port", "0"],
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                    )
                )
        yield url
    finally:
        for each in reversed(running):
            each.terminate()
        for each in running:
            each.wait(30)


def submit(master: str, python: Path, wheel: Path, script: Path, *arguments: str) -> str:
    import pyspark

    home = Path(pyspark.__file__).parent
    answer = subprocess.run(
        [
            str(home / "bin" / "spark-submit"),
            *("--master", master, "--py-files", str(wheel), "--jars", ",".join(jar_paths())),
            *("--driver-memory", "512m", "--executor-memory", "512m"),
            *("--conf", "spark.driver.host=127.0.0.1"),
            str(script),
            *arguments,
        ],
        env=os.environ
        | {"PYSPARK_PYTHON": str(python), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr[-4_000:]
    return answer.stdout


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_job_runs_on_a_cluster_that_has_our_code_from_the_wheel_alone(
    master, python, wheel, tmp_path
):
    fill_embedded(tmp_path / "dc1", {"shop.orders": [[native(n) for n in range(300)], [native(5)]]})
    file = tmp_path / "snapshot.json"
    main = ROOT / "spark" / "hermes_spark" / "__main__.py"

    taken = submit(
        master,
        *(python, wheel, main, "snapshot"),
        *("--dc", f"dc1=embedded:{tmp_path / 'dc1'}", "--output", str(file)),
    )
    assert "dc1: 301 records in 1 topics" in taken
    ids = tmp_path / "ids.txt"
    ids.write_text("".join(f"id-{number}\n" for number in range(300)))
    report = tmp_path / "report"
    said = submit(
        master,
        *(python, wheel, main, "reconcile", "--snapshot", str(file), "--output", str(report)),
        *("--acknowledged", f"shop.orders={ids}"),
    ).splitlines()
    assert "CLEAN: All acknowledged messages are stored: 300 messages" in said
    assert any(line.endswith("1 message in more than one copy (again 1)") for line in said)
    assert "Nothing is lost" in (report / "report.html").read_text()
