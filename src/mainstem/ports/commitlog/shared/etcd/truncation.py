"""Truncation: commits that every kept checkpoint holds leave etcd, whole objects at a time, after their retention."""

from __future__ import annotations

from mainstem import limits
from mainstem.ports.commitlog.shared.etcd.client import EtcdClient, put, unchanged
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys, number_in
from mainstem.ports.commitlog.shared.etcd.objects import ObjectTable
from mainstem.ports.commitlog.shared.etcd.payloads import Payloads
from mainstem.ports.commitlog.shared.etcd.records import Floor


async def truncate(
    client: EtcdClient,
    keys: EtcdKeys,
    table: ObjectTable,
    payloads: Payloads,
    *,
    behind: int,
    sealed_before_ms: int,
) -> Floor:
    """Move the floor up as far as objects end at or before `behind` and were sealed before that time.

    First the floor, so that no late writer can take a position twice; then the commits below it."""
    found = (await client.range(keys.floor)).kvs[0]
    floor = target = Floor.unpack(found.value)
    for seal in table.settled(floor):
        if seal.end > behind or seal.sealed_ms > sealed_before_ms:
            break
        target = Floor(seal.end, seal.number)
    if target != floor:
        moved = await client.txn(
            [unchanged(keys.floor, found.mod_revision)], [put(keys.floor, target.pack())]
        )
        if not moved.succeeded:
            return floor  # another broker truncates, or our answer was lost: the next time goes on from there
    await _delete_below(client, keys, target.position)
    for seal in table.seals():
        if seal.dropped and seal.end <= target.position:
            await payloads.drop(seal)  # a crash may have left some
            await client.delete(keys.object(seal.number))
            table.forget(seal.number)
    return target


async def _delete_below(client: EtcdClient, keys: EtcdKeys, position: int) -> None:
    """In steps, each small enough not to hold etcd up; a step that a crash left undone is done now."""
    oldest = (await client.range(keys.commit(0), keys.commit(position), limit=1, keys_only=True)).kvs
    if not oldest:
        return
    at = number_in(oldest[0].key)
    while at < position:
        step = min(position, at + limits.ETCD_TRUNCATED_AT_ONCE)
        await client.delete(keys.commit(at), keys.commit(step))
        at = step
