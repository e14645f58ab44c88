"""What the log holds, file by file: for people who want to see it."""

from __future__ import annotations

from typing import NamedTuple

from mainstem.log.extents import Rows
from mainstem.log.index import ExtentIndex
from mainstem.ports.commitlog.port import CommitLog


class ObjectContents(NamedTuple):
    number: int
    size_bytes: int
    sealed: bool
    commits: int
    spans: Rows | None  # rows of SPAN, one a stream; None if nobody asked, or they are too many
    cold: bool = False  # in the object store of a local log, and no more on its disk


class StoredObjects(NamedTuple):
    objects: list[ObjectContents]  # by number
    memory_bytes: int  # of the newest records, kept to serve readers at the end


def stored_objects(port: CommitLog, index: ExtentIndex | None, memory_bytes: int) -> StoredObjects:
    objects = [
        ObjectContents(
            one.number,
            one.size_bytes,
            one.sealed,
            one.end_position - one.first_position,
            None if index is None else index.spans(one.number),
            one.cold,
        )
        for one in port.objects()
    ]
    return StoredObjects(objects, memory_bytes)
