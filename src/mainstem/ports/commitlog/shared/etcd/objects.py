"""Sealing, reading, dropping and truncating objects, so that every broker sees the same."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from itertools import groupby

from mainstem import limits
from mainstem.errors import NotFound, Unavailable
from mainstem.ports.commitlog.port import LogObject, Overtaken, Piece
from mainstem.ports.commitlog.shared.core.backend import Floor, SealedListing
from mainstem.ports.commitlog.shared.core.objects import ObjectTable, OpenObject
from mainstem.ports.commitlog.shared.etcd.checkpoints import EtcdCheckpoints
from mainstem.ports.commitlog.shared.etcd.client import EtcdClient, absent, get, holds, put, unchanged
from mainstem.ports.commitlog.shared.etcd.commits import EtcdCommits, TokenSource
from mainstem.ports.commitlog.shared.etcd.directory import Directory
from mainstem.ports.commitlog.shared.etcd.inline import (
    ETCD_IN_USE_BYTES_MAX,
    InlinePayloads,
    ReadingClient,
)
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys, number_in
from mainstem.ports.commitlog.shared.etcd.packing import Pack, PayloadCopy, packed
from mainstem.ports.commitlog.shared.etcd.payloads import Payloads
from mainstem.ports.commitlog.shared.etcd.records import (
    DROPPED,
    CommitRecord,
    Seal,
    pack_floor,
    unpack_floor,
)

ETCD_TRUNCATED_AT_ONCE = 10_000  # commits deleted by one call
ETCD_EXPORTS_KNOWN = 4_096  # copies for readers of the store that need not be put again

_COPYING_S_MAX = limits.PAYLOAD_ORPHAN_MS / 4_000  # until a seal names the copies: far less than orphans live


class EtcdObjects:
    """The objects of one log."""

    def __init__(
        self,
        client: EtcdClient,
        keys: EtcdKeys,
        payloads: Payloads,
        inline: InlinePayloads,
        reads: ReadingClient,
        commits: EtcdCommits,
        checkpoints: EtcdCheckpoints,
        table: ObjectTable[CommitRecord, Seal],
        tokens: TokenSource,
        retention_ms: int,
    ) -> None:
        self._client = client
        self._keys = keys
        self._payloads = payloads
        self._inline = inline
        self._reads = reads
        self._commits = commits
        self._checkpoints = checkpoints
        self._table = table
        self._tokens = tokens
        self._retention_ms = retention_ms
        self._refreshes = 0
        self._exports: dict[bytes, float] = {}  # when copies of payloads were put for readers of the store
        self._absent: dict[int, int] = {}  # objects of which bytes were not found, and after which refresh

    async def refresh(self) -> SealedListing[Seal]:
        """Also learns which checkpoints there are: `load` cannot ask etcd."""
        seals = await self._seals()
        await self._checkpoints.names()
        self._refreshes += 1
        self._commits.crowded = await self._client.bytes_in_use() > ETCD_IN_USE_BYTES_MAX
        return SealedListing(
            {seal.number: seal for seal in seals if not seal.dropped},
            {seal.number: seal for seal in seals if seal.dropped},
            await self._commits.floor(),
        )

    async def _seals(self) -> list[Seal]:
        found = await self._client.range(self._keys.object(0), self._keys.objects_end)
        return [Seal.unpack(pair.value) for pair in found.kvs]

    async def seal(self, unsealed: OpenObject[CommitRecord], index: bytes) -> tuple[Seal, bool]:
        described, packs = unsealed.described(), list(packed(unsealed.payloads.holders))
        stands = await self._seal_of(self._client, described.number)
        if stands is None:
            try:
                seal, copies = await self._store_seal(described, packs, index)
            except NotFound:
                stands = await self._seal_of(self._client, described.number)
                if stands is None:
                    raise
            else:
                stands = await self._publish_or_withdraw(seal, copies)
                if stands == seal:
                    await self._inline.delete(self._client, seal.number, seal.number + 1)
                    return seal, True
        if stands.dropped:
            self._table.learn_drop(stands)
            raise FileNotFoundError(f"object {stands.number} was dropped")
        return stands, False

    async def _publish_or_withdraw(self, seal: Seal, copies: Sequence[bytes]) -> Seal:
        """The seal that stands now. Raises Overtaken. After any other error this one may be published nevertheless."""
        while (stands := await self._publish(seal, copies)) is None:
            pass
        if stands != seal:
            await self._withdraw(seal, copies)
        return stands

    async def _withdraw(self, seal: Seal, copies: Sequence[bytes]) -> None:
        """Delete what was stored for a seal that does not stand."""
        await self._payloads.drop_seal(seal)
        await self._payloads.delete(copies)

    async def _store_seal(
        self, described: LogObject, packs: Sequence[Pack], index: bytes
    ) -> tuple[Seal, list[bytes]]:
        """Put everything into the store that the seal will name. Also returns the names of what was copied."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        directory = Directory()
        copies: list[bytes] = []
        for pack in packs:
            for one in await self._copied(pack):
                if isinstance(one, CommitRecord):
                    directory.add(one.start, one.payload_length, one.id)
                else:
                    directory.add(*one)
                    copies.append(one.name)
        rows, token = directory.pack(), self._tokens.new()
        seal = Seal.new(described, rows, index, now_ms=self._tokens.now_ms(), token=token)
        await self._payloads.put_seal(seal, rows, index)
        if copies and loop.time() - began > _COPYING_S_MAX:
            raise Unavailable("copying took so long that the copies may be deleted as orphans: seal again")
        return seal, copies

    async def _copied(self, pack: Pack) -> list[CommitRecord | PayloadCopy]:
        """Where its bytes are from now on: in uploads, or in copies."""
        if pack.in_place:
            return [*pack.records]
        try:
            return [await self._copy(pack)]
        except NotFound:
            # The store has lost an upload: only readers of its records are to notice.
            found: list[CommitRecord | PayloadCopy] = []
            for inline, some in groupby(pack.records, lambda record: record.payload_in_etcd):
                found += [await self._copy(one) for one in packed(some)] if inline else [*some]
            return found

    async def _copy(self, pack: Pack) -> PayloadCopy:
        content = await self._read_open(self._client, pack.whole)
        name = self._tokens.new()
        await self._payloads.put(name, [content])
        return PayloadCopy(pack.start, pack.length, name)

    async def _publish(self, seal: Seal, copies: Sequence[bytes]) -> Seal | None:
        """The seal that stands now. None: try again. Raises Overtaken."""
        key, next_commit = self._keys.object(seal.number), self._keys.commit(seal.end)
        conditions = [absent(key)]
        if self._table.end == seal.end:
            conditions.append(absent(next_commit))  # else another broker could have continued the object
        else:
            known = self._table.open_object(seal.number)
            if known is not None and known.end != seal.end:  # it grew while the seal was uploaded
                await self._withdraw(seal, copies)
                raise Overtaken([])
        otherwise = [get(key), get(next_commit, self._keys.commits_end, limit=limits.ETCD_RANGE_COMMITS)]
        done = await self._client.txn(conditions, [put(key, seal.pack())], otherwise)
        if done.succeeded:
            return seal
        seals, commits = (response.response_range.kvs for response in done.responses)
        if seals:
            return Seal.unpack(seals[0].value)
        newer = await self._commits.decode(commits)
        grown = newer[0].head.object == seal.number
        if grown:
            await self._withdraw(seal, copies)
        # No await from here on: an append that runs now takes what the table knows as delivered.
        for one in newer:
            self._table.learn_commit(one.head)
        if grown:
            raise Overtaken([one.commit for one in newer])
        self._table.undelivered += [one.commit for one in newer]
        return None

    async def drop(self, sealed: Seal) -> None:
        """Mark it first: a reader must not take the object for complete while its payloads are deleted."""
        key = self._keys.object(sealed.number)
        dropped = sealed._replace(flags=sealed.flags | DROPPED)
        await self._client.txn([holds(key, sealed.pack())], [put(key, dropped.pack())])
        await self._payloads.drop(sealed)

    async def forget(self, dropped: Sequence[Seal]) -> None:
        for seal in dropped:
            await self._payloads.drop(seal)  # a crash may have left some
            await self._client.delete(self._keys.object(seal.number))

    async def read(self, source: OpenObject[CommitRecord] | Seal, start: int, length: int) -> bytearray:
        content = await self._read(source, start, length)
        self._absent.pop(source.number, None)
        return content

    async def _read(self, source: OpenObject[CommitRecord] | Seal, start: int, length: int) -> bytearray:
        if isinstance(source, OpenObject):
            client = self._reads.get()
            try:
                return await self._read_open(client, list(source.payloads.pieces(start, length)))
            except NotFound:
                sealed = await self._seal_of(client, source.number)
                if sealed is None or sealed.dropped:
                    raise
                source = sealed  # since this process looked last
        return await self._payloads.read((await self._payloads.directory(source)).pieces(start, length))

    async def _read_open(
        self, client: EtcdClient, wanted: Sequence[tuple[CommitRecord, int, int]]
    ) -> bytearray:
        """Pieces of payloads, each as (commit, start, length), joined. Raises NotFound."""
        found = bytearray()
        for inline, some in groupby(wanted, lambda piece: piece[0].payload_in_etcd):
            pieces = list(some)
            if not inline:
                found += await self._payloads.read((one.id, skipped, taken) for one, skipped, taken in pieces)
                continue
            payloads = await self._inline.read(client, [one for one, _, _ in pieces])
            for payload, (_, skipped, taken) in zip(payloads, pieces, strict=True):
                found += memoryview(payload)[skipped : skipped + taken]
        return found

    async def _seal_of(self, client: EtcdClient, number: int) -> Seal | None:
        found = (await client.range(self._keys.object(number))).kvs
        return Seal.unpack(found[0].value) if found else None

    async def is_lost(self, source: OpenObject[CommitRecord] | Seal) -> bool:
        """Etcd marks an object as dropped before its payloads go. So an object is lost if a refresh that began after
        the first failed read does not show it as dropped."""
        return self._absent.setdefault(source.number, self._refreshes) < self._refreshes - 1

    async def index(self, sealed: Seal) -> bytes:
        return await self._payloads.index(sealed)

    async def pieces(
        self, source: OpenObject[CommitRecord] | Seal, ranges: Sequence[tuple[int, int]]
    ) -> list[Piece]:
        if isinstance(source, OpenObject):
            try:
                return await self._pieces_of_open(source, ranges)
            except NotFound:
                sealed = await self._seal_of(self._client, source.number)
                if sealed is None or sealed.dropped:
                    raise
                source = sealed  # since this process looked last
        directory = await self._payloads.directory(source)
        return self._payloads.pieces([(start, directory.pieces(start, length)) for start, length in ranges])

    async def _pieces_of_open(
        self, source: OpenObject[CommitRecord], ranges: Sequence[tuple[int, int]]
    ) -> list[Piece]:
        """Copies what only etcd holds into the store. No seal will name these copies: they are orphans later."""
        wanted = {
            record.position: record
            for start, length in ranges
            for record, _, _ in source.payloads.pieces(start, length)
        }
        found: list[Piece] = []
        records = [wanted[position] for position in sorted(wanted)]
        for inline, some in groupby(records, lambda record: record.payload_in_etcd):
            if inline:
                for pack in packed(some):
                    found.append(self._payloads.piece(pack.start, pack.length, await self._exported(pack)))
            else:
                found += [self._payloads.piece(one.start, one.payload_length, one.id) for one in some]
        return found

    async def _exported(self, pack: Pack) -> bytes:
        """The name of a copy of the pack in the store, new enough to stay for a while."""
        name, now = pack.digest(), asyncio.get_running_loop().time()
        if now - self._exports.get(name, -math.inf) > _COPYING_S_MAX:
            await self._payloads.put(name, [await self._read_open(self._client, pack.whole)])
            self._exports[name] = now
            while len(self._exports) > ETCD_EXPORTS_KNOWN:
                self._exports.pop(next(iter(self._exports)))
        return name

    async def old_enough(self, settled: Sequence[Seal]) -> int:
        sealed_before_ms = self._tokens.now_ms() - self._retention_ms
        count = 0
        while count < len(settled) and settled[count].sealed_ms <= sealed_before_ms:
            count += 1
        return count

    async def truncate(self, old: Floor, new: Floor) -> Floor:
        """The floor first, so that no late writer can take a position twice."""
        if new != old:
            found = (await self._client.range(self._keys.floor)).kvs[0]
            if unpack_floor(found.value) != old:
                return old  # another broker truncates: the next call continues from there
            moved = await self._client.txn(
                [unchanged(self._keys.floor, found.mod_revision)], [put(self._keys.floor, pack_floor(new))]
            )
            if not moved.succeeded:
                return old
        await self._delete_below(new.position)
        await self._inline.delete(self._client, 0, new.object + 1)
        return new

    async def _delete_below(self, position: int) -> None:
        """In steps that are short for etcd. Also deletes what a crash left."""
        start, end = self._keys.commit(0), self._keys.commit(position)
        oldest = (await self._client.range(start, end, limit=1, keys_only=True)).kvs
        if not oldest:
            return
        at = number_in(oldest[0].key)
        while at < position:
            step = min(position, at + ETCD_TRUNCATED_AT_ONCE)
            await self._client.delete(self._keys.commit(at), self._keys.commit(step))
            at = step

    async def collect_orphans(self, older_than_ms: int = limits.PAYLOAD_ORPHAN_MS) -> int:
        """The age of an upload is by the store's clock; its id contains only the time of its writer's clock."""
        await self._delete_sealed_payloads()
        before_ms = await self._payloads.now_ms(self._tokens.new()) - older_than_ms
        old = await self._payloads.uploads_before(before_ms)
        if not old:
            return 0
        at = (await self._commits.floor()).position
        while heads := await self._commits.heads(at):
            old.difference_update(head.id for head in heads)
            at = heads[-1].position + 1
        for seal in await self._seals():
            try:
                old.difference_update((await self._payloads.directory(seal)).ids)
            except NotFound:
                continue  # dropped
        await self._payloads.delete(sorted(old))
        return len(old)

    async def _delete_sealed_payloads(self) -> None:
        """What a crash right after a seal left in etcd."""
        for number in await self._inline.objects(self._client):
            if await self._seal_of(self._client, number) is not None:
                await self._inline.delete(self._client, number, number + 1)
