"""Which payloads of a finished object are copied into larger objects of the store when it is sealed.

What etcd holds must be copied. Small uploads are copied too: a cold reader wants few large objects. A large payload
stays in its upload (decision 0018 says why).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from mainstem import limits
from mainstem.ports.commitlog.shared.etcd.keys import TOKEN_BYTES
from mainstem.ports.commitlog.shared.etcd.records import CommitRecord

ETCD_PACKED_BYTES_MAX = limits.MIB  # a payload of this size or more stays in its own upload


class Pack(NamedTuple):
    """Consecutive payloads that one object of the store holds after the seal."""

    start: int  # in the log object
    length: int
    records: list[CommitRecord]

    @property
    def in_place(self) -> bool:
        """Whether an upload holds it already."""
        return len(self.records) == 1 and not self.records[0].payload_in_etcd

    @property
    def whole(self) -> list[tuple[CommitRecord, int, int]]:
        """All of it, as pieces of payloads."""
        return [(record, 0, record.payload_length) for record in self.records]

    def digest(self) -> bytes:
        """The same for the same payloads."""
        return blake2b(b"".join(record.id for record in self.records), digest_size=TOKEN_BYTES).digest()


class PayloadCopy(NamedTuple):
    """A pack in the store."""

    start: int
    length: int
    name: bytes


def packed(records: Iterable[CommitRecord]) -> Iterator[Pack]:
    """The payloads of commits of one object, by rising position."""
    filling: list[CommitRecord] = []
    size = 0
    for record in records:
        small = record.payload_in_etcd or record.payload_length < ETCD_PACKED_BYTES_MAX
        fits = size + record.payload_length <= limits.STORE_OBJECT_BYTES_MAX
        if filling and not (small and fits and filling[0].start + size == record.start):
            yield Pack(filling[0].start, size, filling)
            filling, size = [], 0
        if small:
            filling.append(record)
            size += record.payload_length
        else:
            yield Pack(record.start, record.payload_length, [record])
    if filling:
        yield Pack(filling[0].start, size, filling)
