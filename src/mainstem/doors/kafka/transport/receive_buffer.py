"""Memory that bulk requests are received into, and in which the log keeps their batches.

Copying a batch out of a reused buffer costs as much as receiving it. So connections that send much are received into
shared blocks, which they fill one after another. A block is reused once nothing refers to it, that is, once the tail
cache has evicted its last batch: the kernel must clear memory that is new to the process, which costs half as much as
receiving into it.
"""

from __future__ import annotations

import sys
from collections import deque

import numpy as np
import numpy.typing as npt

from mainstem import limits

KAFKA_LANDING_BLOCK_BYTES = 4 * limits.MIB  # … a block that several requests fill …
KAFKA_LANDING_FRAME_BYTES_MAX = 1 * limits.MIB  # … but not larger ones: too much of its end would stay unused
KAFKA_LANDING_FRAMES_MAX = 64  # incomplete ones: each may hold a block
KAFKA_LANDING_BLOCKS_MAX = 32  # free blocks that are reused

_Block = npt.NDArray[np.uint8]


def _references(blocks: deque[_Block]) -> int:
    """References to the first block. Every view of memory refers to its owner."""
    return sys.getrefcount(blocks[0])


_IN_LINE_ALONE = _references(deque([np.empty(0, np.uint8)]))


def _in_use(blocks: deque[_Block]) -> bool:
    """Whether anything else refers to the first block."""
    return _references(blocks) > _IN_LINE_ALONE


class ReceiveBuffer:
    """The block being filled, and those before it. No other call may come between `room` and `take`."""

    def __init__(self) -> None:
        self._block = memoryview(b"")
        self._at = 0
        self._blocks: deque[_Block] = deque()  # oldest first; the last one is being filled
        self._unfinished = 0  # incomplete requests: a client that stops sending holds a block

    def room(self, expected: int) -> memoryview:
        """Where to receive next: there is room for a request of this size, unless it is a large one."""
        wanted = min(max(expected, limits.KAFKA_RECEIVE_BUFFER_BYTES), KAFKA_LANDING_FRAME_BYTES_MAX)
        if len(self._block) - self._at < wanted:
            self._block = self._next_block().data
            self._at = 0
        return self._block[self._at :]

    def take(self, size: int) -> None:
        """Mark this many bytes as used."""
        self._at += size

    def keep(self, size: int) -> bool:
        """Reserve the next bytes for the rest of a request. False: too many are incomplete; receive it elsewhere."""
        if self._unfinished >= KAFKA_LANDING_FRAMES_MAX:
            return False
        self._unfinished += 1
        self._at += size
        return True

    def finished(self) -> None:
        """Such a request is complete, or its client disconnected."""
        self._unfinished -= 1

    def _next_block(self) -> _Block:
        blocks = self._blocks
        if blocks and not _in_use(blocks):
            block = blocks.popleft()
        else:
            block = np.empty(KAFKA_LANDING_BLOCK_BYTES, np.uint8)
            if len(blocks) == KAFKA_LANDING_BLOCKS_MAX:
                blocks.popleft()  # references to it keep it alive
        blocks.append(block)
        return block

    def let_go(self) -> None:
        """Give back the memory of blocks that are not in use."""
        for _ in range(len(self._blocks)):
            if _in_use(self._blocks):
                self._blocks.rotate(-1)
            else:
                self._blocks.popleft()


def fresh(size: int) -> memoryview:
    """A new buffer with untouched pages: a client that announces a large request and sends little of it costs
    little."""
    return np.empty(size, np.uint8).data
