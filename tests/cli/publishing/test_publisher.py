import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.cli.publishing.publisher import percentile


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([1, 50, 99, 99.9, 100]))
def test_a_percentile_is_a_value_with_that_share_at_or_below_it(values, percent):
    ascending = sorted(values)
    value = percentile(ascending, percent)
    at_or_below = sum(each <= value for each in ascending)
    below = sum(each < value for each in ascending)
    assert at_or_below >= len(values) * percent / 100
    assert below < len(values) * percent / 100 + 1e-9


@pytest.mark.live
def test_ctrl_c_ends_it_also_while_it_waits_for_the_next_line(server):
    server.on("POST /topics/a.b", (201, b""))
    command = [sys.executable, "-m", "hermes_actors", "publish", "a.b"]
    with subprocess.Popen(
        [*command, "--publish-url", server.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # A shell starts what runs in the background with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n")
        process.stdin.flush()
        while not server.calls:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert b"Fatal Python error" not in process.stderr.read()
