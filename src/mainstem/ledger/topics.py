"""Topics: their names, ids and streams. Stream numbers are dense and never reused.

A topic is named by its full name: `orders` in the default namespace, `acme/shop/orders` in another (namespaces.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from mainstem import limits
from mainstem.errors import (
    InvalidConfig,
    InvalidInput,
    InvalidName,
    LimitReached,
    NamespaceNotFound,
    TopicExists,
    TopicNotEmpty,
    TopicNotFound,
)
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.digest import hash_fields
from mainstem.ledger.keyed import Keyed
from mainstem.ledger.namespaces import DEFAULT, Namespaces, bad_namespace, canonical, qualify, split
from mainstem.ledger.section import Command, Moment, Section, applies
from mainstem.ledger.streams import Streams


class CreateTopic(Command, frozen=True, tag=1):
    name: str  # within its namespace
    topic_id: bytes  # 16 random bytes, so that a recreated topic is a different topic
    partitions: int
    config: TopicConfig
    namespace: str = DEFAULT


class DeleteTopic(Command, frozen=True, tag=2):
    topic_id: bytes
    if_empty: bool = False  # reject it while the topic has records


class AlterTopic(Command, frozen=True, tag=3):
    """Replace the whole config. A tighter cap evicts at once."""

    topic_id: bytes
    config: TopicConfig


class AddPartitions(Command, frozen=True, tag=4):
    topic_id: bytes
    total: int


TOPIC_ID_BYTES = 16

_NAME = re.compile(rf"[A-Za-z0-9._:-]{{1,{limits.NAME_CHARS_MAX}}}")


@dataclass(frozen=True, slots=True)
class Topic:
    topic_id: bytes
    namespace: str
    name: str  # full name
    streams: tuple[int, ...]  # stream number by partition
    config: TopicConfig
    created_ms: int  # ledger time

    @property
    def partitions(self) -> int:
        return len(self.streams)

    @property
    def full_name(self) -> str:
        """The name that is unique in the log; `name` is the same."""
        return self.name

    @property
    def plain_name(self) -> str:
        """The name within its namespace."""
        return split(self.name)[1]


class TopicDeletedEvent(NamedTuple):
    """An event: a topic and its streams were deleted."""

    topic: Topic


class PartitionsAdded(NamedTuple):
    """An event: a topic may have more partitions than before."""

    topic: Topic


class Topics(Section[list[Topic]]):
    """The topics that exist. Commands return the topic, or the error that rejects them."""

    requires = (Streams, Namespaces)

    def __init__(self, streams: Streams, namespaces: Namespaces) -> None:
        self._streams = streams
        self._namespaces = namespaces
        self._by_name: Keyed[str, Topic] = Keyed(_hash)
        self._by_id: dict[bytes, Topic] = {}
        self.names: Mapping[str, Topic] = self._by_name.rows  # by full name
        self.ids: Mapping[bytes, Topic] = self._by_id
        self._owner: dict[int, bytes] = {}
        self.changes = 0  # counts what happened to topics since the start; not part of the state

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    @property
    def partitions(self) -> int:
        """The number of partitions of all topics."""
        return len(self._owner)

    def __iter__(self) -> Iterator[Topic]:
        """By full name."""
        return iter(self._by_name)

    def get(self, full_name: str) -> Topic | None:
        found = self._by_name.get(full_name)
        return self._by_name.get(canonical(full_name)) if found is None else found

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def of_stream(self, stream: int) -> Topic | None:
        """The topic of a stream, if it still exists."""
        owner = self._owner.get(stream)
        return None if owner is None else self._by_id[owner]

    def refusal(
        self, command: CreateTopic | AlterTopic | AddPartitions
    ) -> InvalidInput | TopicExists | TopicNotFound | NamespaceNotFound | LimitReached | None:
        """Why a command would be rejected if it were applied now, or None."""
        match command:
            case CreateTopic():
                return self._bad_creation(command)
            case AlterTopic():
                return self._bad_alteration(command)
            case AddPartitions():
                return self._bad_growth(command)

    @applies(CreateTopic)
    def create(
        self, command: CreateTopic, now: Moment
    ) -> Topic | InvalidInput | TopicExists | NamespaceNotFound | LimitReached:
        refusal = self._bad_creation(command)
        if refusal:
            return refusal
        numbers = self._streams.open(command.partitions, command.config)
        full_name = qualify(command.namespace, command.name)
        topic = Topic(
            command.topic_id, command.namespace, full_name, tuple(numbers), command.config, now.time_ms
        )
        self.put(topic)
        return topic

    @applies(DeleteTopic)
    def delete(self, command: DeleteTopic, now: Moment) -> Topic | TopicNotFound | TopicNotEmpty:
        topic = self._by_id.get(command.topic_id)
        if topic is None:
            return TopicNotFound(command.topic_id.hex())
        if command.if_empty:
            count = sum(int(self._streams.records[stream]) for stream in topic.streams)
            if count:
                return TopicNotEmpty(topic.name, count)
        del self._by_id[command.topic_id]
        self.changes += 1
        self._by_name.pop(topic.name)
        self._namespaces.count(topic.namespace, -1, -len(topic.streams))
        for stream in topic.streams:
            del self._owner[stream]
            self._streams.close(stream)
        now.publish(TopicDeletedEvent(topic))
        return topic

    @applies(AlterTopic)
    def alter(self, command: AlterTopic, now: Moment) -> Topic | InvalidInput | TopicNotFound:
        refusal = self._bad_alteration(command)
        if refusal:
            return refusal
        topic = self._by_id[command.topic_id]
        for stream in topic.streams:
            self._streams.configure(stream, command.config)
        altered = replace(topic, config=command.config)
        self.put(altered)
        return altered

    @applies(AddPartitions)
    def add_partitions(
        self, command: AddPartitions, now: Moment
    ) -> Topic | InvalidInput | TopicNotFound | LimitReached:
        refusal = self._bad_growth(command)
        if refusal:
            return refusal
        topic = self._by_id[command.topic_id]
        numbers = self._streams.open(command.total - len(topic.streams), topic.config)
        grown = replace(topic, streams=topic.streams + tuple(numbers))
        self.put(grown)
        now.publish(PartitionsAdded(grown))
        return grown

    def put(self, topic: Topic) -> None:
        """Add a topic, or replace it."""
        self.changes += 1
        before = self._by_id.get(topic.topic_id)
        if before is None:
            self._namespaces.count(topic.namespace, 1, len(topic.streams))
        else:
            self._namespaces.count(topic.namespace, 0, len(topic.streams) - len(before.streams))
        self._by_name.put(topic.name, topic)
        self._by_id[topic.topic_id] = topic
        self._owner.update((stream, topic.topic_id) for stream in topic.streams)

    # State as a whole

    @property
    def digest(self) -> int:
        return self._by_name.digest

    def encode(self) -> list[Topic]:
        return list(self)

    def load(self, state: list[Topic]) -> None:
        for topic in state:
            self.put(topic)
            for stream in topic.streams:
                self._streams.adopt(stream, topic.config)

    # Checks

    def _bad_creation(
        self, command: CreateTopic
    ) -> InvalidInput | TopicExists | NamespaceNotFound | LimitReached | None:
        refusal = _bad_name(command) or _bad_config(command.config) or _bad_partitions(command.partitions)
        if refusal:
            return refusal
        if len(command.topic_id) != TOPIC_ID_BYTES:
            return InvalidInput(f"a topic id has {TOPIC_ID_BYTES} bytes, not {len(command.topic_id)}")
        full_name = qualify(command.namespace, command.name)
        if full_name in self._by_name or command.topic_id in self._by_id:
            return TopicExists(full_name)
        refused = self._namespaces.refuses_topic(command.namespace, command.partitions)
        full = refused or self._by_name.refusal(full_name, limits.TOPICS_MAX, "topics")
        if full is not None:
            return full
        return None if self._streams.room(command.partitions) else _out_of_numbers()

    def _bad_alteration(self, command: AlterTopic) -> InvalidInput | TopicNotFound | None:
        topic = self._by_id.get(command.topic_id)
        if topic is None:
            return TopicNotFound(command.topic_id.hex())
        return _bad_config(command.config) or _bad_change(topic.config, command.config)

    def _bad_growth(self, command: AddPartitions) -> InvalidInput | TopicNotFound | LimitReached | None:
        topic = self._by_id.get(command.topic_id)
        if topic is None:
            return TopicNotFound(command.topic_id.hex())
        refusal = _bad_partitions(command.total)
        if refusal:
            return refusal
        more = command.total - len(topic.streams)
        if more < 0:
            return InvalidConfig(
                f"topic {topic.name!r} has {len(topic.streams)} partitions and cannot have {command.total}"
            )
        if not self._streams.room(more):
            return _out_of_numbers()
        return self._namespaces.refuses_partitions(topic.namespace, more) if more else None


def _hash(topic: Topic) -> int:
    return hash_fields(
        "topic", topic.topic_id, topic.namespace, topic.name, topic.streams, topic.config.changed
    )


def _bad_name(command: CreateTopic) -> InvalidName | None:
    return bad_name(command.name) or bad_namespace(command.namespace)


def _bad_partitions(partitions: int) -> InvalidConfig | None:
    if 1 <= partitions <= limits.PARTITIONS_PER_TOPIC_MAX:
        return None
    return InvalidConfig(f"a topic has 1 to {limits.PARTITIONS_PER_TOPIC_MAX} partitions, not {partitions}")


def _bad_config(config: TopicConfig) -> InvalidConfig | None:
    for name in ("ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms"):
        value = getattr(config, name)
        if not 0 <= value <= limits.OFFSET_MAX:
            return InvalidConfig(f"{name} must be 0 (off) or positive, not {value}")
    return None


def _bad_change(old: TopicConfig, new: TopicConfig) -> InvalidConfig | None:
    if old.type != new.type:
        return InvalidConfig(f"a {old.type} topic cannot become a {new.type}: create another topic")
    # Offsets of an ephemeral stream are assigned in memory, never by the ledger.
    if (old.durability == "ephemeral") != (new.durability == "ephemeral"):
        return InvalidConfig("durability cannot change to or from ephemeral: create another topic")
    return None


def _out_of_numbers() -> LimitReached:
    return LimitReached(f"all {limits.STREAMS_MAX} stream numbers are used, and numbers are never reused")


def bad_name(name: str) -> InvalidName | None:
    """Why this topic name is invalid, or None: names use Kafka's alphabet, and the colon."""
    if _NAME.fullmatch(name) and name not in (".", ".."):
        return None
    return InvalidName(
        f"invalid topic name {name[:64]!r}: use 1 to {limits.NAME_CHARS_MAX} letters, digits and . _ : - "
        "but not only dots"
    )
