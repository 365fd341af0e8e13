"""A watcher's view of the catalog: first the state as changes, then each real difference.

Unread changes are kept by name, and the watcher gets the latest value once. So a watch is limited
by the size of the catalog, and the fold never waits for it.
"""

from collections.abc import Callable

from hermes_actors.log.watch import FoldWatch
from hermes_actors.metadata.catalog import (
    Catalog,
    CatalogChange,
    GroupChanged,
    OtherChanged,
    SubscriptionChanged,
    TopicChanged,
)

_Dirty = tuple[type[CatalogChange], str]


class Watch(FoldWatch):
    """Iterate it (`async for change in watch`), or use `wait` and `take_nowait`; it ends when
    closed.

    A context manager: `with metadata.watch() as watch`.
    """

    def __init__(self, catalog: Catalog, on_close: Callable[["Watch"], None]) -> None:
        super().__init__(on_close)
        self._catalog = catalog
        # Insertion order: names are reported in the order of their first change.
        self._dirty: dict[_Dirty, None] = {
            **{(GroupChanged, name): None for name in catalog.groups},
            **{(TopicChanged, name): None for name in catalog.topics},
            **{(SubscriptionChanged, name): None for name in catalog.subscriptions},
            **{(OtherChanged, key): None for key in catalog.others},
        }

    def note(self, change: CatalogChange) -> None:
        """Record a change; called by the registry."""
        name = change.key if isinstance(change, OtherChanged) else change.name
        self._dirty[type(change), name] = None
        self._wakeup.set()

    def take_nowait(self, changes_max: int = 1_000) -> list[CatalogChange]:
        """Return up to that many changes, oldest first; may be empty."""
        taken: list[CatalogChange] = []
        while self._dirty and len(taken) < changes_max:
            dirty = next(iter(self._dirty))
            del self._dirty[dirty]
            taken.append(self._change(*dirty))
        return taken

    @property
    def has_changes(self) -> bool:
        """True while there is a change to take."""
        return bool(self._dirty)

    def __aiter__(self) -> "Watch":
        return self

    async def __anext__(self) -> CatalogChange:
        if not await self.wait():
            raise StopAsyncIteration
        return self.take_nowait(1)[0]

    def _change(self, kind: type[CatalogChange], name: str) -> CatalogChange:
        catalog = self._catalog
        if kind is GroupChanged:
            return GroupChanged(name, catalog.groups.get(name))
        if kind is TopicChanged:
            return TopicChanged(name, catalog.topics.get(name))
        if kind is SubscriptionChanged:
            return SubscriptionChanged(name, catalog.subscriptions.get(name))
        return OtherChanged(name, catalog.others.get(name))
