"""Which partition each row goes to: as it says, else by its key as Kafka's clients decide it, else by turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mainstem.records.columns import Integers, Spans
from mainstem.records.compiled import compiled

_SEED = 0x9747B28C
_M = 0x5BD1E995
_U32 = 0xFFFFFFFF

NOWHERE = -1


def hash_spans(data: Any, starts: Any, lengths: Any, hashes: Any) -> None:
    """MurmurHash2 of each span, 31 bits, with the seed Kafka uses; NOWHERE for a null. A kernel."""
    for row in range(len(starts)):
        length = int(lengths[row])
        if length < 0:
            hashes[row] = NOWHERE
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
    """Of one topic, for one task. Rows without a key stay together for a while: larger batches."""

    def __init__(self, partitions: int, first: int) -> None:
        self._partitions = partitions
        self._turn = first

    def place(self, keys: Spans, named: Integers | None, rows: int) -> npt.NDArray[np.int64]:
        """One partition a row. `named` are the rows' own, NOWHERE where a row names none."""
        self._turn = (self._turn + 1) % self._partitions
        if len(keys):
            hashes = np.empty(rows, np.int64)
            data = keys.data.view()
            data.flags.writeable = False
            compiled(hash_spans)(data, keys.starts, keys.lengths, hashes)
            placed = np.where(hashes == NOWHERE, self._turn, hashes % self._partitions)
        else:
            placed = np.full(rows, self._turn, np.int64)
        return placed if named is None else np.where(named == NOWHERE, placed, named)
