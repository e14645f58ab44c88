"""Checkpoints: the whole state as bytes.

Head, 40 bytes, little-endian (`HEAD`):

| field    | type  | meaning                                         |
|----------|-------|-------------------------------------------------|
| magic    | 8 × u1 | `MSTMLEDG`                                     |
| version  | u4    | now 1                                           |
| digests  | u4    | version of the digest, now 1; 0 is not compared |
| digest   | u8    | of the state, compared again once it is decoded |
| checksum | 8 × u1 | BLAKE2b-64 of the body                         |
| length   | u8    | bytes of the body                               |

The body is `LedgerState` in msgpack, as arrays; columns are little-endian bytes. The same state always gives the
same bytes: maps are sorted, and interval sets and rings have one form each.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

import msgspec

from mainstem.errors import LogDamaged, NewerVersion
from mainstem.ledger.brokers import BrokerState
from mainstem.ledger.client_quotas import ClientQuota
from mainstem.ledger.consumer_groups import ConsumerGroupsState
from mainstem.ledger.credentials import Credential
from mainstem.ledger.cursors import CursorsState
from mainstem.ledger.entry import Buffer
from mainstem.ledger.generations import GenerationsState
from mainstem.ledger.group_generations import GroupGeneration
from mainstem.ledger.group_settings import GroupSettingsState
from mainstem.ledger.idempotency import IdempotencyState
from mainstem.ledger.leases import LeasesState
from mainstem.ledger.members import BrokerMember
from mainstem.ledger.producers import ProducersState
from mainstem.ledger.repacked_objects import RepackedState
from mainstem.ledger.reports import StoredReport
from mainstem.ledger.routers import RoutersState
from mainstem.ledger.security_commands import AccessRule
from mainstem.ledger.share import ShareState
from mainstem.ledger.sinks import SinkState
from mainstem.ledger.streams import StreamsState
from mainstem.ledger.tables import TablesState
from mainstem.ledger.tasks import LeaseState
from mainstem.ledger.tiers import TierState
from mainstem.ledger.topics import Topic
from mainstem.ledger.transactions import TransactionState

CHECKPOINT_VERSION = 1
DIGEST_VERSION = 1
MAGIC = b"MSTMLEDG"
HEAD = struct.Struct("<8sIIQ8sQ")


class LedgerState(msgspec.Struct, frozen=True, array_like=True):
    """Everything a ledger holds. New fields only at the end, with a default."""

    position: int
    time_ms: int
    last_digest: tuple[int, int] | None
    topics: list[Topic]
    streams: StreamsState
    producers: ProducersState
    cursors: CursorsState
    brokers: list[BrokerState]
    transactions: list[TransactionState] = []
    queues: list[LeasesState] = []
    idempotency: IdempotencyState = IdempotencyState()
    sinks: list[SinkState] = []
    tables: TablesState = TablesState()
    tasks: list[LeaseState] = []
    generations: GenerationsState = GenerationsState()
    routers: RoutersState = RoutersState()
    members: list[BrokerMember] = []
    credentials: list[Credential] = []
    access_rules: list[AccessRule] = []
    client_quotas: list[ClientQuota] = []
    group_settings: list[GroupSettingsState] = []
    shares: list[ShareState] = []
    repacked: RepackedState = RepackedState()
    tiers: list[TierState] = []
    reports: list[StoredReport] = []
    group_generations: list[GroupGeneration] = []
    consumer_groups: ConsumerGroupsState = ConsumerGroupsState()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(LedgerState).decode


def pack(state: LedgerState, digest: int) -> bytes:
    body = _encode(state)
    return HEAD.pack(MAGIC, CHECKPOINT_VERSION, DIGEST_VERSION, digest, _checksum(body), len(body)) + body


def unpack(data: Buffer) -> tuple[LedgerState, int | None]:
    """The state and the digest it must have, None if that cannot be compared. Raises NewerVersion or LogDamaged."""
    if len(data) < HEAD.size:
        raise LogDamaged("a checkpoint is shorter than its head")
    magic, version, digests, digest, checksum, length = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise LogDamaged("these bytes are no checkpoint of a ledger")
    if version > CHECKPOINT_VERSION or digests > DIGEST_VERSION:
        raise NewerVersion(
            f"a checkpoint of version {version}.{digests}: this Mainstem reads up to "
            f"{CHECKPOINT_VERSION}.{DIGEST_VERSION}"
        )
    body = memoryview(data)[HEAD.size :]
    if version == 0 or len(body) != length or _checksum(body) != checksum:
        raise LogDamaged("a checkpoint does not match its checksum")
    try:
        return _decode(body), digest if digests else None
    except msgspec.DecodeError as error:
        raise LogDamaged(f"a checkpoint cannot be read: {error}") from error


def _checksum(body: Buffer) -> bytes:
    return blake2b(body, digest_size=8).digest()
