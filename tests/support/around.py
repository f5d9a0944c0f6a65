"""A store around another one: what each of those says of itself that tests put between Lockstep and a real store."""

from __future__ import annotations

from lockstep.storage import Storage


class Around(Storage):
    """A store that is called as another one is, and is as much to be trusted.

    Attributes:
        inner: the other one.
    """

    inner: Storage

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def address(self) -> str:
        return self.inner.address

    @property
    def is_proven_by_use(self) -> bool:
        return self.inner.is_proven_by_use

    @property
    def looks_first(self) -> bool:
        return self.inner.looks_first

    def look_first(self) -> None:
        self.inner.look_first()
