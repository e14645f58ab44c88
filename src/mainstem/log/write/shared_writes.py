"""The commit path of a shared log: upload the payloads of several groups at once, and commit them in order.

Appends to topics whose profile is `cost` wait for each other in a group of their own, whose payload is stored by
reference: fewer and larger objects, and nothing of it in etcd.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from mainstem.errors import Closed
from mainstem.ledger.entry import Entry
from mainstem.log.write.append import Waiter
from mainstem.log.write.follower import Follower
from mainstem.log.write.group import CommitGroup
from mainstem.records.header import Slice

if TYPE_CHECKING:
    from mainstem.log.write.committer import Committer

UPLOADS_IN_FLIGHT_MAX = 4  # concurrent uploads of payloads
COST_LINGER_S = 0.25  # how long records of topics with the profile `cost` wait for others


class _GroupUpload(NamedTuple):
    group: CommitGroup
    entry: Entry
    encoded: bytes
    uploading: asyncio.Task[object]


class SharedWrites:
    def __init__(self, committer: Committer, follower: Follower, uploads: int) -> None:
        self._committer = committer
        self._follower = follower
        self._loop = asyncio.get_running_loop()
        self._uploads = asyncio.Semaphore(uploads)
        self._line: deque[_GroupUpload] = deque()  # groups that are being uploaded or committed
        self._in_line = asyncio.Event()
        self._inline_bytes = 0  # a payload up to this size needs no upload …
        self._line_moved = asyncio.Event()  # … and waits for this, unless it grows
        self._saved = CommitGroup(by_reference=True)  # of topics with the profile `cost`
        self._saved_until: asyncio.TimerHandle | None = None

    @property
    def last(self) -> CommitGroup | None:
        """The newest group that is being written."""
        return self._line[-1].group if self._line else None

    def proposed(self, payload_bytes: int, *, full: bool) -> None:
        """The group being filled has grown. `full`: another one waits to be written."""
        if payload_bytes > self._inline_bytes or full:
            self._line_moved.set()

    # Topics with the profile `cost`

    def saves(self, stream: int) -> bool:
        """Whether an append waits for others, to be stored by reference."""
        # Where no payload is uploaded (workers of one host), there is nothing to save.
        return self._committer.saves_cost(stream) and self._follower.inline_bytes < sys.maxsize

    def save(self, row: bytes, records: bytes, slice: Slice, waiter: Waiter) -> None:
        """Add to the group whose payload is stored by reference."""
        if not self._saved.takes(len(slice)):
            self.release_saved()
        if self._saved_until is None:
            self._saved_until = self._loop.call_later(COST_LINGER_S, self.release_saved)
        self._saved.add_slice(row, records, slice, waiter)
        if self._saved.full:
            self.release_saved()

    def release_saved(self) -> None:
        """Write what has waited so far."""
        if self._saved_until is not None:
            self._saved_until.cancel()
            self._saved_until = None
        if self._saved.parts:
            group, self._saved = self._saved, CommitGroup(by_reference=True)
            self._committer.add_group(group)

    # Writing

    async def upload(self) -> None:
        """Upload the payloads of several groups concurrently."""
        while True:
            await self._uploads.acquire()
            await self._fill_behind()
            group = await self._committer.take_group()
            entry = self._committer.take_entry(group)
            encoded = entry.encode(group.bodies())
            uploading = self._loop.create_task(
                self._follower.prepare(encoded, group.slices(), by_reference=group.by_reference)
            )
            uploading.add_done_callback(_seen)  # the commit raises its error
            self._line.append(_GroupUpload(group, entry, encoded, uploading))
            self._in_line.set()

    async def _fill_behind(self) -> None:
        """A group without an upload fills until those before it are committed: in line it would only wait."""
        self._inline_bytes = self._follower.inline_bytes
        while self._line and self._committer.fills_up_to(self._inline_bytes):
            self._line_moved.clear()
            await self._line_moved.wait()

    async def commit(self) -> None:
        """Commit groups in the order in which their uploads started."""
        while True:
            while not self._line:
                self._in_line.clear()
                await self._in_line.wait()
            first = self._line[0]
            try:
                await self._committer.settle(first.group, self._commit(first))
            finally:
                self._line.popleft()
                self._line_moved.set()
                self._uploads.release()

    async def _commit(self, upload: _GroupUpload) -> None:
        uploaded = await upload.uploading
        self._committer.check_writable()
        placement = await self._follower.append(upload.encoded, upload.group.slices(), uploaded)
        self._committer.shortage_over()
        self._committer.apply(upload.group, upload.entry, placement)
        self._follower.applied()

    def stop(self) -> None:
        """Fail what is in line. After the tasks were cancelled."""
        for upload in self._line:
            upload.uploading.cancel()
            upload.group.fail(Closed("the log was closed while this was being written"))
        self._line.clear()


def _seen(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
