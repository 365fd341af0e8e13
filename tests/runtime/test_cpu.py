"""What a node takes for its share of CPU."""

from pathlib import Path

import pytest

from hermes_actors.runtime.cpu import ProcessCpu, quota


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("50000 100000\n", 0.5),
        ("max 100000\n", float("inf")),
        ("", float("inf")),
        ("1 0", float("inf")),
    ],
)
def test_a_containers_limit_is_read_from_its_control_group(
    tmp_path: Path, text: str, cores: float
) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text(text)
    assert quota(limit) == cores


def test_without_a_control_group_there_is_no_limit(tmp_path: Path) -> None:
    assert quota(tmp_path / "cpu.max") == float("inf")


def test_a_node_counts_for_one_core_at_most_unless_it_is_told_otherwise() -> None:
    assert 0 < ProcessCpu().cores <= 1.0
    assert ProcessCpu(4.0).cores == 4.0
