"""Reads of the log's own objects on threads, with separate threads for the disk and the object store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from mainstem.errors import Throttled
from mainstem.ports.commitlog.port import CommitLog

STORE_READS_MAX = 1_024  # reads that wait for an object store; more are rejected as retriable
STORE_READ_THREADS = 16  # for reads of an object store; reads of the disk have other threads

_T = TypeVar("_T")


class ObjectReads:
    """Reads of an object store do not delay reads of the disk."""

    def __init__(self, port: CommitLog) -> None:
        self._port = port
        self._store_reads = 0  # running, or waiting for a thread
        self._store_threads = ThreadPoolExecutor(STORE_READ_THREADS, "mainstem-store-reads")

    async def run(self, object: int, call: Callable[..., _T], *arguments: Any) -> _T:
        """Run a read of an object on a thread. Raises Throttled if the store is too far behind."""
        if self._port.url(object) is not None:
            return await asyncio.to_thread(call, *arguments)
        if self._store_reads >= STORE_READS_MAX:
            raise Throttled(
                "reads of the object store", STORE_READS_MAX, "it does not keep up: try again soon"
            )
        self._store_reads += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._store_threads, call, *arguments)
        finally:
            self._store_reads -= 1

    def close(self) -> None:
        """Release the threads. A running read may fail."""
        self._store_threads.shutdown(wait=False, cancel_futures=True)
