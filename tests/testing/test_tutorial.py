"""docs/tutorial.md from its beginning to its end, as a reader does it."""

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hermes_local.ports import free_ports
from tests.testing.pages import Reader, blocks
from tests.testing.test_page import PLUGIN, ROOT

PAGE = ROOT / "docs" / "tutorial.md"
PORTS = ("8080", "8090", "9001", "9002")


@pytest.mark.live
def test_everything_comes_out_as_the_page_says(tmp_path):
    page = PAGE.read_text()
    mine = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    for port in PORTS:
        page = page.replace(f":{port}", f":{mine[port]}")
    bin_folder = Path(sys.executable).parent
    variables = os.environ | {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT), str(ROOT / "client"), os.environ.get("PYTHONPATH", "")]
        ),
        "PYTEST_ADDOPTS": " ".join(PLUGIN),
        "HERMES_FRONTEND_PORT": mine["8080"],
        "HERMES_MANAGEMENT_PORT": mine["8090"],
        "HERMES_PUBLISH_URL": f"http://127.0.0.1:{mine['8080']}",
        "HERMES_MANAGEMENT_URL": f"http://127.0.0.1:{mine['8090']}",
    }
    with closing(Reader(tmp_path, variables)) as reader:
        for block in blocks(page):
            reader.do(block)
