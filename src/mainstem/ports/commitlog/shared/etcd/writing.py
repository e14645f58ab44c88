"""Writing a commit: its payload to the object store, then one transaction that takes the next position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import BehindCheckpoint, BrokerFenced, ReadOnly, TooLarge, Unavailable, invariant
from mainstem.ports.clock import Clock, Random
from mainstem.ports.commitlog.port import Buffer, Committed, Overtaken, Placement
from mainstem.ports.commitlog.shared.core.fairness import LOSSES_MAX, Courtesy
from mainstem.ports.commitlog.shared.etcd.client import (
    Done,
    EtcdClient,
    Operation,
    absent,
    below,
    get,
    holds,
    put,
)
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys, new_token, token_ms
from mainstem.ports.commitlog.shared.etcd.objects import ObjectTable
from mainstem.ports.commitlog.shared.etcd.payloads import Payloads, Upload
from mainstem.ports.commitlog.shared.etcd.reading import CommitReader, Known
from mainstem.ports.commitlog.shared.etcd.records import (
    ENTRY_APART,
    CommitRecord,
    Floor,
    Guard,
    Seal,
    floor_bound,
    pack_commit,
)

_U4_MAX = (1 << 32) - 1


class Tokens:
    """Ids like no other, that tell when they were made."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random

    def new(self) -> bytes:
        return new_token(self._clock.now_ms(), self._random.token(10))

    def now_ms(self) -> int:
        return self._clock.now_ms()


class CommitWriter:
    """One broker's hand at the log. Calls do not overlap."""

    def __init__(
        self,
        client: EtcdClient,
        keys: EtcdKeys,
        payloads: Payloads,
        reader: CommitReader,
        table: ObjectTable,
        tokens: Tokens,
        undelivered: list[Committed],
        *,
        broker: str | None,
        guard: Guard | None,
        log: int,
    ) -> None:
        self._client = client
        self._keys = keys
        self._payloads = payloads
        self._reader = reader
        self._table = table
        self._tokens = tokens
        self._undelivered = undelivered  # commits that the table knows and the caller does not
        self._broker = broker
        self._guard = guard
        self._log = log
        self._courtesy = Courtesy(table.newest)
        self._losses = 0  # of races, in a row
        self._prepared: object | None = None  # what the caller uploaded before
        self._kept: Upload | None = (
            None  # of an append that lost its race: the next one likely brings the same
        )

    async def append(
        self, entry: Buffer, slices: Sequence[Buffer], prepared: object | None = None
    ) -> Placement:
        """Raises Overtaken, BrokerFenced, BehindCheckpoint, NoSpace or Unavailable."""
        if self._broker is None or self._guard is None:
            raise ReadOnly("the log was opened to be read: name a broker to write to it")
        if not isinstance(prepared, Upload) or self._is_old(prepared):
            prepared = None
        self._prepared = prepared
        upload = prepared or await self._upload(entry, slices)
        await self._let_pass(upload)
        while True:
            self._tell_undelivered(upload)
            record = self._next_record(len(entry), upload)
            key = self._keys.commit(record.position)
            conditions = [
                absent(key),
                holds(self._keys.broker(self._broker), self._guard.pack()),
                below(self._keys.floor, floor_bound(record.position)),
                absent(self._keys.object(record.object)),
            ]
            now_there = [
                get(key, self._keys.commits_end, limit=limits.ETCD_RANGE_COMMITS),
                get(self._keys.broker(self._broker)),
                get(self._keys.floor),
                get(self._keys.object(record.object)),
                *self._asking(upload),
            ]
            written = [put(key, pack_commit(record, entry)), get(self._keys.turn)]
            done = await self._client.txn(conditions, written, now_there)
            if done.succeeded or await self._was_written(record, done, upload):
                self._table.learn_commit(record)
                self._losses = 0
                if done.succeeded:
                    for word in done.responses[1].response_range.kvs:
                        self._courtesy.heard(word.value)
                return Placement(record.position, record.object, record.start)

    async def _let_pass(self, upload: Upload) -> None:
        """Wait for the commit of a writer that asked for it. Raises Overtaken with what came meanwhile."""
        while self._courtesy.lets_pass(upload.id):
            start, end = self._keys.commit(self._table.end), self._keys.commits_end
            found = await self._client.range(start, end, limit=limits.ETCD_RANGE_COMMITS)
            if known := await self._reader.decode(found.kvs):
                self._overtaken(known, upload)

    def _asking(self, upload: Upload) -> list[Operation]:
        """What this writer does beside losing another race, once it has lost some."""
        if self._losses < LOSSES_MAX:
            return []
        return [put(self._keys.turn, self._courtesy.word(upload.id))]

    def _overtaken(self, known: Sequence[Known], upload: Upload) -> NoReturn:
        for one in known:
            self._table.learn_commit(one.record)
        self._keep(upload)
        raise Overtaken([one.commit for one in known])

    def _tell_undelivered(self, upload: Upload) -> None:
        """Right before a position is chosen: something may have been learnt while the payload went out."""
        if self._undelivered:
            commits = self._undelivered.copy()
            self._undelivered.clear()
            self._keep(upload)
            raise Overtaken(commits)

    def _keep(self, upload: Upload) -> None:
        """For the next attempt, unless the caller brings it again by itself."""
        self._kept = upload if self._prepared is not upload else None

    async def _upload(self, entry: Buffer, slices: Sequence[Buffer]) -> Upload:
        """Put what does not go into etcd, unless the append before this one did and then lost its race."""
        kept, self._kept = self._kept, None
        if kept is not None:
            if kept.holds(slices, _checksum(slices), _apart(entry)) and not self._is_old(kept):
                return kept
            await self._payloads.delete([kept.id])
        return await self.upload(entry, slices)

    def _is_old(self, upload: Upload) -> bool:
        """Whether it may be taken for an orphan at any moment. A clock that was set counts as time that passed."""
        return abs(self._tokens.now_ms() - token_ms(upload.id)) > limits.ETCD_UPLOAD_MS_MAX

    async def upload(self, entry: Buffer, slices: Sequence[Buffer]) -> Upload:
        """Put what does not go into etcd. Calls may overlap."""
        length = sum(map(len, slices))
        if len(entry) > limits.ENTRY_BYTES_MAX or length > _U4_MAX:
            raise TooLarge(f"a commit of {len(entry)} + {length} bytes is over the limit of the log")
        apart = _apart(entry)
        upload = Upload(self._tokens.new(), tuple(slices), length, _checksum(slices), apart)
        if length or apart is not None:
            await self._payloads.put(upload)
        return upload

    def _next_record(self, entry_length: int, upload: Upload) -> CommitRecord:
        number, start = self._table.next_place()
        flags = ENTRY_APART if upload.entry is not None else 0
        return CommitRecord(
            flags,
            entry_length,
            upload.length,
            upload.crc,
            self._table.end,
            number,
            start,
            self._log,
            upload.id,
        )

    async def _was_written(self, record: CommitRecord, done: Done, upload: Upload) -> bool:
        """Why the transaction was refused. True: an earlier attempt had gone through, its answer was lost.

        False: only its object is taken, so it is tried with the next one. Raises all other reasons."""
        commits, guard, floor, seal = (response.response_range.kvs for response in done.responses[:4])
        known = await self._reader.decode(commits)
        if known and known[0].record.id == record.id:
            return True
        truncated = bool(floor) and Floor.unpack(floor[0].value).position > record.position
        if truncated and done.repeated:
            # An attempt whose answer was lost may have been written and truncated since: retention is for that.
            raise Unavailable(f"whether a commit was written at {record.position} cannot be told any more")
        if not guard or Guard.unpack(guard[0].value) != self._guard:
            raise BrokerFenced(
                f"broker {self._broker!r} was started again or expelled: this one writes no more"
            )
        if truncated:
            raise BehindCheckpoint(f"position {record.position} was truncated: load the newest checkpoint")
        if known:
            self._losses += 1
            self._overtaken(known, upload)
        invariant(seal, "a refused transaction has a reason")
        self._table.learn_seal(Seal.unpack(seal[0].value))
        return False


def _checksum(slices: Sequence[Buffer]) -> int:
    crc = 0
    for part in slices:
        crc = crc32c(part, crc)
    return crc


def _apart(entry: Buffer) -> bytes | None:
    """The entry, if it is too large for etcd."""
    return bytes(entry) if len(entry) > limits.ETCD_ENTRY_BYTES_MAX else None
