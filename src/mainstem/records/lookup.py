"""Find records in stamped batches."""

from __future__ import annotations

import numpy as np

from mainstem.records import kernels
from mainstem.records.header import walk
from mainstem.records.index import Buffer, Integers, index_batch, index_slices


def first_offset_at(buf: Buffer, timestamp_ms: int) -> int | None:
    """The first offset with a record time of `timestamp_ms` or later; None if every record is earlier."""
    data = memoryview(buf).cast("B")
    for header in walk(data):
        # The header excludes most batches, so that few are decompressed.
        if header.control or header.max_timestamp < timestamp_ms:
            continue
        index = index_batch(data, header)
        late = np.flatnonzero(index.fields[kernels.TIMESTAMP] >= timestamp_ms)
        if len(late):
            return int(index.fields[kernels.OFFSET, late[0]])
    return None


def offsets_with_key(buf: Buffer, key: bytes) -> Integers:
    """The offsets of the records with this key. A null key never matches."""
    return _find(buf, key, whole=True)


def offsets_with_key_prefix(buf: Buffer, prefix: bytes) -> Integers:
    """The offsets of the records whose key starts with `prefix`. A null key never matches."""
    return _find(buf, prefix, whole=False)


def _find(buf: Buffer, wanted: bytes, *, whole: bool) -> Integers:
    parts = []
    for index in index_slices([buf]):
        found = np.empty(len(index), np.int64)
        count = index.run(kernels.find_keys, index.fields, wanted, whole, found)
        parts.append(found[:count])
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
