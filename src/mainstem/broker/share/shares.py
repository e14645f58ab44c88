"""Records of share groups: members acquire and acknowledge them, and unacknowledged ones become available again.

The ledger decides which member holds a record, as with queues. Records are read before they are acquired, so that a
member acquires what fits into its response; the ledger's result says which of them the member got.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary

from mainstem import events, limits
from mainstem.broker.groups.settings import checked, known
from mainstem.broker.share.settings import ShareSettings
from mainstem.broker.streams import StreamService
from mainstem.errors import MainstemError, OffsetOutOfRange, RecordsLost, ShareNotFound
from mainstem.ledger.group_settings import ALL_GROUPS as ALL_GROUPS
from mainstem.ledger.group_settings import AlterGroupSettings
from mainstem.ledger.leases import ranges_of
from mainstem.ledger.shares import (
    AcquireShare,
    DeleteShare,
    OpenShare,
    SettleShare,
    Share,
    ShareAcquired,
    ShareSettled,
    Verdict,
)
from mainstem.log.log import Log
from mainstem.metrics import Metric
from mainstem.ports.clock import Clock
from mainstem.records.header import walk

__all__ = ["AcquireLimits", "Acquired", "Runs", "Settlement", "ShareService", "Verdict", "check_settings"]

_log = events.named("shares")
_OUTCOMES = ("gaps", "accepted", "released", "rejected", "renewed")  # by verdict
_READ_BYTES = 4 * limits.MIB  # per partition and read, whatever a member's limits are

Runs = tuple[tuple[int, int, int], ...]  # (first, end, deliveries)
Settlement = tuple[int, int, int]  # (first, end, verdict)


class Acquired(NamedTuple):
    """What a member acquired of one stream. The batches may contain other records too."""

    batches: list[memoryview]
    runs: Runs
    records: int
    size: int


class AcquireLimits(NamedTuple):
    """The limits of one acquisition."""

    records: int
    size: int
    exact: bool = False  # never more records, even if the rest of a batch is then sent again


class ShareService:
    def __init__(self, log: Log, clock: Clock, streams: StreamService) -> None:
        self._log = log
        self._clock = clock
        self._streams = streams
        # Serialises members of a group per partition, so that none reads records that another is acquiring.
        self._turns: WeakValueDictionary[tuple[str, int], asyncio.Lock] = WeakValueDictionary()
        self._turn = 0
        self._releases: set[asyncio.Task[None]] = set()
        self._acquired = self._archived = 0
        self._verdicts = [0] * len(Verdict)

    async def close(self) -> None:
        """Wait for running tasks."""
        await asyncio.gather(*self._releases, return_exceptions=True)

    # Settings

    def settings(self, group: str) -> ShareSettings:
        return ShareSettings.of(self._log.ledger.group_settings.effective(group))

    def own_settings(self, group: str) -> Mapping[str, str]:
        """The settings that the group has itself; those of `ALL_GROUPS` are the defaults of all groups."""
        return self._log.ledger.group_settings.get(group)

    def groups_with_settings(self) -> list[str]:
        return self._log.ledger.group_settings.groups()

    async def change_settings(
        self, group: str, put: Sequence[tuple[str, str]], removed: Sequence[str]
    ) -> None:
        """Raises InvalidConfig, InvalidInput, LimitReached."""
        values = check_settings(put, removed)
        await self._log.propose(AlterGroupSettings(group, values, tuple(removed)))

    # Acquiring

    async def fetch(
        self,
        group: str,
        member: str,
        streams: Sequence[int],
        wanted: AcquireLimits,
        *,
        wait_s: float,
        hurry: asyncio.Event,
    ) -> dict[int, Acquired | MainstemError]:
        """What the member acquires of each stream, or the error for the stream.

        If there is nothing at all, it waits, unless `hurry` is set."""
        wake_signal = _ShareSignal(hurry)
        self._streams.watch(streams, wake_signal)
        ends = self._clock.monotonic() + wait_s
        try:
            while True:
                wake_signal.rung.clear()
                found = await self._gather(group, member, streams, wanted)
                left_s = ends - self._clock.monotonic()
                if found or left_s <= 0 or hurry.is_set() or not streams:
                    return found
                await wake_signal.wait(min(left_s, self._next_change_s(group, streams)))
        finally:
            self._streams.unwatch(streams, wake_signal)

    async def _gather(
        self, group: str, member: str, streams: Sequence[int], wanted: AcquireLimits
    ) -> dict[int, Acquired | MainstemError]:
        found: dict[int, Acquired | MainstemError] = {}
        self._turn += 1
        first = self._turn % max(len(streams), 1)
        for stream in [
            *streams[first:],
            *streams[:first],
        ]:  # so that a busy stream does not starve the others
            if wanted.records <= 0 or wanted.size <= 0:
                break
            try:
                acquired = await self.acquire(group, member, stream, wanted)
            except MainstemError as error:
                found[stream] = error
                continue
            if acquired is not None:
                found[stream] = acquired
                wanted = wanted._replace(
                    records=wanted.records - acquired.records, size=wanted.size - acquired.size
                )
        return found

    def _next_change_s(self, group: str, streams: Sequence[int]) -> float:
        """The time until a lock expires. A lock holds up to and including its last millisecond."""
        shares = (self._log.ledger.shares.get(group, stream) for stream in streams)
        times = [share.leases.next_change_ms for share in shares if share is not None]
        ends = [time_ms for time_ms in times if time_ms is not None]
        return max(min(ends) + 1 - self._log.now_ms(), 1) / 1000 if ends else float("inf")

    async def acquire(self, group: str, member: str, stream: int, wanted: AcquireLimits) -> Acquired | None:
        """Lock records for a member, for the group's lock duration. None: none are available now."""
        turn = self._turns.get((group, stream))
        if turn is None:
            turn = self._turns[group, stream] = asyncio.Lock()
        settings = self.settings(group)
        async with turn:
            share = await self._open(group, stream, settings)
            while True:
                await self._expire(share)
                end = self._end(stream, settings)
                at = self._log.ledger.shares.next_offset(
                    share, end, settings.in_flight_max, aborted=not settings.committed_only
                )
                if at is None:
                    return None
                found = await self._read(share, member, at, end, wanted, settings)
                if found is None:
                    continue
                batches, reach = found
                if reach <= at:
                    return None
                limit = (
                    min(wanted.records, limits.SHARE_IN_FLIGHT_MAX)
                    if wanted.exact
                    else limits.SHARE_IN_FLIGHT_MAX
                )
                acquired = await self._acquire(share, member, limit, (at, reach), settings)
                if acquired.runs:
                    return _answer(batches, acquired.runs)
                share = self._share(group, stream)

    async def _acquire(
        self, share: Share, member: str, limit: int, within: tuple[int, int], settings: ShareSettings
    ) -> ShareAcquired:
        acquired: ShareAcquired = await self._log.propose(
            AcquireShare(
                share.group,
                share.stream,
                member,
                self._log.broker,
                limit,
                *within,
                settings.lock_ms,
                settings.deliveries_max,
                settings.in_flight_max,
                aborted=not settings.committed_only,
            )
        )
        self._acquired += sum(last - first for first, last, _ in acquired.runs)
        self._note_archived(share.group, share.stream, acquired.archived)
        return acquired

    def _end(self, stream: int, settings: ShareSettings) -> int:
        end = self._streams.bounds(stream)[1]
        return self._streams.stable_end(stream, end) if settings.committed_only else end

    async def _read(
        self, share: Share, member: str, at: int, end: int, wanted: AcquireLimits, settings: ShareSettings
    ) -> tuple[list[memoryview], int] | None:
        """Batches from `at` on within the member's limits, and their end; None: try again."""
        size = min(wanted.size, _READ_BYTES)
        try:
            chunk = self._streams.read_cached(share.stream, at, size)
            if chunk is None:
                chunk = await self._streams.read(share.stream, at, size)
        except RecordsLost as loss:
            await self._give_up(share, member, (at, loss.end), settings)
            return None
        except OffsetOutOfRange:  # the start offset moved; the next command applies that
            await self._log.propose(SettleShare(share.group, share.stream, "", ()))
            return None
        kept: list[memoryview] = []
        records = 0
        for slice in chunk.batches:
            for header in walk(slice):
                kept.append(slice[header.position : header.end])
                records += header.next_offset - max(header.base_offset, at)
                if records >= wanted.records:
                    return kept, min(header.next_offset, end)
        return kept, max(min(chunk.next_offset, end), at)

    async def _give_up(
        self, share: Share, member: str, within: tuple[int, int], settings: ShareSettings
    ) -> None:
        """Archive records that are lost and can never be read."""
        lost = await self._acquire(share, member, limits.SHARE_IN_FLIGHT_MAX, within, settings)
        ranges = [(first, last, int(Verdict.REJECT)) for first, last, _ in lost.runs]
        _log.error("lost records skipped", group=share.group, stream=share.stream, end=within[1])
        await self.settle(share.group, member, share.stream, ranges)

    async def _open(self, group: str, stream: int, settings: ShareSettings) -> Share:
        share = self._log.ledger.shares.get(group, stream)
        if share is None:
            await self._log.propose(OpenShare(group, ((stream, await self._beginning(stream, settings)),)))
            share = self._share(group, stream)
        return share

    async def _beginning(self, stream: int, settings: ShareSettings) -> int:
        start, end = self._streams.bounds(stream)
        if settings.begins_ms_ago is not None:
            return await self._log.streams.of(stream).offset_at(
                stream, self._clock.now_ms() - settings.begins_ms_ago
            )
        return start if settings.begins_earliest else end

    def _share(self, group: str, stream: int) -> Share:
        share = self._log.ledger.shares.get(group, stream)
        if share is None:
            raise ShareNotFound(group)  # the group was deleted in the meantime
        return share

    async def _expire(self, share: Share) -> None:
        due_ms = share.leases.next_change_ms
        if due_ms is not None and due_ms < self._log.now_ms():
            await self._log.propose(SettleShare(share.group, share.stream, "", ()))

    # Settling

    async def settle(self, group: str, member: str, stream: int, ranges: Collection[Settlement]) -> None:
        """Acknowledge records that a member holds; durable on return. All of it applies, or nothing.

        Raises RecordNotHeld, ShareNotFound, StreamNotFound, InvalidInput."""
        settings = self.settings(group)
        settled: ShareSettled = await self._log.propose(
            SettleShare(group, stream, member, tuple(ranges), settings.lock_ms, settings.deliveries_max)
        )
        for kind, count in enumerate(settled.counts):
            self._verdicts[kind] += count
        self._note_archived(group, stream, settled.archived)
        if any(settled.counts):
            self._log.visibility.wake(stream)  # waiting members may find records

    def _note_archived(self, group: str, stream: int, records: int) -> None:
        if records:
            self._archived += records
            _log.warning(
                "records archived", group=group, stream=stream, records=records, message="delivery limit"
            )

    async def release(self, group: str, member: str) -> None:
        """Make everything that a member acquired from this broker available again."""
        for stream, share in self._log.ledger.shares.of_group(group).items():
            held = share.leases.held_offsets(member, self._log.broker)
            if held:
                await self.settle(
                    group, member, stream, [(*run, int(Verdict.RELEASE)) for run in ranges_of(held)]
                )

    def abandon(self, group: str, member: str) -> None:
        """Like `release`, in the background, for a member that left."""
        task = asyncio.get_running_loop().create_task(self._abandon(group, member))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _abandon(self, group: str, member: str) -> None:
        try:
            await self.release(group, member)
        except MainstemError as error:  # then the locks expire
            _log.info("records not released", group=group, error=str(error))

    # Administration

    def published(self) -> Iterator[Metric]:
        """The metrics of share groups."""
        counts = dict(zip(_OUTCOMES, self._verdicts, strict=True))
        rows = {"acquired": self._acquired, **counts, "archived": self._archived}
        yield Metric(
            "mainstem_share_records_total",
            "counter",
            "Records that this broker delivered to share groups, by outcome.",
            tuple(((("outcome", name),), float(count)) for name, count in rows.items()),
        )

    def has(self, group: str) -> bool:
        return self._log.ledger.shares.has(group)

    def groups(self) -> list[str]:
        return self._log.ledger.shares.groups()

    def of_group(self, group: str) -> dict[int, Share]:
        """By stream."""
        return self._log.ledger.shares.of_group(group)

    async def move(self, group: str, starts: Sequence[tuple[int, int]]) -> None:
        """Reset the group to these offsets: (stream, offset)."""
        await self._log.propose(OpenShare(group, tuple(starts), reset=True))

    async def delete(self, group: str, streams: Sequence[int] = ()) -> None:
        """Delete the group's state in these streams, or in all of them."""
        await self._log.propose(DeleteShare(group, tuple(streams)))


class _ShareSignal:
    """Is set when a stream changes, or when `hurry` is set."""

    def __init__(self, hurry: asyncio.Event) -> None:
        self.rung = asyncio.Event()
        self._hurry = hurry

    def changed(self) -> None:
        self.rung.set()

    async def wait(self, timeout_s: float) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (self.rung, self._hurry)]
        try:
            timeout = None if timeout_s == float("inf") else timeout_s
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def check_settings(put: Sequence[tuple[str, str]], removed: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The settings to store. Raises InvalidConfig."""
    for name in removed:
        known(name)
    return tuple((name, checked(name, value)) for name, value in put)


def _answer(batches: list[memoryview], runs: Runs) -> Acquired:
    """The result without batches from which nothing was acquired."""
    kept: list[memoryview] = []
    for batch in batches:
        header = next(walk(batch))
        if any(first < header.next_offset and last > header.base_offset for first, last, _ in runs):
            kept.append(batch)
    return Acquired(kept, runs, sum(last - first for first, last, _ in runs), sum(map(len, kept)))
