"""Tune the server's heap to reuse freed memory."""

from __future__ import annotations

import ctypes

from mainstem import limits

HEAP_KEPT_BYTES = 64 * limits.MIB  # freed memory that the server keeps for the next requests
HEAP_BLOCK_BYTES_MAX = 16 * limits.MIB  # larger blocks are mapped from the kernel and returned to it

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def keep_freed_memory() -> None:
    """Keep glibc from returning every large freed block to the kernel.

    Requests are received into blocks of their own size, which the tail cache frees in order of arrival. If each block
    went back to the kernel, the next one would be faulted in page by page, which costs more than receiving it. Only a
    server does this: an embedded log must not tune its host process. Without glibc, this does nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, HEAP_BLOCK_BYTES_MAX)
        mallopt(_TRIM_THRESHOLD, HEAP_KEPT_BYTES)
