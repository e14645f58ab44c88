"""Messages between consumers of the classic protocol: subscriptions and assignments.

The coordinator of a classic group passes these bytes on unread. It reads and writes them for classic members of a group
whose partitions the broker assigns.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

CONSUMER_PROTOCOL = "consumer"  # the protocol type of consumers; others (Connect, registries) have their own

_FIRST_WITH_OWNED = 1
_FIRST_WITH_RACK = 3

ByName = Mapping[str, Sequence[int]]  # topic name → partitions


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    version: int
    topics: frozenset[str]
    owned: ByName = field(default_factory=dict)  # what the member has not revoked
    rack: str | None = None


def read_subscription(metadata: bytes) -> TopicSubscription | None:
    """The metadata of a member; None if it is something else.

    | field | size | meaning |
    |---|---|---|
    | version | 2 | |
    | topics | 4 + n | how many, and their names: length (2 bytes) and UTF-8 |
    | user data | 4 + n | ignored; a length of -1 means none |
    | owned | 4 + n | from version 1: as in an assignment |
    | generation | 4 | from version 2: ignored |
    | rack | 2 + n | from version 3: length and UTF-8; a length of -1 means none |

    Some clients end after the topics."""
    reader = _Reader(metadata)
    try:
        version = reader.int16()
        topics = frozenset(reader.string() or "" for _ in range(reader.count()))
        if reader.done:
            return TopicSubscription(version, topics)
        reader.skip_bytes()
        owned = reader.partitions() if version >= _FIRST_WITH_OWNED and not reader.done else {}
        rack = None
        if version >= _FIRST_WITH_RACK and not reader.done:
            reader.int32()
            rack = reader.string()
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return TopicSubscription(version, topics, owned, rack or None)


def read_assignment(assignment: bytes) -> ByName | None:
    """The partitions in an assignment; None if it is something else.

    | field | size | meaning |
    |---|---|---|
    | version | 2 | ignored: all versions have the same fields |
    | topics | 4 | how many |
    | topic | 2 + n | length and UTF-8 |
    | partitions | 4 + 4 n | how many, and their numbers |
    | user data | 4 + n | a length of -1 means none |
    """
    if not assignment:
        return {}
    reader = _Reader(assignment)
    try:
        reader.int16()
        return reader.partitions()
    except (struct.error, UnicodeDecodeError, ValueError):
        return None


def write_assignment(version: int, partitions: ByName) -> bytes:
    """An assignment without user data."""
    parts = [struct.pack(">hi", version, len(partitions))]
    for topic, numbers in partitions.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers))
    parts.append(struct.pack(">i", -1))
    return b"".join(parts)


class _Reader:
    """Raises struct.error, ValueError and UnicodeDecodeError on malformed bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._data)

    def int16(self) -> int:
        return self._number(">h")

    def int32(self) -> int:
        return self._number(">i")

    def count(self) -> int:
        """The length of a list: each element takes at least two bytes."""
        count = self.int32()
        if count > (len(self._data) - self._at) // 2:
            raise ValueError("a list is longer than the message")
        return max(count, 0)

    def string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._take(length).decode()

    def skip_bytes(self) -> None:
        self._take(max(self.int32(), 0))

    def partitions(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for _ in range(self.count()):
            topic = self.string() or ""
            found[topic] = found.get(topic, ()) + tuple(self.int32() for _ in range(self.count()))
        return found

    def _number(self, form: str) -> int:
        (number,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(number)

    def _take(self, length: int) -> bytes:
        taken = self._data[self._at : self._at + length]
        if len(taken) != length:
            raise ValueError("the message is too short")
        self._at += length
        return taken
