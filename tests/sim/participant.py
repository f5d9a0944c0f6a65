"""What the processes of all kinds of schedules have in common: a catalog, and chance."""

from __future__ import annotations

from typing import Generic, TypeVar

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import UnavailableError
from tests.sim.store import SimulatedStorage
from tests.sim.world import World

W = TypeVar("W", bound=World)
S = TypeVar("S", bound=SimulatedStorage)


class Participant(Generic[W, S]):
    """A process that takes part in a schedule, and opens the lake.

    Attributes:
        catalog: of the lake, once it is open.
    """

    def __init__(self, world: W, storage: S) -> None:
        self.world = world
        self.storage = storage
        self.scheduler = world.scheduler
        self.chance = world.scheduler.random
        self.catalog: TransactionalCatalog | None = None

    def open(self) -> TransactionalCatalog:
        """Open the lake, however often that takes."""
        while True:
            try:
                return self.world.open(self.storage)
            except UnavailableError:
                self.scheduler.sleep(1)

    @property
    def there(self) -> TransactionalCatalog:
        assert self.catalog is not None
        return self.catalog
