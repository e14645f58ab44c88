"""Commands: every state change but appends, which travel as arrays (see appends.py).

Encoded with msgpack as arrays tagged by a number. Fields are only ever added at the end, with a default, and
a tag is never given a new meaning: old logs must replay. Time and random ids arrive inside the command.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from mainstem.ledger.config import TopicConfig


class CreateTopic(msgspec.Struct, frozen=True, array_like=True, tag=1):
    name: str
    topic_id: bytes  # 16 random bytes, so a recreated topic is another topic
    partitions: int
    config: TopicConfig
    namespace: str = "default"


class DeleteTopic(msgspec.Struct, frozen=True, array_like=True, tag=2):
    topic_id: bytes


class AlterTopic(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Replace the whole config. A tighter cap evicts at once."""

    topic_id: bytes
    config: TopicConfig


class AddPartitions(msgspec.Struct, frozen=True, array_like=True, tag=4):
    topic_id: bytes
    total: int


TrimReason = Literal["delete", "cap", "ttl"]


class Trim(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Records below `offset` are gone: on request ("delete", silent) or by retention ("cap", "ttl": loss)."""

    stream: int
    offset: int
    reason: TrimReason
    bytes: int = 0  # logical bytes removed, where the ledger does not track records itself


class DeleteRecords(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Remove single records on request: half-open offset ranges, already resolved by the proposer."""

    stream: int
    ranges: tuple[tuple[int, int], ...]
    bytes: int = 0


class RaiseCeilings(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Relaxed streams may publish offsets below these once this command is synced."""

    ceilings: tuple[tuple[int, int], ...]  # (stream, ceiling)


class MarkLost(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Stored bytes of these offsets are damaged; the offsets stay taken."""

    stream: int
    start: int
    end: int
    reason: str = "damaged"


class AllocateProducer(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """A new idempotent producer id; the ledger counts them."""


class ExpireProducers(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Forget producers that were idle past `before_ms` (a ledger time)."""

    before_ms: int


class CommitOffsets(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """A group's positions: (stream, next offset to read, metadata)."""

    group: str
    offsets: tuple[tuple[int, int, str], ...]
    leader_epochs: tuple[int, ...] = ()  # one an offset, of the record before it; -1 = unknown; none = all unknown


class DeleteOffsets(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """Forget positions of a group; no streams = all of them, and the group with it."""

    group: str
    streams: tuple[int, ...] = ()


class Take(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """Move a group's cursor over the next records and own them: no two takers get the same offset."""

    group: str
    stream: int
    limit: int


class ExpireOffsets(msgspec.Struct, frozen=True, array_like=True, tag=33):
    """Forget these positions of a group, as far as they were not changed at `before_ms` (a ledger time) or later."""

    group: str
    streams: tuple[int, ...]
    before_ms: int


class Boot(msgspec.Struct, frozen=True, array_like=True, tag=40):
    """A broker starts: it gets a new epoch, and its older ones are fenced.

    `jump`: the machine went down uncleanly, so relaxed streams continue at their ceiling."""

    broker: int
    boot_id: str
    jump: bool
    node: str = ""


class Halt(msgspec.Struct, frozen=True, array_like=True, tag=41):
    """A broker stops cleanly: all it wrote is synced."""

    broker: int


Command = (
    CreateTopic
    | DeleteTopic
    | AlterTopic
    | AddPartitions
    | Trim
    | DeleteRecords
    | RaiseCeilings
    | MarkLost
    | AllocateProducer
    | ExpireProducers
    | CommitOffsets
    | DeleteOffsets
    | Take
    | ExpireOffsets
    | Boot
    | Halt
)
