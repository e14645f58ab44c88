"""Topics: names, ids and which streams they own. Stream numbers are dense and never used twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mainstem import limits
from mainstem.errors import InvalidConfig, InvalidInput, InvalidName, LimitReached, TopicExists, TopicNotFound
from mainstem.ledger.commands import AddPartitions, AlterTopic, CreateTopic, DeleteTopic
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.names import bad_name
from mainstem.ledger.streams import Streams

TOPIC_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Topic:
    topic_id: bytes
    namespace: str
    name: str
    streams: tuple[int, ...]  # stream number by partition
    config: TopicConfig
    created_ms: int  # ledger time

    @property
    def partitions(self) -> int:
        return len(self.streams)

    @property
    def digest(self) -> int:
        return hash_fields(
            "topic", self.topic_id, self.namespace, self.name, self.streams, self.config.changed
        )


class Topics:
    """The topics that exist. Commands return the topic, or the error that refuses them."""

    __slots__ = ("_by_id", "_by_name", "_owner", "_streams", "digest")

    def __init__(self, streams: Streams) -> None:
        self.digest = 0  # sum of the topics' hashes
        self._streams = streams
        self._by_name: dict[tuple[str, str], Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._owner: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, name: object) -> bool:
        return ("default", name) in self._by_name

    def __iter__(self) -> Iterator[Topic]:
        """By namespace and name."""
        return iter(topic for _, topic in sorted(self._by_name.items()))

    def get(self, name: str, namespace: str = "default") -> Topic | None:
        return self._by_name.get((namespace, name))

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def of_stream(self, stream: int) -> Topic | None:
        """Who owns a stream, if its topic still exists."""
        owner = self._owner.get(stream)
        return None if owner is None else self._by_id[owner]

    def refusal(
        self, command: CreateTopic | AlterTopic | AddPartitions
    ) -> InvalidInput | TopicExists | TopicNotFound | LimitReached | None:
        """Why a command would change nothing if it were applied now."""
        match command:
            case CreateTopic():
                return self._bad_creation(command)
            case AlterTopic():
                return self._bad_alteration(command)
            case AddPartitions():
                return self._bad_growth(command)

    def create(self, command: CreateTopic, time_ms: int) -> Topic | InvalidInput | TopicExists | LimitReached:
        refusal = self._bad_creation(command)
        if refusal:
            return refusal
        numbers = self._streams.open(command.partitions, command.config)
        topic = Topic(
            command.topic_id, command.namespace, command.name, tuple(numbers), command.config, time_ms
        )
        self.put(topic)
        return topic

    def delete(self, command: DeleteTopic) -> Topic | TopicNotFound:
        """The caller forgets what others hold for the streams (producers, cursors)."""
        topic = self._by_id.pop(command.topic_id, None)
        if topic is None:
            return TopicNotFound(command.topic_id.hex())
        del self._by_name[topic.namespace, topic.name]
        self.digest = (self.digest - topic.digest) & MASK
        for stream in topic.streams:
            del self._owner[stream]
            self._streams.close(stream)
        return topic

    def alter(self, command: AlterTopic) -> Topic | InvalidInput | TopicNotFound:
        refusal = self._bad_alteration(command)
        if refusal:
            return refusal
        topic = self._by_id[command.topic_id]
        for stream in topic.streams:
            self._streams.configure(stream, command.config)
        return self._replace(topic, replace(topic, config=command.config))

    def add_partitions(self, command: AddPartitions) -> Topic | InvalidInput | TopicNotFound | LimitReached:
        refusal = self._bad_growth(command)
        if refusal:
            return refusal
        topic = self._by_id[command.topic_id]
        numbers = self._streams.open(command.total - len(topic.streams), topic.config)
        return self._replace(topic, replace(topic, streams=topic.streams + tuple(numbers)))

    def put(self, topic: Topic) -> None:
        """Take a topic in, new or from a checkpoint."""
        self._by_name[topic.namespace, topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._owner.update((stream, topic.topic_id) for stream in topic.streams)
        self.digest = (self.digest + topic.digest) & MASK

    def _replace(self, old: Topic, new: Topic) -> Topic:
        self.digest = (self.digest - old.digest) & MASK
        self.put(new)
        return new

    def _bad_creation(self, command: CreateTopic) -> InvalidInput | TopicExists | LimitReached | None:
        refusal = _bad_name(command) or _bad_config(command.config) or _bad_partitions(command.partitions)
        if refusal:
            return refusal
        if len(command.topic_id) != TOPIC_ID_BYTES:
            return InvalidInput(f"a topic id has {TOPIC_ID_BYTES} bytes, not {len(command.topic_id)}")
        if (command.namespace, command.name) in self._by_name or command.topic_id in self._by_id:
            return TopicExists(command.name)
        if len(self._by_id) >= limits.TOPICS_MAX:
            return LimitReached(f"there are {limits.TOPICS_MAX} topics, the most there may be: delete some")
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
        return None if self._streams.room(more) else _out_of_numbers()


def _bad_name(command: CreateTopic) -> InvalidName | None:
    return bad_name(command.name) or bad_name(command.namespace)


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
    # Offsets of an ephemeral stream are handed out in memory, never by the ledger.
    if (old.durability == "ephemeral") != (new.durability == "ephemeral"):
        return InvalidConfig("a topic cannot become ephemeral or stop being so: create another topic")
    return None


def _out_of_numbers() -> LimitReached:
    return LimitReached(f"{limits.STREAMS_MAX} stream numbers were handed out, and none is used twice")
