"""Epochs: each life of a broker takes the next one, and every commit is written only while its epoch stands."""

from __future__ import annotations

from mainstem.ports.commitlog.shared.etcd.client import EtcdClient, put, unchanged
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys
from mainstem.ports.commitlog.shared.etcd.records import Guard


async def take_epoch(client: EtcdClient, keys: EtcdKeys, broker: str, token: bytes) -> Guard:
    """Set the broker's epoch one higher: whoever wrote under an older one writes no more."""
    key = keys.broker(broker)
    while True:
        found = (await client.range(key)).kvs
        held = Guard.unpack(found[0].value) if found else Guard(0, b"")
        if held.token == token:
            return held  # the answer to an earlier attempt was lost, the attempt was not
        mine = Guard(held.epoch + 1, token)
        revision = found[0].mod_revision if found else 0
        done = await client.txn([unchanged(key, revision)], [put(key, mine.pack())])
        if done.succeeded:
            return mine
