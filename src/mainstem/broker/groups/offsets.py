"""Committed offsets of groups, by topic and partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mainstem import limits
from mainstem.broker.streams import stream_of
from mainstem.errors import (
    InvalidInput,
    MainstemError,
    OffsetMetadataTooLarge,
    PartitionNotFound,
    StreamNotFound,
    TopicNotFound,
)
from mainstem.ledger.cursors import (
    NO_POSITION,
    CommitOffsets,
    Cursor,
    DeleteOffsets,
    ExpireOffsets,
    OffsetsDeleted,
)
from mainstem.log.log import Log

__all__ = ["OWN_PREFIX", "CommittedOffsets", "Cursor", "OffsetToCommit"]

OWN_PREFIX = "mainstem:"  # of the broker's own cursors: clients cannot join them, and they never expire


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int | None  # None = remove the committed offset
    metadata: str = ""
    leader_epoch: int = -1

    def row(self, stream: int) -> tuple[int, int, str]:
        """For the ledger."""
        return stream, NO_POSITION if self.offset is None else self.offset, self.metadata


class CommittedOffsets:
    def __init__(self, log: Log) -> None:
        self._log = log

    def groups(self) -> list[str]:
        """Groups that have committed offsets."""
        return self._log.ledger.cursors.groups()

    def names(self) -> list[str]:
        """The same groups, unordered, which is much faster."""
        return self._log.ledger.cursors.names()

    def exists(self, group: str) -> bool:
        return self._log.ledger.cursors.has(group)

    def of_group(self, group: str) -> dict[str, dict[int, Cursor]]:
        """All committed offsets of a group, by topic and partition."""
        topics = self._log.ledger.topics
        found: dict[str, dict[int, Cursor]] = {}
        numbers: dict[str, dict[int, int]] = {}  # topic → stream → partition
        for stream, cursor in self._log.ledger.cursors.of_group(group).items():
            topic = topics.of_stream(stream)
            if topic is None:
                continue
            if topic.name not in numbers:
                numbers[topic.name] = {stream: number for number, stream in enumerate(topic.streams)}
            found.setdefault(topic.name, {})[numbers[topic.name][stream]] = cursor
        return found

    async def commit(
        self, group: str, offsets: Sequence[OffsetToCommit], *, member: str = "", epoch: int = -1
    ) -> list[MainstemError | None]:
        """Store the valid offsets in one commit. Returns one error or None per offset.

        `member` and `epoch` are for groups with broker-side assignment. Raises UnknownMember, StaleMemberEpoch."""
        while True:
            outcomes: list[MainstemError | None] = []
            rows = []
            epochs = []
            for offset in offsets:
                stream = self.committable(offset)
                if isinstance(stream, int):
                    rows.append(offset.row(stream))
                    epochs.append(max(offset.leader_epoch, -1))
                outcomes.append(None if isinstance(stream, int) else stream)
            if not rows:
                return outcomes
            try:
                await self._log.propose(CommitOffsets(group, tuple(rows), tuple(epochs), member, epoch))
                return outcomes
            except StreamNotFound:
                continue  # a topic was deleted in the meantime: check again

    async def delete(self, group: str, streams: Sequence[int] = ()) -> None:
        """Delete offsets; no streams = all offsets of the group. Raises GroupNotFound."""
        await self._log.propose(DeleteOffsets(group, tuple(streams)))

    async def expire(self, group: str, before_ms: int) -> int:
        """Delete offsets that were committed before `before_ms`. Returns their number."""
        cursors = self._log.ledger.cursors.of_group(group)
        old = tuple(stream for stream, cursor in cursors.items() if cursor.time_ms < before_ms)
        if not old:
            return 0
        deleted: OffsetsDeleted = await self._log.propose(ExpireOffsets(group, old, before_ms))
        return deleted.streams

    def stream(self, topic: str, partition: int) -> int:
        """Raises TopicNotFound, PartitionNotFound."""
        found = self._log.ledger.topics.get(topic)
        if found is None:
            raise TopicNotFound(topic)
        return stream_of(found, partition)

    def committable(self, offset: OffsetToCommit) -> int | MainstemError:
        """The stream of an offset, or why it cannot be committed."""
        try:
            stream = self.stream(offset.topic, offset.partition)
        except (TopicNotFound, PartitionNotFound) as error:
            return error
        if offset.offset is not None and not 0 <= offset.offset <= limits.OFFSET_MAX:
            return InvalidInput(f"{offset.offset} is not an offset that can be committed")
        if len(offset.metadata.encode()) > limits.CURSOR_METADATA_BYTES_MAX:
            return OffsetMetadataTooLarge(
                f"the metadata of an offset has at most {limits.CURSOR_METADATA_BYTES_MAX} bytes"
            )
        return stream
