"""Memory that bulk requests are received into, and in which the log then keeps their batches.

To copy a batch out of a buffer that is used again costs as much as to receive it. So who sends much is read into
blocks that all such connections fill, one behind the other, from front to back. A block is filled again once nothing
refers to it any more, which is when the tail cache has let go of the last batch in it: the kernel has to clear memory
that is new to the process, and that costs half as much as to receive into it.
"""

from __future__ import annotations

import sys
from collections import deque

import numpy as np
import numpy.typing as npt

from mainstem import limits

_Block = npt.NDArray[np.uint8]


def _references(blocks: deque[_Block]) -> int:
    """To the first of them. Every view of memory refers to its owner."""
    return sys.getrefcount(blocks[0])


_IN_LINE_ALONE = _references(deque([np.empty(0, np.uint8)]))


def _in_use(blocks: deque[_Block]) -> bool:
    """Whether anything but this line of blocks refers to the first of them."""
    return _references(blocks) > _IN_LINE_ALONE


class ReceiveBuffer:
    """The block that is being filled, and those before it. Between `room` and `take` nobody else may ask."""

    def __init__(self) -> None:
        self._block = memoryview(b"")
        self._at = 0
        self._blocks: deque[_Block] = deque()  # oldest first, the one that is being filled last
        self._unfinished = (
            0  # frames of which a part is yet to come: who falls silent meanwhile holds a block
        )

    def room(self, expected: int) -> memoryview:
        """Where to receive into next: there is room for a frame of so many bytes, unless it is a large one."""
        wanted = min(max(expected, limits.KAFKA_RECEIVE_BUFFER_BYTES), limits.KAFKA_LANDING_FRAME_BYTES_MAX)
        if len(self._block) - self._at < wanted:
            self._block = self._next_block().data
            self._at = 0
        return self._block[self._at :]

    def take(self, size: int) -> None:
        """So many bytes of the room are used."""
        self._at += size

    def keep(self, size: int) -> bool:
        """Have the next bytes for the rest of a frame. False: enough frames wait for theirs, it goes elsewhere."""
        if self._unfinished >= limits.KAFKA_LANDING_FRAMES_MAX:
            return False
        self._unfinished += 1
        self._at += size
        return True

    def finished(self) -> None:
        """Such a frame is whole, or nobody sends the rest of it any more."""
        self._unfinished -= 1

    def _next_block(self) -> _Block:
        blocks = self._blocks
        if blocks and not _in_use(blocks):
            block = blocks.popleft()
        else:
            block = np.empty(limits.KAFKA_LANDING_BLOCK_BYTES, np.uint8)
            if len(blocks) == limits.KAFKA_LANDING_BLOCKS_MAX:
                blocks.popleft()  # whoever still refers to it has it to himself
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
    """Memory of its own, not touched yet: a client that announces much and sends little costs little."""
    return np.empty(size, np.uint8).data
