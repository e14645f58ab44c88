"""Sealing and dropping objects, so that every broker sees the same of it."""

from __future__ import annotations

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import invariant
from mainstem.ports.commitlog.port import Committed, Overtaken
from mainstem.ports.commitlog.shared.etcd.client import EtcdClient, absent, get, holds, put
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys
from mainstem.ports.commitlog.shared.etcd.objects import ObjectTable, OpenObject
from mainstem.ports.commitlog.shared.etcd.payloads import Payloads
from mainstem.ports.commitlog.shared.etcd.reading import CommitReader
from mainstem.ports.commitlog.shared.etcd.records import DROPPED, Seal
from mainstem.ports.commitlog.shared.etcd.writing import Tokens


class Sealing:
    def __init__(
        self,
        client: EtcdClient,
        keys: EtcdKeys,
        payloads: Payloads,
        reader: CommitReader,
        table: ObjectTable,
        tokens: Tokens,
        undelivered: list[Committed],
    ) -> None:
        self._client = client
        self._keys = keys
        self._payloads = payloads
        self._reader = reader
        self._table = table
        self._tokens = tokens
        self._undelivered = undelivered  # commits learnt on the way, for the next append to tell of

    async def seal(self, number: int, index: bytes) -> None:
        """Raises Overtaken if the object has grown, FileNotFoundError if there is none."""
        unsealed = self._table.open_object(number)
        if unsealed is None:
            await self._check_same(number, index)
            return
        current = self._table.current
        invariant(current is not unsealed, "only a finished object is sealed: roll first")
        seal = self._described(unsealed, index)
        await self._payloads.put_seal(seal, unsealed.directory, index)
        while not await self._publish(seal):
            pass
        if self._table.seal_of(number) != seal:
            await self._payloads.drop_seal(seal)
            await self._check_same(number, index)

    async def drop(self, number: int) -> None:
        seal = self._table.seal_of(number)
        if seal is None:
            invariant(self._table.open_object(number) is None, "only a sealed object is dropped")
            return
        if not seal.dropped:
            gone = seal._replace(flags=seal.flags | DROPPED)
            # First the mark: who reads must not take the object for whole while its payloads go.
            key = self._keys.object(number)
            await self._client.txn([holds(key, seal.pack())], [put(key, gone.pack())])
            self._table.learn_seal(gone)
        await self._payloads.drop(seal)

    def _described(self, unsealed: OpenObject, index: bytes) -> Seal:
        return Seal(
            0,
            unsealed.number,
            unsealed.first,
            unsealed.end,
            unsealed.size,
            len(index),
            self._tokens.now_ms(),
            crc32c(index, crc32c(unsealed.directory.pack())),
            self._tokens.new(),
        )

    async def _publish(self, seal: Seal) -> bool:
        """Make it the object's seal, or learn which one is. False: look again. Raises Overtaken."""
        key, next_commit = self._keys.object(seal.number), self._keys.commit(seal.end)
        conditions = [absent(key)]
        if self._table.is_last(seal.number):
            conditions.append(absent(next_commit))  # or another broker could have gone on in it
        now_there = [get(key), get(next_commit, self._keys.commits_end, limit=limits.ETCD_RANGE_COMMITS)]
        done = await self._client.txn(conditions, [put(key, seal.pack())], now_there)
        if done.succeeded:
            self._table.learn_seal(seal)
            return True
        seals, commits = (response.response_range.kvs for response in done.responses)
        if seals:
            self._table.learn_seal(Seal.unpack(seals[0].value))
            return True
        known = await self._reader.decode(commits)
        grown = known[0].record.object == seal.number
        if grown:
            await self._payloads.drop_seal(seal)
        # No await from here on: what the table has learnt, an append that runs beside this counts as told.
        for one in known:
            self._table.learn_commit(one.record)
        if grown:
            raise Overtaken([one.commit for one in known])
        self._undelivered += [one.commit for one in known]
        return False

    async def _check_same(self, number: int, index: bytes) -> None:
        found = self._table.seal_of(number)
        if found is None or found.dropped:
            raise FileNotFoundError(f"object {number} was dropped or never was")
        invariant(await self._payloads.index(found) == index, "a sealed object keeps its index")
