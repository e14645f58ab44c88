"""Choose each row's partition: the row's own, else by its key like Kafka's clients, else round-robin."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mainstem.records.columns import Integers, Spans
from mainstem.records.compiled import compiled

_SEED = 0x9747B28C
_M = 0x5BD1E995
_U32 = 0xFFFFFFFF

NO_PARTITION = -1


def hash_spans(data: Any, starts: Any, lengths: Any, hashes: Any) -> None:
    """MurmurHash2 of each span, 31 bits, with Kafka's seed; NO_PARTITION for a null. A kernel."""
    for row in range(len(starts)):
        length = int(lengths[row])
        if length < 0:
            hashes[row] = NO_PARTITION
            continue
        start = int(starts[row])
        h = _SEED ^ length
        whole = length & ~3
        for at in range(start, start + whole, 4):
            k = int(data[at]) | int(data[at + 1]) << 8 | int(data[at + 2]) << 16 | int(data[at + 3]) << 24
            k = k * _M & _U32
            k = (k ^ k >> 24) * _M & _U32
            h = (h * _M & _U32) ^ k
        if length > whole:
            k = 0
            for i in range(length - whole):
                k |= int(data[start + whole + i]) << (8 * i)
            h = (h ^ k) * _M & _U32
        h = (h ^ h >> 13) * _M & _U32
        hashes[row] = (h ^ h >> 15) & 0x7FFFFFFF


class Partitioner:
    """Partitions of one topic, for one task. All rows without a key of one call share a partition: larger batches."""

    def __init__(self, partitions: int, first: int) -> None:
        self._partitions = partitions
        self._current = first

    def partitions(self, keys: Spans, named: Integers | None, rows: int) -> npt.NDArray[np.int64]:
        """The partition of each row. `named` are the rows' own, NO_PARTITION where a row has none."""
        self._current = (self._current + 1) % self._partitions
        if len(keys):
            hashes = np.empty(rows, np.int64)
            data = keys.data.view()
            data.flags.writeable = False
            compiled(hash_spans)(data, keys.starts, keys.lengths, hashes)
            chosen = np.where(hashes == NO_PARTITION, self._current, hashes % self._partitions)
        else:
            chosen = np.full(rows, self._current, np.int64)
        return chosen if named is None else np.where(named == NO_PARTITION, chosen, named)
