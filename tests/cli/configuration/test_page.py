"""The commands of docs/configuration-as-code.md, run as they are."""

import re
import shlex
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "configuration-as-code.md"


@pytest.mark.slow
def test_the_commands_of_the_page_work_in_their_order(clusters, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    Path("topics").mkdir()
    Path("topics/shop.yaml").write_text(blocks[0][1])
    Path("topics/order.schema.json").write_text('{"type": "object"}')
    lines = [
        line.partition("  #")[0]
        for kind, block in blocks
        if kind == "sh"
        for line in block.splitlines()
    ]
    lost = cluster = clusters()
    for line in lines:
        if found := re.fullmatch(r"export (\w+)=(\w+)", line):
            monkeypatch.setenv(*found.groups())
            continue
        command, _, file = line.partition(" > ")
        if "restore" in command:
            cluster = clusters()
        done = run(cluster, *shlex.split(command)[1:])
        assert done.exit_code == ("--diff" in command), (line, done.stderr)
        if file:
            Path(file).write_text(done.stdout)
    monkeypatch.setenv("SHOP_ORDERS_BILLING_ENDPOINT_PASSWORD", "hunter2")
    for source in ("exported", "shop.yaml", "topics"):
        assert run(cluster, "apply", "-f", source, "--diff").exit_code == 0
    assert len(lines) == 8
    assert run(cluster, "export").stdout == run(lost, "export").stdout
