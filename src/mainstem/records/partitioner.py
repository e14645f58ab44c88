"""The partition of a key, computed as Kafka's clients do, so that all clients agree."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_U32 = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with the seed Kafka uses."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _U32
        k = (k ^ k >> 24) * _M & _U32
        h = (h * _M & _U32) ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _U32
    h = (h ^ h >> 13) * _M & _U32
    return h ^ h >> 15
