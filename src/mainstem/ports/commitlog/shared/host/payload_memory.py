"""Memory that a follower and the writer share: a payload goes to the file from here, not through the socket.

A follower has one append in flight, so one buffer is enough, and its pages stay the same.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

from mainstem import limits
from mainstem.ports.commitlog.port import Buffer

PAYLOAD_MEMORY_BYTES = 128 * limits.MIB  # addresses, not memory: only pages that were used count
PAYLOAD_INLINE_BYTES_MAX = 4 * limits.KIB  # a smaller payload goes through the socket with its entry


class PayloadMemory:
    def __init__(self, descriptor: int) -> None:
        """Takes over the descriptor of memory of PAYLOAD_MEMORY_BYTES."""
        try:
            self._map = mmap.mmap(descriptor, PAYLOAD_MEMORY_BYTES)
        finally:
            os.close(descriptor)
        self.view = memoryview(self._map)

    def put(self, slices: Sequence[Buffer]) -> None:
        """Store a payload from the first byte on. The caller checked that it fits."""
        at = 0
        for part in slices:
            self.view[at : at + len(part)] = part
            at += len(part)


def new_payload_memory() -> int:
    """A descriptor of new memory, for both processes to map."""
    descriptor = os.memfd_create("mainstem-payloads", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, PAYLOAD_MEMORY_BYTES)
    return descriptor
