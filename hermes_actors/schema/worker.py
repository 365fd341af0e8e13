"""The process that answers costly questions: read from standard input, answered on standard output.

The kernel ends it when a question takes more CPU than it may, whatever the library does meanwhile;
it ends by itself when nobody can ask any more.
"""

import os
import resource
import signal
import sys

from hermes_actors.schema.questions import ASKED, LENGTH_BYTES, Answerer, prefixed

_NICENESS = 10
COMPILING_CPU_MAX_S = 2.0
"""The CPU time that compiling a schema may take; as much as when it was saved."""

_MEMORY_BYTES_MAX = 1_073_741_824


def main() -> None:
    """Answer until the input ends."""
    # A terminal's Ctrl-C reaches the whole group: the node says when this ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    answerer = Answerer()
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while length := source.read(LENGTH_BYTES):
        asked = ASKED.decode(source.read(int.from_bytes(length, "big")))
        # By default this timer's signal ends the process.
        signal.setitimer(signal.ITIMER_VIRTUAL, COMPILING_CPU_MAX_S)
        answerer.prepare(asked.question)
        signal.setitimer(signal.ITIMER_VIRTUAL, asked.cpu_s)
        answer = answerer.answer(asked.question)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        target.write(prefixed(answer))
        target.flush()


if __name__ == "__main__":
    main()
