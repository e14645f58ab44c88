"""Small payloads inside etcd: a quorum of its members' disks holds them, until the object store does.

The transaction of a commit also puts its payload, under its own key: followers, which need the entry alone, do not
receive it. Once the object is sealed, the store has the bytes and the keys are deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from mainstem import limits
from mainstem.errors import NotFound
from mainstem.ports.commitlog.shared.etcd.client import Connect, EtcdClient, EtcdOptions
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys, payload_object_in
from mainstem.ports.commitlog.shared.etcd.records import CommitRecord

ETCD_INLINE_BYTES_MAX = 48 * limits.KIB  # a larger payload is uploaded to the object store before its commit
ETCD_IN_USE_BYTES_MAX = (
    limits.GIB
)  # of the database, half of its default quota: above it, every payload is uploaded

_RANGE_PAYLOADS = 128  # read at a time


class ReadingClient:
    """A client for the thread that reads: one event loop owns each client. Connects with the first read."""

    def __init__(self, options: EtcdOptions, connect: Connect | None) -> None:
        self._options = options
        self._connect = connect
        self._client: EtcdClient | None = None

    @property
    def is_open(self) -> bool:
        return self._client is not None

    def get(self) -> EtcdClient:
        if self._client is None:
            self._client = EtcdClient(self._options, self._connect)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


class InlinePayloads:
    """The payloads of one log that etcd holds."""

    def __init__(self, keys: EtcdKeys) -> None:
        self._keys = keys

    def key(self, record: CommitRecord) -> bytes:
        return self._keys.payload(record.object, record.tried, record.id)

    async def read(self, client: EtcdClient, records: Sequence[CommitRecord]) -> list[bytes]:
        """The payloads of commits of one object, by rising position. Raises NotFound: the object was sealed since."""
        found: list[bytes] = []
        for at in range(0, len(records), _RANGE_PAYLOADS):
            found += await self._some(client, records[at : at + _RANGE_PAYLOADS])
        return found

    async def _some(self, client: EtcdClient, records: Sequence[CommitRecord]) -> list[bytes]:
        keys = [self.key(record) for record in records]
        # Writers that tried one position have several: the keys are almost in the order of the commits.
        pairs = (await client.range(min(keys), max(keys) + b"\0")).kvs
        values = {pair.key: pair.value for pair in pairs}
        try:
            return [values[key] for key in keys]
        except KeyError as error:
            raise NotFound(f"etcd no longer holds {error.args[0]!r}") from None

    async def delete(self, client: EtcdClient, first: int, end: int) -> None:
        """Those of the objects from `first` to before `end`, which are sealed."""
        await client.delete(self._keys.payloads(first), self._keys.payloads(end))

    async def objects(self, client: EtcdClient) -> list[int]:
        """Objects that still have payloads in etcd."""
        found: list[int] = []
        at = 0
        while True:
            start = self._keys.payloads(at)
            next = (await client.range(start, self._keys.payloads_end, limit=1, keys_only=True)).kvs
            if not next:
                return found
            found.append(payload_object_in(next[0].key))
            at = found[-1] + 1
