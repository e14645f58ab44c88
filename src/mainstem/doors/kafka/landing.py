"""Memory that bulk requests are received into, and in which the log then keeps their batches.

To copy a batch out of a buffer that is used again costs as much as to receive it. So who sends much is read into
memory that is used once: blocks that all such connections fill, one behind the other, from front to back. A block lives
as long as something refers to it, which is until the tail cache has let go of the last batch in it.
"""

from __future__ import annotations

import numpy as np

from mainstem import limits
from mainstem.records.header import Slice


class Landing:
    """The block that is being filled. Between `room` and `take` nobody else may ask."""

    def __init__(self) -> None:
        self._block = memoryview(b"")
        self._at = 0

    def room(self, expected: int) -> memoryview:
        """Where to receive into next: there is room for a frame of so many bytes, unless it is a large one."""
        wanted = min(max(expected, limits.KAFKA_RECEIVE_BUFFER_BYTES), limits.KAFKA_LANDING_FRAME_BYTES_MAX)
        if len(self._block) - self._at < wanted:
            self._block = fresh(limits.KAFKA_LANDING_BLOCK_BYTES)
            self._at = 0
        return self._block[self._at :]

    def take(self, size: int) -> None:
        """So many bytes of the room are used."""
        self._at += size


def fresh(size: int) -> memoryview:
    """Memory of its own, not touched yet: a client that announces much and sends little costs little."""
    return np.empty(size, np.uint8).data


def kept(body: memoryview, first: int, end: int) -> Slice:
    """Bytes of a request that outlive it: in place, if they were received into memory that is used once.

    Few bytes are copied all the same, or they could hold a whole block."""
    part = body[first:end]
    if isinstance(body.obj, np.ndarray) and end - first >= limits.KAFKA_KEPT_IN_PLACE_BYTES_MIN:
        return part
    return bytearray(part)
