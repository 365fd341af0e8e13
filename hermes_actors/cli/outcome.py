"""Shows what a change led to: a line for people, the object as it is now for programs."""

import sys

from hermes_actors.cli.failures import CommandFailed
from hermes_actors.cli.management import ManagementClient
from hermes_actors.cli.options import Output
from hermes_actors.cli.render import say, write_json


def show_changed(
    client: ManagementClient, path: str, answer: bytes, line: str, output: Output
) -> None:
    """Say that it was done. As JSON: the server's answer, or, as it is empty, the object read back.

    A change that was done stays done: failing to read it back is a warning.
    """
    if output is Output.TABLE:
        say(line)
        return
    if not answer.strip():
        try:
            answer = client.get(path)
        except CommandFailed as failure:
            print(f"hermes: warning: {line}, but: {failure.message}", file=sys.stderr)
            return
    write_json(answer)
