"""Memory that the workers of a log share."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from mainstem import limits
from mainstem.errors import StorageError
from mainstem.ports.commitlog.port import Buffer

PAYLOAD_MEMORY_BYTES = 128 * limits.MIB  # addresses, not memory: only pages that were used count
PAYLOAD_INLINE_BYTES_MAX = 4 * limits.KIB  # a smaller payload goes through the socket with its entry

_END_BYTES = 8


class PublishedEnd:
    """The end of the log, which all workers map: a barrier reads it without asking the writer.

    File `end`: one u8 in the machine's byte order, aligned, so that it is written and read in one piece. The writer
    stores it before it answers a commit. It means nothing until a writer has stored it, so it need not survive
    anything."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        """Raises OSError; only the writer creates the file."""
        flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        try:
            if writable:
                os.ftruncate(descriptor, _END_BYTES)
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._map = mmap.mmap(descriptor, _END_BYTES, access=access)
        finally:
            os.close(descriptor)
        self._value = memoryview(self._map).cast("Q")

    def get(self) -> int:
        return self._value[0]

    def set(self, end: int) -> None:
        self._value[0] = end


class PayloadMemory:
    """A payload goes to the file from here, not through the socket. A follower has one append in flight, so one buffer
    is enough, and its pages stay the same."""

    def __init__(self, descriptor: int) -> None:
        """Takes over the descriptor of memory of PAYLOAD_MEMORY_BYTES."""
        try:
            self._map = mmap.mmap(descriptor, PAYLOAD_MEMORY_BYTES)
        except ValueError as error:  # the memory is smaller
            raise StorageError(f"the payload memory of a follower: {error}") from None
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
