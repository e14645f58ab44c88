"""Cursors: how far each group has read each stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from mainstem import limits
from mainstem.errors import (
    GroupNotFound,
    InvalidInput,
    InvalidName,
    LimitReached,
    MainstemError,
    StreamNotFound,
    TooLarge,
)
from mainstem.ledger.consumer_groups import ConsumerGroups
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.namespaces import id_chars
from mainstem.ledger.section import Command, Moment, Section, applies, reacts
from mainstem.ledger.streams import Streams
from mainstem.ledger.topics import TopicDeletedEvent

CURSORS_MAX = 4_000_000  # (group, stream) pairs
NO_POSITION = -1  # committing it removes the position


class CommitOffsets(Command, frozen=True, tag=30):
    """A group's positions: (stream, next offset to read or NO_POSITION, metadata)."""

    group: str
    offsets: tuple[tuple[int, int, str], ...]
    leader_epochs: tuple[int, ...] = ()  # of the record before each offset; -1 = unknown; empty = all unknown
    member: str = ""  # that commits, in a group whose partitions the broker assigns
    member_epoch: int = -1  # of that member; -1 = no member, or a classic group


class DeleteOffsets(Command, frozen=True, tag=31):
    """Delete positions of a group; no streams = all positions and the group."""

    group: str
    streams: tuple[int, ...] = ()


class Take(Command, frozen=True, tag=32):
    """Move a group's cursor past the next records and assign them to the caller. No two callers get the same offset."""

    group: str
    stream: int
    limit: int


class ExpireOffsets(Command, frozen=True, tag=33):
    """Delete those of these positions that did not change at `before_ms` (a ledger time) or later."""

    group: str
    streams: tuple[int, ...]
    before_ms: int


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    streams: int


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    streams: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Offsets that the caller owns now, as half-open ranges; empty at the end of the stream."""

    ranges: tuple[tuple[int, int], ...]


_EPOCH_MAX = (1 << 31) - 1


class Cursor(NamedTuple):
    offset: int  # the next one to read
    metadata: str
    time_ms: int  # ledger time of the last change
    leader_epoch: int = -1  # of the record before the offset, as the reader knew it; -1 = unknown


class CursorsState(msgspec.Struct, frozen=True, array_like=True):
    """Every cursor, by group name and stream, in a checkpoint."""

    groups: list[tuple[str, list[tuple[int, int, str, int]]]]  # (stream, offset, metadata, time)
    leader_epochs: list[tuple[str, int, int]]  # (group, stream, epoch), where one is known


class Cursors(Section[CursorsState]):
    """group → stream → cursor. Commands return a result, or the error that rejects the whole command."""

    requires = (Streams, ConsumerGroups)

    def __init__(self, streams: Streams, consumer_groups: ConsumerGroups) -> None:
        self._sum = 0  # of the cursors' hashes, times left out
        self.count = 0
        self._streams = streams
        self._consumer_groups = consumer_groups
        self._groups: dict[str, dict[int, Cursor]] = {}
        self._readers: dict[int, dict[str, None]] = {}  # stream → groups, a dict for its fixed order

    def get(self, group: str, stream: int) -> Cursor | None:
        cursors = self._groups.get(group)
        return cursors.get(stream) if cursors else None

    def has(self, group: str) -> bool:
        return group in self._groups

    def names(self) -> list[str]:
        """The groups, unordered: sorting a million names is slow."""
        return list(self._groups)

    def groups(self) -> list[str]:
        return sorted(self._groups)

    def of_group(self, group: str) -> dict[int, Cursor]:
        """A group's cursors by stream."""
        return dict(sorted(self._groups.get(group, {}).items()))

    @applies(CommitOffsets)
    def commit(self, command: CommitOffsets, now: Moment) -> OffsetsCommitted | MainstemError:
        refusal = self._consumer_groups.bad_member(
            command.group, command.member, command.member_epoch
        ) or self.refusal(command)
        if refusal:
            return refusal
        epochs = command.leader_epochs or (-1,) * len(command.offsets)
        for (stream, offset, metadata), epoch in zip(command.offsets, epochs, strict=True):
            self._set(command.group, stream, Cursor(offset, metadata, now.time_ms, epoch))
        return OffsetsCommitted(len(command.offsets))

    def refusal(self, command: CommitOffsets) -> MainstemError | None:
        """Why these positions cannot be committed, or None."""
        refusal = _bad_group(command.group)
        if refusal:
            return refusal
        epochs = command.leader_epochs or (-1,) * len(command.offsets)
        if len(epochs) != len(command.offsets) or not all(-1 <= epoch <= _EPOCH_MAX for epoch in epochs):
            return InvalidInput("a commit has one leader epoch for each offset, or none at all")
        for stream, offset, metadata in command.offsets:
            if not self._streams.exists(stream):
                return StreamNotFound(stream)
            if not NO_POSITION <= offset <= limits.OFFSET_MAX:
                return InvalidInput(f"{offset} is not an offset that can be committed")
            if len(metadata.encode()) > limits.CURSOR_METADATA_BYTES_MAX:
                return TooLarge(f"cursor metadata is at most {limits.CURSOR_METADATA_BYTES_MAX} bytes")
        fresh = {stream for stream, _, _ in command.offsets if self.get(command.group, stream) is None}
        return _too_many() if self.count + len(fresh) > CURSORS_MAX else None

    def put_checked(self, group: str, stream: int, cursor: Cursor) -> None:
        """Store a position of a transaction that commits. It was checked when it was given. The number of cursors may
        exceed the limit by those of open transactions, because a commit cannot be rejected at this point."""
        if self._streams.exists(stream):
            self._set(group, stream, cursor)

    def _set(self, group: str, stream: int, cursor: Cursor) -> None:
        """Store a position that was committed, or remove the present one."""
        if cursor.offset != NO_POSITION:
            self._put(group, stream, cursor)
        elif self.get(group, stream) is not None:
            self._drop(group, stream)

    @applies(DeleteOffsets)
    def delete(self, command: DeleteOffsets, now: Moment) -> OffsetsDeleted | GroupNotFound:
        cursors = self._groups.get(command.group)
        if cursors is None:
            return GroupNotFound(command.group)
        streams = [stream for stream in dict.fromkeys(command.streams) if stream in cursors]
        if not command.streams:
            streams = list(cursors)
        for stream in streams:
            self._drop(command.group, stream)
        return OffsetsDeleted(len(streams))

    @applies(ExpireOffsets)
    def expire(self, command: ExpireOffsets, now: Moment) -> OffsetsDeleted:
        """Positions that were committed again since then stay."""
        cursors = self._groups.get(command.group, {})
        old = [
            stream
            for stream in dict.fromkeys(command.streams)
            if stream in cursors and cursors[stream].time_ms < command.before_ms
        ]
        for stream in old:
            self._drop(command.group, stream)
        return OffsetsDeleted(len(old))

    @applies(Take)
    def take(self, command: Take, now: Moment) -> Taken | MainstemError:
        refusal = _bad_group(command.group)
        if refusal:
            return refusal
        if not self._streams.exists(command.stream):
            return StreamNotFound(command.stream)
        if command.limit < 1:
            return InvalidInput(f"cannot take {command.limit} records: ask for at least one")
        cursor = self.get(command.group, command.stream)
        if cursor is None and self.count >= CURSORS_MAX:
            return _too_many()
        start = self._streams.start(command.stream)
        ranges = self._next_live(command.stream, max(start, cursor.offset if cursor else 0), command.limit)
        if ranges:
            metadata = cursor.metadata if cursor else ""
            self._put(command.group, command.stream, Cursor(ranges[-1][1], metadata, now.time_ms))
        return Taken(tuple(ranges))

    def _next_live(self, stream: int, start: int, limit: int) -> list[tuple[int, int]]:
        """The first `limit` live offsets from `start` on, below the last stable offset."""
        ranges = []
        for first, last in self._streams.holes(stream).live(start, self._streams.stable_end(stream)):
            last = min(last, first + limit)
            ranges.append((first, last))
            limit -= last - first
            if not limit:
                break
        return ranges

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        for stream in event.topic.streams:
            for group in list(self._readers.get(stream, ())):
                self._drop(group, stream)

    def _put(self, group: str, stream: int, cursor: Cursor) -> None:
        cursors = self._groups.setdefault(group, {})
        old = cursors.get(stream)
        if old is None:
            self.count += 1
            self._readers.setdefault(stream, {})[group] = None
        else:
            self._sum -= _hash(group, stream, old)
        self._sum = (self._sum + _hash(group, stream, cursor)) & MASK
        cursors[stream] = cursor

    def _drop(self, group: str, stream: int) -> None:
        cursors, readers = self._groups[group], self._readers[stream]
        self._sum = (self._sum - _hash(group, stream, cursors.pop(stream))) & MASK
        self.count -= 1
        del readers[group]
        if not cursors:
            del self._groups[group]
        if not readers:
            del self._readers[stream]

    @property
    def digest(self) -> int:
        return self._sum

    def encode(self) -> CursorsState:
        return CursorsState(
            [
                (group, [(stream, *cursor[:3]) for stream, cursor in sorted(cursors.items())])
                for group, cursors in sorted(self._groups.items())
            ],
            [
                (group, stream, cursor.leader_epoch)
                for group, cursors in sorted(self._groups.items())
                for stream, cursor in sorted(cursors.items())
                if cursor.leader_epoch >= 0
            ],
        )

    def load(self, state: CursorsState) -> None:
        epochs = {(group, stream): epoch for group, stream, epoch in state.leader_epochs}
        for group, rows in state.groups:
            for stream, offset, metadata, time_ms in rows:
                epoch = epochs.get((group, stream), -1)
                self._put(group, stream, Cursor(offset, metadata, time_ms, epoch))


def _hash(group: str, stream: int, cursor: Cursor) -> int:
    return hash_fields("cursor", group, stream, cursor.offset, cursor.metadata, cursor.leader_epoch)


def _bad_group(group: str) -> InvalidName | None:
    if 1 <= id_chars(group) <= limits.NAME_CHARS_MAX:
        return None
    return InvalidName(f"a group name has 1 to {limits.NAME_CHARS_MAX} characters, not {id_chars(group)}")


def _too_many() -> LimitReached:
    return LimitReached(f"there are {CURSORS_MAX} cursors, the maximum: delete some groups")
