"""A broker in another process: `hermes dev --json --ephemeral`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_COMMAND = (sys.executable, "-m", "hermes_actors", "dev", "--json", "--ephemeral")
# A test that waits until a message is settled waits for its commit.
_DEFAULTS = {"HERMES_CONSUMERS_COMMIT_INTERVAL_MS": "100"}


@dataclass(frozen=True)
class Broker:
    """The addresses of a running broker."""

    publish_url: str
    management_url: str


@contextmanager
def open_broker() -> Iterator[Broker]:
    """Run a broker during the block; its data is removed.

    Its stderr is that of the tests, so pytest shows its warnings with a test that fails.
    """
    # Its stdin is closed even if the tests are killed; then it ends. It is in another session than
    # the tests, because they need it to clean up after Ctrl-C.
    pipe, env = subprocess.PIPE, _DEFAULTS | os.environ
    with subprocess.Popen(  # noqa: S603 - the command is fixed
        _COMMAND, stdin=pipe, stdout=pipe, env=env, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, "hermes dev does not start; its stderr says why"
            (dc,) = json.loads(line)["dcs"]
            yield Broker(dc["publish"], dc["management"])
        finally:
            process.terminate()
            process.wait(10)
