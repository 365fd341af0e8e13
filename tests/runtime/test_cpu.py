"""What a node takes for its share of CPU, and what it finds to be left of it."""

from pathlib import Path

import pytest

from hermes_actors.runtime.cpu import ProcessCpu


class Files:
    """Those of a process that ran for so long, and waited, in seconds, with so many cores."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.say(0.0, 0.0)

    def say(self, ran_s: float, waited_s: float, limit: str = "max") -> None:
        schedstat = self.root / "proc/thread-self/schedstat"
        schedstat.parent.mkdir(parents=True, exist_ok=True)
        schedstat.write_text(f"{ran_s * 1e9:.0f} {waited_s * 1e9:.0f} 1\n")
        quota = self.root / "sys/fs/cgroup/cpu.max"
        quota.parent.mkdir(parents=True, exist_ok=True)
        quota.write_text(f"{limit} 100000\n")


def test_a_node_counts_for_one_core_at_most_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    assert 0 < ProcessCpu().cores <= 1.0
    assert ProcessCpu(4.0).cores == 4.0
    Files(tmp_path).say(0.0, 0.0, "50000")
    assert ProcessCpu(root=tmp_path).cores == 0.5


def test_what_others_take_is_not_there_though_nobody_told(tmp_path: Path) -> None:
    files = Files(tmp_path)
    cpu = ProcessCpu(root=tmp_path)
    assert cpu.available(0.0) == 1.0
    files.say(300.0, 300.0)
    assert cpu.available(600.0) == pytest.approx(0.5, rel=0.02)
    assert cpu.cores == 1.0


def test_a_quota_that_is_lifted_leaves_a_whole_core_again(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.say(0.0, 0.0, "50000")
    cpu = ProcessCpu(root=tmp_path)
    assert (cpu.cores, cpu.available(0.0)) == (0.5, 0.5)
    files.say(1.0, 0.0)
    assert (cpu.cores, cpu.available(10.0)) == (0.5, 1.0)


def test_when_nothing_can_be_read_what_was_known_stays(tmp_path: Path) -> None:
    files = Files(tmp_path)
    cpu = ProcessCpu(root=tmp_path)
    cpu.available(0.0)
    files.say(100.0, 300.0)
    known = cpu.available(400.0)
    (tmp_path / "proc/thread-self/schedstat").unlink()
    assert cpu.available(410.0) == known < 0.3


def test_where_there_are_no_such_files_all_its_cores_are_there(tmp_path: Path) -> None:
    cpu = ProcessCpu(root=tmp_path)
    assert [cpu.available(at_s) for at_s in (0.0, 10.0, 20.0)] == [1.0] * 3
