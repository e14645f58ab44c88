"""LogImporter: a new shared log that begins with what another log holds, as if it had been written there.

Objects come first, the state last, and only with the state does the log exist: before that nobody can join it. What an
importer that was cut off left there is of use to the next one of the same log, and to nobody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from mainstem.errors import InvalidConfig
from mainstem.ports.commitlog.port import Checkpoint, LogObject
from mainstem.ports.commitlog.shared.open import SharedPlace
from mainstem.ports.objectstore.port import ObjectStore

Read = Callable[[int, int], Awaitable[bytes]]
"""Bytes of an object: start, length."""


class LogImporter(Protocol):
    async def check_free(self) -> None:
        """Raises InvalidInput if there is a log already."""
        ...

    async def resume(self, wanted: Sequence[LogObject]) -> set[int]:
        """After an importer that was cut off: which of these objects are there whole. All else of it is deleted."""
        ...

    async def put_object(self, adopted: LogObject, index: bytes, read: Read) -> None:
        """A sealed object, of `size_bytes`; its extents keep their places."""
        ...

    async def finish(self, identity: bytes, checkpoint: Checkpoint, last_object: int) -> None:
        """The state after all that, which makes it a log. Raises InvalidInput if somebody else made one meanwhile."""
        ...

    async def close(self) -> None: ...


async def open_importer(place: SharedPlace, store: ObjectStore) -> LogImporter:
    """Raises InvalidConfig if a library is missing, Unavailable."""
    try:
        if place.etcd:
            from mainstem.ports.commitlog.shared.etcd.importing import EtcdImporter

            return EtcdImporter.connect(place.etcd, store)
        from mainstem.ports.commitlog.shared.bucket.importing import BucketImporter

        return BucketImporter(store)
    except ImportError as missing:
        raise InvalidConfig(
            f"a log in {place.name} needs {missing.name!r}: pip install 'mainstem[cluster]'"
        ) from missing
