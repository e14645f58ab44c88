"""Sealing, reading, dropping and truncating objects, so that every broker sees the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mainstem import limits
from mainstem.errors import NotFound
from mainstem.ports.commitlog.port import Overtaken, Piece
from mainstem.ports.commitlog.shared.core.backend import Floor, SealedListing
from mainstem.ports.commitlog.shared.core.objects import ObjectTable, OpenObject
from mainstem.ports.commitlog.shared.etcd.checkpoints import EtcdCheckpoints
from mainstem.ports.commitlog.shared.etcd.client import EtcdClient, absent, get, holds, put, unchanged
from mainstem.ports.commitlog.shared.etcd.commits import EtcdCommits, TokenSource
from mainstem.ports.commitlog.shared.etcd.directory import Directory
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys, number_in
from mainstem.ports.commitlog.shared.etcd.payloads import Payloads
from mainstem.ports.commitlog.shared.etcd.records import (
    DROPPED,
    CommitRecord,
    Seal,
    pack_floor,
    unpack_floor,
)

ETCD_TRUNCATED_AT_ONCE = 10_000  # commits deleted by one call


class EtcdObjects:
    """The objects of one log."""

    def __init__(
        self,
        client: EtcdClient,
        keys: EtcdKeys,
        payloads: Payloads,
        commits: EtcdCommits,
        checkpoints: EtcdCheckpoints,
        table: ObjectTable[CommitRecord, Seal],
        tokens: TokenSource,
        retention_ms: int,
    ) -> None:
        self._client = client
        self._keys = keys
        self._payloads = payloads
        self._commits = commits
        self._checkpoints = checkpoints
        self._table = table
        self._tokens = tokens
        self._retention_ms = retention_ms
        self._refreshes = 0
        self._absent: dict[int, int] = {}  # objects of which bytes were not found, and after which refresh

    async def refresh(self) -> SealedListing[Seal]:
        """Also learns which checkpoints there are: `load` cannot ask etcd."""
        seals = await self._seals()
        await self._checkpoints.names()
        self._refreshes += 1
        return SealedListing(
            {seal.number: seal for seal in seals if not seal.dropped},
            {seal.number: seal for seal in seals if seal.dropped},
            await self._commits.floor(),
        )

    async def _seals(self) -> list[Seal]:
        found = await self._client.range(self._keys.object(0), self._keys.objects_end)
        return [Seal.unpack(pair.value) for pair in found.kvs]

    async def seal(self, unsealed: OpenObject[CommitRecord], index: bytes) -> tuple[Seal, bool]:
        directory = Directory.of(unsealed).pack()
        described, token = unsealed.described(), self._tokens.new()
        seal = Seal.new(described, directory, index, now_ms=self._tokens.now_ms(), token=token)
        await self._payloads.put_seal(seal, directory, index)
        while (stands := await self._publish(seal)) is None:
            pass
        if stands == seal:
            return seal, True
        await self._payloads.drop_seal(seal)
        if stands.dropped:
            self._table.learn_drop(stands)
            raise FileNotFoundError(f"object {seal.number} was dropped")
        return stands, False

    async def _publish(self, seal: Seal) -> Seal | None:
        """The seal that stands now. None: try again. Raises Overtaken."""
        key, next_commit = self._keys.object(seal.number), self._keys.commit(seal.end)
        conditions = [absent(key)]
        if self._table.end == seal.end:
            conditions.append(absent(next_commit))  # else another broker could have continued the object
        else:
            known = self._table.open_object(seal.number)
            if known is not None and known.end != seal.end:  # it grew while the seal was uploaded
                await self._payloads.drop_seal(seal)
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
            await self._payloads.drop_seal(seal)
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
        content = await self._payloads.read((await self._pieces_of(source))(start, length))
        self._absent.pop(source.number, None)
        return content

    async def is_lost(self, source: OpenObject[CommitRecord] | Seal) -> bool:
        """Etcd marks an object as dropped before its payloads go. So an object is lost if a refresh that began after
        the first failed read does not show it as dropped."""
        return self._absent.setdefault(source.number, self._refreshes) < self._refreshes - 1

    async def index(self, sealed: Seal) -> bytes:
        return await self._payloads.index(sealed)

    async def pieces(
        self, source: OpenObject[CommitRecord] | Seal, ranges: Sequence[tuple[int, int]]
    ) -> list[Piece]:
        pieces = await self._pieces_of(source)
        return self._payloads.pieces([(start, pieces(start, length)) for start, length in ranges])

    async def _pieces_of(
        self, source: OpenObject[CommitRecord] | Seal
    ) -> Callable[[int, int], Iterator[tuple[bytes, int, int]]]:
        if not isinstance(source, OpenObject):
            return (await self._payloads.directory(source)).pieces
        payloads = source.payloads
        return lambda start, length: (
            (record.id, skipped, taken) for record, skipped, taken in payloads.pieces(start, length)
        )

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
        """The store's clock tells the age of an upload; its id tells only what its writer's clock said."""
        before_ms = await self._payloads.now_ms(self._tokens.new()) - older_than_ms
        old = await self._payloads.uploads_before(before_ms)
        if not old:
            return 0
        at = self._table.end
        for one in self._table.open_objects():
            old.difference_update(Directory.of(one).ids)
        while newer := await self._commits.newer(at):
            old.difference_update(one.head.id for one in newer)
            at = newer[-1].head.position + 1
        for seal in await self._seals():
            try:
                old.difference_update((await self._payloads.directory(seal)).ids)
            except NotFound:
                continue  # dropped
        await self._payloads.delete(sorted(old))
        return len(old)
