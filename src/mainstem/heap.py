"""The server's heap: what it frees, it keeps for what comes next."""

from __future__ import annotations

import ctypes

from mainstem import limits

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def keep_freed_memory() -> None:
    """Keep glibc from giving every large block it frees back to the kernel.

    Requests are received into blocks of their own size, which the tail cache lets go of in the order they came:
    given back and taken again, each is faulted in anew, page by page, which costs more than to receive it. Only a
    server does so: the process of an embedded log is not ours to tune. Without glibc nothing happens."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, limits.HEAP_BLOCK_BYTES_MAX)
        mallopt(_TRIM_THRESHOLD, limits.HEAP_KEPT_BYTES)
