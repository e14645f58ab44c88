"""The offsets in the requests of OffsetCommit and TxnOffsetCommit."""

from __future__ import annotations

from typing import Protocol

from mainstem.broker.groups.offsets import OffsetToCommit


class CommittedPartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def committed_offset(self) -> int: ...

    @property
    def committed_leader_epoch(self) -> int: ...

    @property
    def committed_metadata(self) -> str | None: ...


def to_commit(topic: str, partition: CommittedPartition) -> OffsetToCommit:
    """A negative offset removes the committed one: kafkajs resets offsets by committing -1 or -2, which clients read
    like no offset at all."""
    offset = partition.committed_offset
    return OffsetToCommit(
        topic,
        partition.partition_index,
        None if offset < 0 else offset,
        partition.committed_metadata or "",
        partition.committed_leader_epoch,
    )
