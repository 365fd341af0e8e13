"""Measures the load of a node's tasks since the last call. Pure: times are arguments."""

from collections.abc import Mapping
from typing import Protocol

from hermes_actors.balancer.membership import NodeLoads
from hermes_actors.coordination.commands import TaskLoad
from hermes_actors.coordination.owned import Spent

_MESSAGE_BYTES = 4_096
"""This many bytes cost about as much as handling one message."""
_MESSAGE_CPU_S_MAX = 0.0005
"""Maximum CPU attributed to a message; what an idle node uses otherwise belongs to no subscription.
"""


class NodeCpu(Protocol):
    """The CPU that the node's process uses, and may use."""

    @property
    def cores(self) -> float:
        """The number of cores that the process may use."""

    def used_s(self) -> float:
        """Return the CPU time that the process has used, in seconds."""

    def available(self, now_s: float) -> float:
        """Return how many cores the machine leaves for the process; `now_s` is monotonic."""


class Usage:
    """Computes loads as differences between totals.

    The CPU of the process is divided among tasks in proportion to their work: messages and bytes.
    """

    def __init__(self, now_s: float, cpu_s: float) -> None:
        self._now_s = now_s
        self._cpu_s = cpu_s
        self._before: dict[str, Spent] = {}

    def loads(
        self, spent: Mapping[str, Spent], now_s: float, cpu_s: float, cores: float
    ) -> NodeLoads:
        """Return the loads since the last call. `cpu_s` is the process' total CPU time, `cores`
        what the machine leaves for it.
        """
        elapsed_s = max(1e-3, now_s - self._now_s)
        cpu = max(0.0, cpu_s - self._cpu_s) / elapsed_s
        done = {name: _since(each, self._before.get(name)) for name, each in spent.items()}
        self._now_s, self._cpu_s, self._before = now_s, cpu_s, dict(spent)
        work = {name: _work(each) / elapsed_s for name, each in done.items()}
        each_cpu = min(_MESSAGE_CPU_S_MAX, cpu / max(1e-9, sum(work.values())))
        tasks = {
            name: TaskLoad(
                messages=each.taken / elapsed_s,
                size_bytes=each.size_bytes / elapsed_s,
                cpu=work[name] * each_cpu,
                used=_used(each, elapsed_s),
            )
            for name, each in done.items()
        }
        return NodeLoads(cpu=cpu, cpu_available=cores, tasks=tasks)


def _since(now: Spent, before: Spent | None) -> Spent:
    """Return what was done in between; a consumer that was created again counts from zero."""
    if before is None or now.taken < before.taken or now.size_bytes < before.size_bytes:
        return now
    return Spent(now.taken - before.taken, now.size_bytes - before.size_bytes, now.allowed)


def _work(done: Spent) -> float:
    return done.taken + done.size_bytes / _MESSAGE_BYTES


def _used(done: Spent, elapsed_s: float) -> float:
    """The part of its allowed rate that the task used. If nothing was allowed, all of it counts as
    used.
    """
    if done.allowed <= 0:
        return 1.0 if done.allowed == 0 else 0.0
    return min(1.0, done.taken / (done.allowed * elapsed_s))
