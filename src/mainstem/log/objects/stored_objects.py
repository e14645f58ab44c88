"""The log's objects and what each of them holds, for operators."""

from __future__ import annotations

from typing import NamedTuple

from mainstem.log.read.extents import Rows
from mainstem.log.read.index import ExtentIndex
from mainstem.ports.commitlog.port import CommitLog


class ObjectContents(NamedTuple):
    number: int
    size_bytes: int
    sealed: bool
    commits: int
    spans: Rows | None  # rows of SPAN, one a stream; None if not requested, or too many
    cold: bool = False  # in the object store of a local log, and no longer on its disk


class StoredObjects(NamedTuple):
    objects: list[ObjectContents]  # by number
    memory_bytes: int  # of the newest records, cached for readers at the end


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
