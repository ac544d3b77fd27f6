"""The one holder of live things: add, get, drop, close all."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Generic, TypeVar

    T = TypeVar("T")

    class _Generic(Generic[T]):
        pass
else:
    T = None

    class _Generic:
        def __class_getitem__(cls, item: object) -> type:
            return cls


class Live(_Generic[T]):
    """Things by id, in the order they were added."""

    __slots__ = ("_things",)

    def __init__(self) -> None:
        self._things: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._things)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._things.values()))

    def add(self, key: str, thing: T) -> None:
        """Hold a thing.

        Raises:
            KeyError: the id is taken.
        """
        if key in self._things:
            raise KeyError(key)
        self._things[key] = thing

    def get(self, key: str) -> T | None:
        """Return a thing, or None."""
        return self._things.get(key)

    def drop(self, key: str) -> T | None:
        """Hold a thing no longer; return it, or None."""
        return self._things.pop(key, None)

    def oldest(self) -> tuple[str, T] | None:
        """Return the thing held longest."""
        for pair in self._things.items():
            return pair
        return None
