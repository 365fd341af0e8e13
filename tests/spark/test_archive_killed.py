"""A real `hermes spark archive append` is killed with -9 three times: each record is there once."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from hermes_actors.log.embedded.schema import FILE_NAME
from hermes_spark.archive.layout import INTENT, RECORDS, STAGING
from tests.spark.archive_oracle import archived_plainly, logged_in_file
from tests.spark.stored_scene import fill_embedded, native

RECORDS_OF_PARTITION = 4_000
BATCH_OFFSETS = 2_500


def start(folder, dcs):
    command = [sys.executable, "-m", "hermes_actors", "spark", "archive", "append", folder]
    for dc in dcs:
        command += ["--dc", f"{dc.name}=embedded:{dc}"]
    return subprocess.Popen(
        [*command, "--batch-offsets", str(BATCH_OFFSETS)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


def when(holds, running):
    """Waits until it holds, or the process has ended."""
    pause = threading.Event()
    while running.poll() is None:
        # A folder that it removes while it is looked through is not there either.
        with suppress(FileNotFoundError):
            if holds():
                return
        pause.wait(0.002)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_an_archive_killed_three_times_has_each_record_once(tmp_path):
    folder = tmp_path / "archive"
    dcs = [tmp_path / "dc1", tmp_path / "dc2"]
    records = [native(number * 2_000) for number in range(RECORDS_OF_PARTITION)]
    for dc in dcs:
        fill_embedded(dc, {"shop.orders": [records, records], "shop.bills": [records[:100]]})
    logged = [row for dc in dcs for row in logged_in_file(dc.name, dc / FILE_NAME)]
    assert len(logged) == 2 * (2 * RECORDS_OF_PARTITION + 100)

    counts = []
    instants = [
        ("as a commit begins", lambda: (folder / INTENT).exists()),
        ("while Spark writes", lambda: any((folder / STAGING).rglob("part-*.parquet"))),
        ("when a commit is done", None),
    ]
    for _, holds in instants:
        running = start(folder, dcs)
        if holds is None:
            assert "offsets" in running.stdout.readline()
        else:
            when(holds, running)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        assert running.returncode == -signal.SIGKILL
        # Whoever looks now sees nothing twice, and nothing that was not stored.
        rows = archived_plainly(folder / RECORDS)
        assert len(set(rows)) == len(rows)
        assert set(rows) <= set(logged)
        counts.append(len(rows))
    assert counts == sorted(counts)
    assert 0 < counts[-1] < len(logged)

    running = start(folder, dcs)
    said, errors = running.communicate()
    assert running.returncode == 0, errors
    assert f"{len(logged):,} records archived in all" in said
    assert archived_plainly(folder / RECORDS) == logged
    assert sorted(path.name for path in folder.iterdir()) == ["_lock", "_manifest.json", RECORDS]
