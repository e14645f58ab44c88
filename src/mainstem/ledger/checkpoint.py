"""Checkpoints: the whole state as bytes.

Head, 40 bytes, little-endian (`HEAD`):

| field    | type  | meaning                                          |
|----------|-------|--------------------------------------------------|
| magic    | 8 × u1 | `MSTMLEDG`                                      |
| version  | u4    | now 2                                            |
| digests  | u4    | version of the digest, now 2; an older one is not compared |
| digest   | u8    | of the state, compared again once it is decoded  |
| checksum | 8 × u1 | BLAKE2b-64 of the body                          |
| length   | u8    | bytes of the body                                |

The body is a map in msgpack: `position`, `time_ms`, `last_digest`, `digests` (section → digest) and `sections`
(section → state). The states of the sections are arrays; columns are little-endian bytes. Equal states give equal
bytes: maps are sorted, and interval sets and rings have one form each.
"""

from __future__ import annotations

import struct
from functools import cache
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import msgspec

from mainstem.errors import LogDamaged, NewerVersion, OlderVersion
from mainstem.ledger import registry
from mainstem.ledger.section import Buffer

CHECKPOINT_VERSION = 2
DIGEST_VERSION = 2
MAGIC = b"MSTMLEDG"
HEAD = struct.Struct("<8sIIQ8sQ")

T = TypeVar("T")


class LedgerState(msgspec.Struct, Generic[T], frozen=True):
    """Everything a ledger holds."""

    position: int
    time_ms: int
    last_digest: tuple[int, int] | None
    digests: dict[str, int]  # by section
    sections: T  # the states of the sections by name


_encode = msgspec.msgpack.Encoder().encode


@cache
def _decoder(states_type: type[msgspec.Struct]) -> msgspec.msgpack.Decoder[LedgerState[Any]]:
    return msgspec.msgpack.Decoder(LedgerState[states_type])  # type: ignore[valid-type]


def pack(state: LedgerState[Any], digest: int) -> bytes:
    body = _encode(state)
    return HEAD.pack(MAGIC, CHECKPOINT_VERSION, DIGEST_VERSION, digest, _checksum(body), len(body)) + body


def unpack(data: Buffer) -> tuple[LedgerState[Any], int | None]:
    """The state and the digest it must have; None: that digest cannot be compared.

    Raises NewerVersion, OlderVersion or LogDamaged."""
    if len(data) < HEAD.size:
        raise LogDamaged("a checkpoint is shorter than its header")
    magic, version, digests, digest, checksum, length = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise LogDamaged("not a checkpoint of a ledger")
    if version > CHECKPOINT_VERSION or digests > DIGEST_VERSION:
        raise NewerVersion(
            f"a checkpoint of version {version}.{digests}: this Mainstem reads up to "
            f"{CHECKPOINT_VERSION}.{DIGEST_VERSION}"
        )
    body = memoryview(data)[HEAD.size :]
    if version == 0 or len(body) != length or _checksum(body) != checksum:
        raise LogDamaged("a checkpoint does not match its checksum")
    if version < CHECKPOINT_VERSION:
        raise OlderVersion(f"a checkpoint of version {version}, which only development builds wrote")
    try:
        return _decoder(registry.REGISTRY.states_type).decode(body), (
            digest if digests == DIGEST_VERSION else None
        )
    except msgspec.DecodeError as error:
        raise LogDamaged(f"a checkpoint cannot be read: {error}") from error


def _checksum(body: Buffer) -> bytes:
    return blake2b(body, digest_size=8).digest()
