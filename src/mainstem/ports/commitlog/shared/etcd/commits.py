"""Writing and following commits: one key a commit, claimed by one transaction.

The transaction goes through only if the position is free and not truncated, the object takes commits, and the broker's
epoch still stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from mainstem import limits
from mainstem.errors import (
    BehindCheckpoint,
    BrokerFenced,
    Closed,
    LogDamaged,
    NoSpace,
    ReadOnly,
    Unavailable,
    invariant,
)
from mainstem.ports.clock import Clock, Random
from mainstem.ports.commitlog.port import Buffer, Committed, Placement
from mainstem.ports.commitlog.shared.core.backend import (
    Attempt,
    DecodedCommit,
    Floor,
    NextPlace,
    Truncated,
    Upload,
)
from mainstem.ports.commitlog.shared.core.fairness import Fairness
from mainstem.ports.commitlog.shared.core.objects import ObjectTable
from mainstem.ports.commitlog.shared.etcd.client import (
    Compacted,
    EtcdClient,
    TxnResult,
    absent,
    below,
    get,
    holds,
    put,
    unchanged,
)
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys, new_token, number_in
from mainstem.ports.commitlog.shared.etcd.payloads import Payloads
from mainstem.ports.commitlog.shared.etcd.records import (
    COMMIT,
    ENTRY_APART,
    PAYLOAD_IN_ETCD,
    CommitRecord,
    EpochGuard,
    Seal,
    check_entry,
    floor_bound,
    pack_commit,
    unpack_commit,
    unpack_floor,
)

ETCD_ENTRY_BYTES_MAX = 64 * limits.KIB  # a larger entry is stored in the object store, after its payload
ETCD_WATCH_PAUSE_S = 0.1  # before a lost watch is restarted


class TokenSource:
    """Unique ids that tell when they were made."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random

    def new(self) -> bytes:
        return new_token(self._clock.now_ms(), self._random.token(10))

    def now_ms(self) -> int:
        return self._clock.now_ms()


async def take_epoch(client: EtcdClient, keys: EtcdKeys, broker: str, token: bytes) -> EpochGuard:
    """Raise the broker's epoch by one: a process with an older epoch can write no more."""
    key = keys.broker(broker)
    while True:
        found = (await client.range(key)).kvs
        held = EpochGuard.unpack(found[0].value) if found else EpochGuard(0, b"")
        if held.token == token:
            return held  # an earlier attempt went through and its answer was lost
        mine = EpochGuard(held.epoch + 1, token)
        revision = found[0].mod_revision if found else 0
        done = await client.txn([unchanged(key, revision)], [put(key, mine.pack())])
        if done.succeeded:
            return mine


class EtcdCommits:
    """One process's access to the commits of a log."""

    def __init__(
        self,
        client: EtcdClient,
        keys: EtcdKeys,
        payloads: Payloads,
        table: ObjectTable[CommitRecord, Seal],
        tokens: TokenSource,
        *,
        broker: str | None,
        guard: EpochGuard | None,
        log: int,
        retry_s: float,
        inline_bytes: int,
    ) -> None:
        self._client = client
        self._keys = keys
        self._payloads = payloads
        self._table = table
        self._tokens = tokens
        self._broker = broker
        self._guard = guard
        self._log = log
        self._retry_s = retry_s
        self._inline_bytes = inline_bytes
        self.crowded = False  # etcd's database is large: it takes no payloads

    @property
    def entry_bytes_max(self) -> int:
        return ETCD_ENTRY_BYTES_MAX

    @property
    def payload_bytes_max(self) -> int:
        return 0 if self.crowded else self._inline_bytes

    @property
    def upload_s_max(self) -> float:
        return limits.ETCD_UPLOAD_MS_MAX / 1000

    def check_writable(self) -> None:
        if self._broker is None:
            raise ReadOnly("the log was opened for reading: name a broker to write to it")

    def new_token(self) -> bytes:
        return self._tokens.new()

    async def put_upload(self, id: bytes, content: Sequence[Buffer]) -> None:
        await self._payloads.put(id, content)

    async def delete_upload(self, id: bytes, length: int) -> None:
        await self._payloads.delete([id])

    async def claim(
        self, place: NextPlace, entry: Buffer, upload: Upload, fairness: Fairness
    ) -> Attempt[CommitRecord]:
        invariant(self._broker is not None and self._guard is not None, "the log was opened for writing")
        inline = upload.length > 0 and not upload.payload_apart
        record = CommitRecord(
            (ENTRY_APART if upload.entry is not None else 0) | (PAYLOAD_IN_ETCD if inline else 0),
            len(entry),
            upload.length,
            upload.crc,
            place.position,
            place.object,
            place.start,
            self._log,
            upload.id,
        )
        key, guard_key = self._keys.commit(record.position), self._keys.broker(self._broker or "")
        conditions = [
            absent(key),
            holds(guard_key, self._guard.pack() if self._guard else b""),
            below(self._keys.floor, floor_bound(record.position)),
            absent(self._keys.object(record.object)),
        ]
        otherwise = [
            get(key, self._keys.commits_end, limit=limits.ETCD_RANGE_COMMITS),
            get(guard_key),
            get(self._keys.floor),
            get(self._keys.object(record.object)),
        ]
        if request := fairness.request(upload.id):
            otherwise.append(put(self._keys.turn, request))
        written = [put(key, pack_commit(record, entry)), get(self._keys.turn)]
        if inline:
            payload = self._keys.payload(record.object, record.position)
            written.append(put(payload, b"".join(upload.slices)))
        try:
            done = await self._client.txn(conditions, written, otherwise)
        except NoSpace:
            # etcd applies the transaction that exceeds its quota, and reports the error all the same.
            known = await self.decode((await self._client.range(key)).kvs)
            if not known or known[0].head.id != record.id:
                raise
            fairness.won()
            return Attempt(record)
        if not done.succeeded:
            return await self._explain(record, done, fairness)
        fairness.won()
        for one in done.responses[1].response_range.kvs:
            fairness.heard(one.value)
        return Attempt(record)

    async def _explain(
        self, record: CommitRecord, done: TxnResult, fairness: Fairness
    ) -> Attempt[CommitRecord]:
        """Why etcd refused the transaction; maybe because an earlier attempt had gone through."""
        commits, guard, floor, seal = (response.response_range.kvs for response in done.responses[:4])
        known = await self.decode(commits)
        if known and known[0].head.id == record.id:
            fairness.won()
            return Attempt(record)
        truncated = bool(floor) and unpack_floor(floor[0].value).position > record.position
        if truncated and done.repeated:
            # An attempt whose answer was lost may have been written and truncated since.
            raise Unavailable(
                f"cannot tell any more whether the commit at position {record.position} was written"
            )
        if not guard or EpochGuard.unpack(guard[0].value) != self._guard:
            raise BrokerFenced(
                f"broker {self._broker!r} was started again or expelled: this process can no longer write"
            )
        if truncated:
            raise BehindCheckpoint(f"position {record.position} was truncated: load the newest checkpoint")
        if known:
            fairness.lost()
            return Attempt(None, known)
        invariant(seal, "a refused transaction has a reason")
        found = Seal.unpack(seal[0].value)
        if found.dropped:
            self._table.learn_drop(found)
        else:
            self._table.learn_seal(found)
        return Attempt(None)

    async def newer(self, position: int) -> Sequence[DecodedCommit[CommitRecord]]:
        return await self.decode((await self._range(position)).kvs)

    async def heads(self, position: int) -> list[CommitRecord]:
        """Some commits from the first one on that is at the position or after it, without their entries."""
        pairs = (await self._range(position)).kvs
        return [unpack_commit(pair.value, number_in(pair.key), self._log) for pair in pairs]

    async def follow(self, position: int) -> AsyncGenerator[Sequence[DecodedCommit[CommitRecord]], None]:
        """By range up to the tail, then by watch. A lost watch is replaced until it has been down for `retry_s`."""
        at = position
        down_since: float | None = None
        while True:
            found = await self._range(at)
            floor = (
                await self.floor()
            )  # after the commits: if it is not above the position, none was truncated
            if floor.position > at:
                raise Truncated(floor)
            known = await self.decode(found.kvs)
            _check_dense(known, at)
            at += len(known)
            yield known
            if known:
                continue
            try:
                start, end = self._keys.commit(at), self._keys.commits_end
                async with aclosing(self._client.watch(start, end, found.header.revision + 1)) as changes:
                    async for some in changes:
                        known = await self.decode([event.kv for event in some if event.type == event.PUT])
                        if known:
                            down_since = None
                            _check_dense(known, at)
                            at += len(known)
                            yield known
            except Closed:
                raise
            except Compacted:
                continue
            except Unavailable:
                now = asyncio.get_running_loop().time()
                down_since = now if down_since is None else down_since
                if now - down_since > self._retry_s:
                    raise
                await asyncio.sleep(ETCD_WATCH_PAUSE_S)

    async def tail(self) -> int:
        newest = await self._client.newest(self._keys.commit(0), self._keys.commits_end)
        floor = await self.floor()
        return max(floor.position, number_in(newest) + 1 if newest is not None else 0)

    async def floor(self) -> Floor:
        """Raises LogDamaged if etcd has lost it."""
        found = (await self._client.range(self._keys.floor)).kvs
        if not found:
            raise LogDamaged(f"etcd has lost the keys under {self._keys.prefix!r}: restore it from a backup")
        return unpack_floor(found[0].value)

    async def starts_object(self, position: int) -> bool | None:
        return True  # a sealed object takes no more commits

    async def decode(self, pairs: Sequence[Any]) -> list[DecodedCommit[CommitRecord]]:
        """Commits as etcd holds them. Raises LogDamaged or NewerVersion."""
        return [await self._decode(number_in(pair.key), pair.value) for pair in pairs]

    async def close(self) -> None:
        await self._client.close()

    async def _range(self, position: int) -> Any:
        return await self._client.range(
            self._keys.commit(position), self._keys.commits_end, limit=limits.ETCD_RANGE_COMMITS
        )

    async def _decode(self, position: int, value: bytes) -> DecodedCommit[CommitRecord]:
        record = unpack_commit(value, position, self._log)
        entry = await self._payloads.entry(record) if record.entry_apart else value[COMMIT.size :]
        check_entry(record, value, entry)
        placement = Placement(position, record.object, record.start)
        return DecodedCommit(record, Committed(placement, entry, record.payload_length, True))


def _check_dense(known: Sequence[DecodedCommit[CommitRecord]], position: int) -> None:
    for expected, one in enumerate(known, position):
        if one.head.position != expected:
            raise LogDamaged(f"etcd lacks the commit at position {expected}: restore it from a backup")
