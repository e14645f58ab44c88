"""Import: make a new shared log from the objects and the state of another log.

Objects come first and the state last. The log exists only with the state: before that no broker can join it. An import
of the same log can resume one that was interrupted.
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
        """Raises InvalidInput if there is already a log."""
        ...

    async def resume(self, wanted: Sequence[LogObject]) -> set[int]:
        """Resume an interrupted import: which of these objects are complete. Deletes everything else."""
        ...

    async def put_object(self, imported: LogObject, index: bytes, read: Read) -> None:
        """Store a sealed object; its extents keep their offsets."""
        ...

    async def finish(self, identity: bytes, checkpoint: Checkpoint, last_object: int) -> None:
        """Store the state, which makes it a log. Raises InvalidInput if another process made one meanwhile."""
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
