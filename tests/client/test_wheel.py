"""The wheel, in a new environment without the broker, publishes as its README says."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = """
import importlib.util, hermes_client
assert importlib.util.find_spec("hermes_actors") is None
assert "site-packages" in hermes_client.__file__
assert importlib.util.find_spec("hermes_client").submodule_search_locations[0].startswith(PREFIX)
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.live
@pytest.mark.slow
def test_the_wheel_works_where_the_broker_is_not_installed(broker, tmp_path):
    topic = broker.topic()
    source, prefix = tmp_path / "client", tmp_path / "environment"
    shutil.copytree(ROOT / "client", source)
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", cwd=source)
    (wheel,) = (source / "dist").glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", str(prefix))
    python = str(prefix / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    (example,) = re.findall(r"```python\n(.*?)```", (source / "README.md").read_text(), re.DOTALL)
    code = CHECK.replace("PREFIX", repr(str(prefix)))
    code += example.replace("http://127.0.0.1:8080", broker.publish).replace("shop.orders", topic)
    # httpx and anyio are this environment's, because there is no network.
    variables = {"PYTHONPATH": sysconfig.get_path("purelib")}
    assert len(run(python, "-c", code, env=variables, cwd=tmp_path).strip()) == 36
