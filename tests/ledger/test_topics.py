from __future__ import annotations

from typing import Any

import pytest

from mainstem import limits
from mainstem.errors import (
    InvalidConfig,
    InvalidInput,
    InvalidName,
    LimitReached,
    TopicExists,
    TopicNotFound,
)
from mainstem.ledger.appends import AppendCode
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.namespaces import AddNamespace, NamespacePolicies
from mainstem.ledger.topics import AddPartitions, AlterTopic, CreateTopic, DeleteTopic

from .writer import Writer

ID = b"i" * 16


def create(name: str, **fields: Any) -> CreateTopic:
    return CreateTopic(name, **({"topic_id": ID, "partitions": 1, "config": TopicConfig()} | fields))


def test_stream_numbers_are_dense_and_never_used_twice() -> None:
    writer = Writer()
    first = writer.create("a", 2)
    second = writer.create("b", 1)
    assert (first.streams, second.streams) == ((0, 1), (2,))
    writer.do(DeleteTopic(first.topic_id))
    again = writer.do(create("a", partitions=2))
    assert again.streams == (3, 4)
    grown = writer.do(AddPartitions(second.topic_id, 3))
    assert grown.streams == (2, 5, 6)


def test_a_recreated_topic_is_another_topic_and_starts_empty() -> None:
    writer = Writer()
    old = writer.create("a")
    writer.append(old.streams[0], 5)
    writer.do(DeleteTopic(old.topic_id))
    new = writer.do(create("a"))
    assert new.topic_id != old.topic_id
    assert writer.state(new.streams[0]) == (0, 0, 0, 0)
    assert writer.append(old.streams[0]) == (-1, AppendCode.NO_STREAM)
    assert writer.ledger.topics.of_stream(old.streams[0]) is None
    assert writer.ledger.topics.of_stream(new.streams[0]) == new


def test_a_deleted_stream_starts_at_its_end() -> None:
    writer = Writer()
    topic = writer.create()
    writer.append(0, 5)
    writer.do(DeleteTopic(topic.topic_id))
    assert writer.state(0) == (5, 5, 0, 0)
    assert not writer.ledger.streams.exists(0)


@pytest.mark.parametrize("name", ["a", "0", "a.b_c:d-e", "_schemas", ".a", "-a", "A" * 255])
def test_names_within_the_alphabet_are_taken(name: str) -> None:
    assert Writer().do(create(name)).name == name


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a\n", "a/b", "é", "a" * 256])
def test_other_names_are_refused(name: str) -> None:
    writer = Writer()
    assert isinstance(writer.do(create(name)), InvalidName)
    assert isinstance(writer.do(create("ok", namespace=name + "/x/y")), InvalidName)
    assert len(writer.ledger.topics) == 0
    assert writer.ledger.streams.count == 0


def test_a_name_is_unique_within_its_namespace_only() -> None:
    writer = Writer()
    writer.create("a")
    assert isinstance(writer.do(create("a")), TopicExists)
    writer.do(AddNamespace("other", NamespacePolicies()))
    other = writer.do(create("a", namespace="other", topic_id=b"o" * 16))
    assert writer.ledger.topics.get("other/a") == other
    assert writer.ledger.topics.get("a") != other


def test_a_topic_id_is_unique_and_of_16_bytes() -> None:
    writer = Writer()
    writer.do(create("a"))
    assert isinstance(writer.do(create("b")), TopicExists)
    assert isinstance(writer.do(create("c", topic_id=b"short")), InvalidInput)


@pytest.mark.parametrize("partitions", [-1, 0, limits.PARTITIONS_PER_TOPIC_MAX + 1, 1 << 63])
def test_partitions_are_bounded(partitions: int) -> None:
    writer = Writer()
    assert isinstance(writer.do(create("a", partitions=partitions)), InvalidConfig)
    topic = writer.create("b")
    assert isinstance(writer.do(AddPartitions(topic.topic_id, partitions)), InvalidConfig)


def test_partitions_never_shrink_and_the_same_number_changes_nothing() -> None:
    writer = Writer()
    topic = writer.create("a", 3)
    assert isinstance(writer.do(AddPartitions(topic.topic_id, 2)), InvalidConfig)
    assert writer.do(AddPartitions(topic.topic_id, 3)) == topic
    assert writer.ledger.streams.count == 3


def test_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOPICS_MAX", 2)
    writer = Writer()
    first = writer.create("a")
    writer.create("b")
    assert isinstance(writer.do(create("c")), LimitReached)
    writer.do(DeleteTopic(first.topic_id))
    assert writer.do(create("c")).streams == (2,)


def test_stream_numbers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAMS_MAX", 3)
    writer = Writer()
    topic = writer.create("a", 2)
    assert isinstance(writer.do(create("b", partitions=2)), LimitReached)
    assert isinstance(writer.do(AddPartitions(topic.topic_id, 4)), LimitReached)
    assert writer.ledger.streams.count == 2


@pytest.mark.parametrize(
    "config",
    [TopicConfig(ttl_ms=-1), TopicConfig(cap_records=-1), TopicConfig(cap_bytes=1 << 63)],
)
def test_settings_out_of_range_are_refused(config: TopicConfig) -> None:
    writer = Writer()
    assert isinstance(writer.do(create("a", config=config)), InvalidConfig)
    topic = writer.create("b")
    assert isinstance(writer.do(AlterTopic(topic.topic_id, config)), InvalidConfig)
    assert writer.ledger.topics.get("b") == topic


def test_the_type_never_changes_nor_whether_it_is_ephemeral() -> None:
    writer = Writer()
    topic = writer.create()
    for config in (TopicConfig(type="queue"), TopicConfig(durability="ephemeral")):
        assert isinstance(writer.do(AlterTopic(topic.topic_id, config)), InvalidConfig)
    altered = writer.do(AlterTopic(topic.topic_id, TopicConfig(durability="memory")))
    assert altered.config.durability == "memory"
    assert writer.ledger.streams.relaxed(0)


def test_commands_on_a_topic_that_is_gone_are_refused() -> None:
    writer = Writer()
    for command in (DeleteTopic(ID), AlterTopic(ID, TopicConfig()), AddPartitions(ID, 2)):
        assert isinstance(writer.do(command), TopicNotFound)


def test_a_topic_remembers_the_ledger_time_it_was_made() -> None:
    writer = Writer()
    writer.time_ms = 5_000
    assert writer.create("a").created_ms == 5_000
    writer.time_ms = 4_000
    assert writer.create("b").created_ms == 5_000


def test_topics_are_listed_by_full_name() -> None:
    writer = Writer()
    for name in ("b", "a", "c"):
        writer.create(name)
    assert [topic.name for topic in writer.ledger.topics] == ["a", "b", "c"]
