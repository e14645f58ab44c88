"""Reading commits from etcd: by range up to the tail, then by watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from mainstem import limits
from mainstem.errors import LogDamaged, Unavailable
from mainstem.ports.commitlog.port import Committed, Placement
from mainstem.ports.commitlog.shared.etcd.client import Compacted, EtcdClient
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys, number_in
from mainstem.ports.commitlog.shared.etcd.payloads import Payloads
from mainstem.ports.commitlog.shared.etcd.records import (
    COMMIT,
    CommitRecord,
    Floor,
    check_entry,
    unpack_commit,
)


class Known(NamedTuple):
    """A commit with its record."""

    record: CommitRecord
    commit: Committed


class Chunk(NamedTuple):
    """What stood in etcd at one revision."""

    known: list[Known]
    floor: Floor
    revision: int


class CommitReader:
    def __init__(self, client: EtcdClient, keys: EtcdKeys, payloads: Payloads, log: int) -> None:
        self._client = client
        self._keys = keys
        self._payloads = payloads
        self._log = log

    async def chunk(self, position: int) -> Chunk:
        """The next commits from the position on; none at the tail. Raises LogDamaged if one is missing."""
        found = await self._client.range(
            self._keys.commit(position), self._keys.commits_end, limit=limits.ETCD_RANGE_COMMITS
        )
        floor = await self.floor()  # after the commits: if it is not above the position, none was truncated
        known = await self.decode(found.kvs) if floor.position <= position else []
        _check_dense(known, position)
        return Chunk(known, floor, found.header.revision)

    async def floor(self) -> Floor:
        """Below which commits are truncated. Raises LogDamaged."""
        found = (await self._client.range(self._keys.floor)).kvs
        if not found:
            raise LogDamaged(f"etcd has lost what was under {self._keys.prefix!r}: restore it from a backup")
        return Floor.unpack(found[0].value)

    async def decode(self, pairs: Sequence[Any]) -> list[Known]:
        """Commits as they stand in etcd. Raises LogDamaged or NewerVersion."""
        return [await self._decode(number_in(pair.key), pair.value) for pair in pairs]

    async def tail(self) -> int:
        """One past the last commit of anybody."""
        newest = await self._client.newest(self._keys.commit(0), self._keys.commits_end)
        floor = await self.floor()
        return max(floor.position, number_in(newest) + 1 if newest is not None else 0)

    async def watch(self, position: int, revision: int) -> AsyncIterator[list[Known]]:
        """Commits from the position on as they are made. Ends if the history is compacted or nothing came: range again.

        Raises Unavailable once the watch is lost."""
        try:
            events = self._client.watch(self._keys.commit(position), self._keys.commits_end, revision)
            async for some in events:
                known = await self.decode([event.kv for event in some if event.type == event.PUT])
                if known:
                    _check_dense(known, position)
                    position += len(known)
                    yield known
        except Compacted:
            return

    async def _decode(self, position: int, value: bytes) -> Known:
        record = unpack_commit(value, position, self._log)
        entry = await self._payloads.entry(record) if record.entry_apart else value[COMMIT.size :]
        check_entry(record, value, entry)
        placement = Placement(position, record.object, record.start)
        return Known(record, Committed(placement, entry, record.payload_length, True))


class Patience:
    """How long a follower goes on without an answer before it says so."""

    def __init__(self, retry_s: float) -> None:
        self._retry_s = retry_s
        self._since: float | None = None

    def answered(self) -> None:
        self._since = None

    async def lost(self, error: Unavailable) -> None:
        """Wait a little. Raises the error once it has been going on for too long."""
        now = asyncio.get_running_loop().time()
        self._since = self._since if self._since is not None else now
        if now - self._since > self._retry_s:
            raise error
        await asyncio.sleep(limits.ETCD_WATCH_PAUSE_S)


def _check_dense(known: Sequence[Known], position: int) -> None:
    for expected, one in enumerate(known, position):
        if one.record.position != expected:
            raise LogDamaged(f"etcd lacks the commit at {expected}: restore it from a backup")
