"""Writing and following commits: one key a commit, claimed by one transaction.

The transaction goes through only if the position is free and not truncated, the object takes commits, and the broker's
epoch still stands.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
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
from mainstem.ports.commitlog.shared.core.objects import ObjectTable, OpenObject
from mainstem.ports.commitlog.shared.etcd.client import (
    Compacted,
    EtcdClient,
    Operation,
    TxnResult,
    absent,
    below,
    either,
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
    MOVED,
    PAYLOAD_IN_ETCD,
    POSITION,
    CommitRecord,
    EpochGuard,
    LastCommit,
    Seal,
    check_entry,
    floor_bound,
    pack_commit,
    unpack_commit,
    unpack_floor,
)

ETCD_UPLOAD_MS_MAX = 60_000  # an upload that is older at its commit is repeated: far less than the above

ETCD_ENTRY_BYTES_MAX = 64 * limits.KIB  # a larger entry is stored in the object store, after its payload
ETCD_WATCH_PAUSE_S = 0.1  # before a lost watch is restarted
ETCD_POSITIONS_TRIED = 4  # by one transaction: this many brokers can commit at once without losing a race

_MOVED_ENTRY_BYTES_MAX = (
    16 * limits.KIB
)  # a larger entry tries one position: the transaction repeats the entry
_RECENT = 256  # commits of others that a claim has read, for `follow`


class TokenSource:
    """Unique ids that contain the time of their creation."""

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
        positions_tried: int,
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
        self._positions_tried = positions_tried
        self._last_revision = 0  # of the key that names the broker's last commit
        self._recent: dict[int, DecodedCommit[CommitRecord]] = {}
        self.crowded = False  # etcd's database is large: it takes no payloads

    @property
    def entry_bytes_max(self) -> int:
        return ETCD_ENTRY_BYTES_MAX

    @property
    def payload_bytes_max(self) -> int:
        return 0 if self.crowded else self._inline_bytes

    @property
    def cheap_payload_bytes_max(self) -> int:
        return 0

    @property
    def upload_s_max(self) -> float:
        return ETCD_UPLOAD_MS_MAX / 1000

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
        """One transaction tries the position, and the next few ones if others have taken it meanwhile."""
        invariant(self._broker is not None and self._guard is not None, "the log was opened for writing")
        record = self._record(place, len(entry), upload)
        tries = self._positions_tried if len(entry) <= _MOVED_ENTRY_BYTES_MAX else 1
        conditions = [
            holds(self._keys.broker(self._broker or ""), self._guard.pack() if self._guard else b""),
            below(self._keys.floor, floor_bound(place.position)),
            absent(self._keys.object(place.object)),
            unchanged(self._last_key, self._last_revision),
        ]
        otherwise = self._otherwise(place, fairness.request(upload.id))
        written = [self._trying(record, place, entry, tries, otherwise)]
        if record.payload_in_etcd:
            key = self._keys.payload(record.object, record.tried, record.id)
            written.append(put(key, b"".join(upload.slices)))
        try:
            done = await self._client.txn(conditions, written, otherwise)
        except NoSpace:
            # etcd applies the transaction that exceeds its quota, and reports the error all the same.
            await self.learn_last()
            found = _own(await self.newer(place.position), record)
            if found is None:
                raise
            fairness.won()
            return found
        return await self._decided(record, tries, done, fairness)

    @property
    def _last_key(self) -> bytes:
        return self._keys.last(self._broker or "")

    async def learn_last(self) -> None:
        """Once before the first claim: which commit of this broker is the last one."""
        self._learn_last((await self._client.range(self._last_key)).kvs)

    def _learn_last(self, pairs: Sequence[Any]) -> LastCommit | None:
        self._last_revision = pairs[0].mod_revision if pairs else 0
        return LastCommit.unpack(pairs[0].value) if pairs else None

    def _record(self, place: NextPlace, entry_length: int, upload: Upload) -> CommitRecord:
        inline = upload.length > 0 and not upload.payload_apart
        return CommitRecord(
            (ENTRY_APART if upload.entry is not None else 0) | (PAYLOAD_IN_ETCD if inline else 0),
            entry_length,
            upload.length,
            upload.crc,
            place.position,
            place.object,
            place.start,
            place.position,
            self._log,
            upload.id,
        )

    def _otherwise(self, place: NextPlace, request: bytes | None) -> list[Operation]:
        """The reads that explain why a claim was refused."""
        found = [
            get(self._keys.commit(place.position), self._keys.commits_end, limit=limits.ETCD_RANGE_COMMITS),
            get(self._keys.broker(self._broker or "")),
            get(self._keys.floor),
            get(self._keys.object(place.object)),
            get(self._last_key),
        ]
        return [*found, put(self._keys.turn, request)] if request else found

    def _trying(
        self,
        record: CommitRecord,
        place: NextPlace,
        entry: Buffer,
        tries: int,
        otherwise: Sequence[Operation],
    ) -> Operation:
        """Write the commit at its position, or else at the next one, and so on."""
        current, object = self._keys.current, POSITION.pack(place.object)
        attempt: Operation = None
        for step in reversed(range(tries)):
            moved = _moved(record, step)
            key = self._keys.commit(moved.position)
            success = [
                put(key, pack_commit(moved, entry)),
                put(self._last_key, LastCommit(moved.position, moved.id).pack()),
                get(self._keys.turn),
            ]
            conditions = [absent(key)]
            if step:
                # The commits between must be of the same object: its length then gives the start of the payload.
                conditions.append(holds(current, object))
                success.append(get(self._keys.commit(place.position), key))
            elif place.first == place.position:
                success.append(put(current, object))
            attempt = either(conditions, success, otherwise if attempt is None else [attempt])
        return attempt

    async def _decided(
        self, record: CommitRecord, tries: int, done: TxnResult, fairness: Fairness
    ) -> Attempt[CommitRecord]:
        """Which branch of the transaction etcd took."""
        if not done.succeeded:
            return await self._explain(record, done.responses, fairness, repeated=done.repeated)
        tried = done.responses[0].response_txn
        step = 0
        while not tried.succeeded:
            if step == tries - 1:
                return await self._explain(record, tried.responses, fairness, repeated=done.repeated)
            tried = tried.responses[0].response_txn
            step += 1
        self._last_revision = done.revision
        fairness.won()
        for one in tried.responses[2].response_range.kvs:
            fairness.heard(one.value)
        if not step:
            return Attempt(record)
        others = await self.decode(tried.responses[3].response_range.kvs)
        return Attempt(_moved(record, step)._replace(start=others[-1].head.end), self._remember(others))

    async def _explain(
        self, record: CommitRecord, responses: Sequence[Any], fairness: Fairness, *, repeated: bool
    ) -> Attempt[CommitRecord]:
        """Why etcd refused the transaction; maybe because an earlier attempt had gone through."""
        commits, guard, floor, seal, last = (response.response_range.kvs for response in responses[:5])
        written = self._learn_last(last)
        known = await self.decode(commits)
        if found := _own(known, record):
            fairness.won()
            self._remember(found.others)
            return found
        truncated = bool(floor) and unpack_floor(floor[0].value).position > record.position
        if (truncated and repeated) or (written is not None and written.id == record.id):
            # An attempt whose answer was lost may have been written and truncated since.
            raise Unavailable(
                f"cannot determine any longer whether the commit at position {record.position} was written"
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
        if seal:
            found_seal = Seal.unpack(seal[0].value)
            if found_seal.dropped:
                self._table.learn_drop(found_seal)
            else:
                self._table.learn_seal(found_seal)
        return Attempt(
            None
        )  # or an earlier commit of this broker turned out to be written: its position is known

    def _remember(
        self, others: Sequence[DecodedCommit[CommitRecord]]
    ) -> Sequence[DecodedCommit[CommitRecord]]:
        """Commits that the caller has yet to follow up to."""
        for one in others:
            self._recent[one.head.position] = one
        while len(self._recent) > _RECENT:
            self._recent.pop(next(iter(self._recent)))
        return others

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
            while (recent := self._recent.get(at)) is not None:
                at += 1
                yield [recent]
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
        """Commits as etcd holds them, by rising position. Raises LogDamaged or NewerVersion."""
        found: list[DecodedCommit[CommitRecord]] = []
        for pair in pairs:
            record = unpack_commit(pair.value, number_in(pair.key), self._log)
            if record.moved:
                before = found[-1].head if found else None
                known = before is not None and before.position == record.position - 1
                start = before.end if before is not None and known else await self._start_of(record)
                record = record._replace(start=start)
            found.append(await self._decode(record, pair.value))
        return found

    async def _start_of(self, record: CommitRecord) -> int:
        """Where the payload of a moved commit starts: where that of the commit before it ends."""
        start = payload_start(self._table.open_object(record.object), record.position)
        if start is not None:
            return start
        size = 0
        at = record.position
        while True:
            key = self._keys.commit(at - 1)
            pairs = (await self._client.range(key)).kvs
            if not pairs:
                raise LogDamaged(f"etcd lacks the commit at position {at - 1}: restore it from a backup")
            before = unpack_commit(pairs[0].value, at - 1, self._log)
            size += before.payload_length
            if not before.moved:
                return before.start + size
            at -= 1

    async def close(self) -> None:
        await self._client.close()

    async def _range(self, position: int) -> Any:
        return await self._client.range(
            self._keys.commit(position), self._keys.commits_end, limit=limits.ETCD_RANGE_COMMITS
        )

    async def _decode(self, record: CommitRecord, value: bytes) -> DecodedCommit[CommitRecord]:
        entry = await self._payloads.entry(record) if record.entry_apart else value[COMMIT.size :]
        check_entry(record, value, entry)
        placement = Placement(record.position, record.object, record.start)
        return DecodedCommit(record, Committed(placement, entry, record.payload_length, True))


def _moved(record: CommitRecord, step: int) -> CommitRecord:
    """The same commit, that many positions later."""
    if not step:
        return record
    return record._replace(flags=record.flags | MOVED, position=record.position + step)


def _own(known: Sequence[DecodedCommit[CommitRecord]], record: CommitRecord) -> Attempt[CommitRecord] | None:
    """If our commit is among these: it, and those before it."""
    for number, one in enumerate(known):
        if one.head.id == record.id:
            return Attempt(one.head, known[:number])
    return None


def payload_start(known: OpenObject[CommitRecord] | None, position: int) -> int | None:
    """Where the payload of the commit at a position starts, if all commits of the object before it are known."""
    if known is None or not known.first <= position <= known.end:
        return None
    before = bisect_left(known.payloads.holders, position, key=lambda record: record.position)
    return known.payloads.holders[before - 1].end if before else 0


def _check_dense(known: Sequence[DecodedCommit[CommitRecord]], position: int) -> None:
    for expected, one in enumerate(known, position):
        if one.head.position != expected:
            raise LogDamaged(f"etcd lacks the commit at position {expected}: restore it from a backup")
