"""Compacted views: of the records below a horizon, readers that ask for it get the last one of each key only.

A record without a key is left out, and so is a key whose last value is empty: that is how clients of Pulsar delete one.
The records themselves stay for all other readers. The ledger has the horizon of a stream; which records are the last of
their keys is found by reading them, once for each horizon, and kept in memory.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import cast

import numpy as np
import numpy.typing as npt

from mainstem import events
from mainstem.broker.streams import StreamService, View
from mainstem.broker.subscriptions.entries import (
    READ_BYTES,
    Delivery,
    MessageEntry,
    MessageEntryReader,
    add_record,
)
from mainstem.errors import InvalidBatch, LimitReached, OffsetOutOfRange, RecordsLost, TooLarge, described
from mainstem.ledger.compaction_horizons import RaiseCompactionHorizon
from mainstem.ledger.subscriptions import Range
from mainstem.log.log import Log
from mainstem.records.decoding import decode_records
from mainstem.records.header import walk

VIEW_KEYS_MAX = 4_000_000  # keys of one view, of about 130 bytes each while it is made
VIEWS_KEPT_MAX = 16  # views in memory, of 8 bytes a key

_log = events.named("compaction")
_KEY_BYTES = 16  # of the hash that stands for a key


class CompactedViews:
    def __init__(self, log: Log, streams: StreamService) -> None:
        self._log = log
        self._streams = streams
        self._horizons = log.ledger.compaction_horizons
        self._views: OrderedDict[tuple[int, int], npt.NDArray[np.int64]] = OrderedDict()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._done: set[int] = set()  # compacted since the broker started, perhaps without a record
        self._errors: dict[int, str] = {}  # of the last compaction of a stream, if it failed

    # Compaction

    def start(self, stream: int) -> bool:
        """Make a view of all records that there are. Returns False if that is under way."""
        if stream in self._running:
            return False
        self._errors.pop(stream, None)
        self._running[stream] = asyncio.get_running_loop().create_task(self._compact(stream))
        return True

    async def _compact(self, stream: int) -> None:
        try:
            end = self._streams.bounds(stream)[1]
            await self._kept(stream, end)
            await self._log.propose(RaiseCompactionHorizon(stream, end))
            self._done.add(stream)
        except Exception as error:  # noqa: BLE001 - it is the result of the compaction
            self._errors[stream] = described(error)
            _log.warning("compaction failed", stream=stream, error=described(error))
        finally:
            del self._running[stream]

    def state(self, stream: int) -> tuple[str, str]:
        """NOT_RUN, RUNNING, SUCCESS or ERROR, and the last error."""
        if stream in self._running:
            return "RUNNING", ""
        if stream in self._errors:
            return "ERROR", self._errors[stream]
        done = stream in self._done or self._horizons.of(stream)
        return ("SUCCESS" if done else "NOT_RUN"), ""

    async def close(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Reading

    async def reader(self, stream: int, left_out: Callable[[list[Range]], object]) -> MessageEntryReader:
        """A reader of the view. `left_out` receives the offsets that it skips. Raises LimitReached."""
        horizon = self._horizons.of(stream)
        if not horizon:
            return MessageEntryReader(self._streams, stream)
        return _CompactedReader(self._streams, stream, horizon, await self._kept(stream, horizon), left_out)

    async def _kept(self, stream: int, horizon: int) -> npt.NDArray[np.int64]:
        """The offsets of the view below a horizon, in order."""
        found = self._views.get((stream, horizon))
        if found is None:
            latest: dict[bytes, int] = {}
            at = self._streams.bounds(stream)[0]
            while at < horizon:
                at = await self._scan(stream, at, horizon, latest)
                if len(latest) > VIEW_KEYS_MAX:
                    raise LimitReached(f"a compacted view has at most {VIEW_KEYS_MAX} keys")
            found = np.sort(np.fromiter(latest.values(), np.int64, len(latest)))
            self._views[stream, horizon] = found
            if len(self._views) > VIEWS_KEPT_MAX:
                self._views.popitem(last=False)
        self._views.move_to_end((stream, horizon))
        return found

    async def _scan(self, stream: int, at: int, horizon: int, latest: dict[bytes, int]) -> int:
        """Note the last record of each key in the next records. Returns where to continue."""
        try:
            chunk = await self._streams.read(stream, at, READ_BYTES, view=View.COMMITTED)
        except RecordsLost as loss:
            return loss.end
        except OffsetOutOfRange:
            start = self._streams.bounds(stream)[0]
            return start if start > at else horizon
        await asyncio.to_thread(_note_keys, chunk.batches, at, horizon, latest)
        return max(chunk.next_offset, at + 1)


def _note_keys(batches: Sequence[memoryview], at: int, horizon: int, latest: dict[bytes, int]) -> None:
    for data in batches:
        for header in walk(data):
            if header.control or header.next_offset <= at:
                continue
            try:
                for record in decode_records(data[header.position : header.end], at):
                    if record.key is None or record.offset >= horizon:
                        continue
                    key = blake2b(record.key, digest_size=_KEY_BYTES).digest()
                    if record.value:
                        latest[key] = record.offset
                    else:
                        latest.pop(key, None)
            except (InvalidBatch, TooLarge) as error:
                _log.warning("batch not decodable", offset=header.base_offset, error=str(error))


class _CompactedReader(MessageEntryReader):
    def __init__(
        self,
        streams: StreamService,
        stream: int,
        horizon: int,
        kept: npt.NDArray[np.int64],
        left_out: Callable[[list[Range]], object],
    ) -> None:
        super().__init__(streams, stream)
        self._horizon = horizon
        self._kept = kept
        self._left_out = left_out

    async def read(self, offset: int, max_bytes: int = READ_BYTES) -> tuple[list[MessageEntry], int]:
        while True:
            entries, reached = await super().read(offset, max_bytes)
            if not entries or entries[0].base >= self._horizon:
                return entries, reached
            shown, passed = await self._filtered(entries)
            if passed:
                self._left_out(passed)
            if shown:
                return shown, reached
            offset = reached

    async def read_runs(self, offset: int, max_bytes: int = READ_BYTES) -> tuple[list[Delivery], int]:
        entries, reached = await self.read(offset, max_bytes)
        return [*entries], reached

    async def _filtered(self, entries: list[MessageEntry]) -> tuple[list[MessageEntry], list[Range]]:
        """What the view has of entries, and the offsets that it has not."""
        shown: list[MessageEntry] = []
        passed: list[Range] = []
        for entry in entries:
            first, end = np.searchsorted(self._kept, (entry.base, entry.end))
            kept = {int(offset) for offset in self._kept[first:end]}
            if entry.base >= self._horizon or len(kept) == entry.count:
                shown.append(entry)
                continue
            passed += [(offset, offset + 1) for offset in range(entry.base, entry.end) if offset not in kept]
            if kept:
                shown.append(await self._only(entry, kept))
        return shown, passed

    async def _only(self, entry: MessageEntry, kept: set[int]) -> MessageEntry:
        """An entry with some of its records."""
        chosen: list[Delivery] = []
        at = entry.base
        while at < entry.end:
            chunk = await self._streams.read(self._stream, at, READ_BYTES, view=View.COMMITTED)
            for data in chunk.batches:
                for header in walk(data):
                    if header.control or header.base_offset >= entry.end:
                        continue
                    for record in decode_records(data[header.position : header.end], at):
                        if record.offset in kept:
                            add_record(record, chosen)
            at = max(chunk.next_offset, at + 1)
        return cast(MessageEntry, chosen[0])
