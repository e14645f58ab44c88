"""Whether the object store is being copied: what is in it stays there until that is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class StoreCopies:
    """Asked by all who delete objects that the log named once; they come back to it in their next round."""

    def __init__(self) -> None:
        self._under_way = 0

    def __bool__(self) -> bool:
        return self._under_way > 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Within the block what the log names when it begins is not deleted."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
