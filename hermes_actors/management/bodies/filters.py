"""Filters that a client wants stored or tried: whether they compile, found out in a worker."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from hermes_actors.filters.work import COMPILE_CPU_S, problems
from hermes_actors.model.subscription import Filter
from hermes_actors.runtime.workers import TooCostly, WorkerPool

T = TypeVar("T")


async def problems_of(wanted: Sequence[Filter], pool: WorkerPool) -> tuple[str, ...]:
    """Return what is wrong with the filters, as `filters[0].path must …`. A trio coroutine. Raises
    Unavailable.
    """
    try:
        found: tuple[str, ...] = await pool.ask("filters", COMPILE_CPU_S, problems, tuple(wanted))
        return found
    except TooCostly as error:
        return (f"filters must take less time to compile: {error.message}",)


class Unknown(Exception):
    """Raised for filters of which nobody has said yet whether they compile."""

    def __init__(self, wanted: Sequence[Filter]) -> None:
        super().__init__()
        self.wanted = wanted


class Checked:
    """Answers, without waiting, what is wrong with the filters of one request."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._wanted: Sequence[Filter] = ()
        self._problems: tuple[str, ...] = ()

    def __call__(self, wanted: Sequence[Filter]) -> tuple[str, ...]:
        """Return what is wrong with these filters. Raises Unknown; `until_known` finds out."""
        if wanted and wanted != self._wanted:
            raise Unknown(wanted)
        return self._problems if wanted else ()

    async def until_known(self, decide: Callable[[], Awaitable[T]]) -> T:
        """Return what `decide` returns; it is called again once its filters are known."""
        while True:
            try:
                return await decide()
            except Unknown as unknown:
                wanted = unknown.wanted
            self._problems = await problems_of(wanted, self._pool)
            self._wanted = wanted
