"""What is read of Linux' files, with control groups of both versions, and without any."""

from pathlib import Path

import pytest

from hermes_actors.runtime.cpu_files import CpuFiles, quota_of, throttled_s_of
from hermes_actors.runtime.cpu_share import CpuSample

INF = float("inf")


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "50000 100000\n"}, 0.5),
        ({"cpu.max": "max 100000\n"}, INF),
        ({"cpu.max": ""}, INF),
        ({"cpu.max": "1 0"}, INF),
        ({"cpu.max": "half a core"}, INF),
        ({"cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"}, 1.5),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, INF),
        ({"cpu.cfs_quota_us": "50000\n"}, INF),
        ({}, INF),
    ],
)
def test_a_groups_quota_is_read_in_either_version(
    tmp_path: Path, files: dict[str, str], cores: float
) -> None:
    assert quota_of(put(tmp_path, files)) == cores


@pytest.mark.parametrize(
    ("text", "throttled_s"),
    [
        ("usage_usec 9\nnr_periods 3\nnr_throttled 2\nthrottled_usec 1500000\n", 1.5),
        ("nr_periods 3\nnr_throttled 2\nthrottled_time 1500000000\n", 1.5),
        ("nr_periods 0\n", 0.0),
        ("throttled_usec soon\n", 0.0),
        ("throttled_usec -5\n", 0.0),
    ],
)
def test_how_long_a_group_was_throttled_is_read_in_either_version(
    tmp_path: Path, text: str, throttled_s: float
) -> None:
    assert throttled_s_of(put(tmp_path, {"cpu.stat": text})) == throttled_s


def test_the_thread_that_asks_is_told_how_long_it_ran_and_waited(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "proc/thread-self/schedstat": "2500000000 500000000 77\n",
            "proc/self/cgroup": "0::/pods/node\n",
            "sys/fs/cgroup/cpu.stat": "usage_usec 1\n",
            "sys/fs/cgroup/pods/cpu.max": "80000 100000\n",
            "sys/fs/cgroup/pods/node/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pods/node/cpu.stat": "throttled_usec 9000000\n",
        },
    )
    files = CpuFiles(tmp_path)
    # The group around it bounds it as well; being throttled is waiting already.
    assert files.sample(7.0, 99.0) == CpuSample(7.0, 2.5, 0.5, 0.8)
    assert files.quota() == 0.8


def test_in_version_1_the_groups_of_the_cpu_are_looked_at_and_no_others(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/heavy\n4:cpu,cpuacct:/node\n3:cpuset:/\n0::/\n",
            "sys/fs/cgroup/memory/heavy/cpu.max": "1000 100000\n",
            "sys/fs/cgroup/cpu,cpuacct/node/cpu.cfs_quota_us": "25000\n",
            "sys/fs/cgroup/cpu,cpuacct/node/cpu.cfs_period_us": "100000\n",
        },
    )
    assert CpuFiles(tmp_path).quota() == 0.25


@pytest.mark.parametrize("path", ["/docker/1f2e3d", "/../../outside", "/"])
def test_a_container_sees_its_own_group_at_the_root(tmp_path: Path, path: str) -> None:
    put(
        tmp_path,
        {"proc/self/cgroup": f"0::{path}\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"},
    )
    assert CpuFiles(tmp_path).quota() == 0.5


def test_a_quota_that_is_set_while_it_runs_is_seen(tmp_path: Path) -> None:
    limit = {"sys/fs/cgroup/cpu.max": "max 100000\n", "proc/self/cgroup": "0::/\n"}
    files = CpuFiles(put(tmp_path, limit))
    assert files.quota() == INF
    put(tmp_path, {"sys/fs/cgroup/cpu.max": "30000 100000\n"})
    assert files.quota() == 0.3


def test_where_threads_times_are_not_told_the_groups_throttling_is_what_was_waited(
    tmp_path: Path,
) -> None:
    put(
        tmp_path,
        {
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/cpu.stat": "throttled_usec 3000000\n",
        },
    )
    assert CpuFiles(tmp_path).sample(10.0, 4.0) == CpuSample(10.0, 4.0, 3.0, 0.5)


def test_without_any_such_files_nothing_was_waited_for_and_nothing_bounds_it(
    tmp_path: Path,
) -> None:
    assert CpuFiles(tmp_path).sample(10.0, 4.0) == CpuSample(10.0, 4.0, 0.0)


def test_a_file_that_cannot_be_read_for_once_gives_no_sample_rather_than_another_sources(
    tmp_path: Path,
) -> None:
    files = CpuFiles(put(tmp_path, {"proc/thread-self/schedstat": "1 2 3\n"}))
    put(tmp_path, {"proc/thread-self/schedstat": "what\n"})
    assert files.sample(10.0, 4.0) is None
