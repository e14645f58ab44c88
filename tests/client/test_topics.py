"""Topics, groups and queues' settings through the client."""

from __future__ import annotations

import asyncio

import pytest

import mainstem
from mainstem.errors import (
    GroupNotFound,
    InvalidConfig,
    InvalidInput,
    RouterCycle,
    RouterNotFound,
    TopicExists,
    TopicIncompatible,
    TopicNotEmpty,
    TopicNotFound,
)


def test_create_describe_alter_delete(client: mainstem.Client, topic: str) -> None:
    made = client.create_topic(topic, durability="disk", ttl_ms=60_000)
    assert (made.topic, made.count, made.config.ttl_ms, made.config.durability) == (topic, 0, 60_000, "disk")
    with pytest.raises(TopicExists):
        client.create_topic(topic)
    assert client.topic(topic).config.ttl_ms == 60_000  # a refused creation changes nothing
    altered = client.alter_topic(topic, cap_records=5)
    assert (altered.config.ttl_ms, altered.config.cap_records) == (60_000, 5)
    assert client.alter_topic(topic, durable=True).config.durability == "fsync"
    assert client.delete_topic(topic)
    assert not client.delete_topic(topic)
    with pytest.raises(TopicNotFound):
        client.topic(topic)


def test_ensuring_leaves_a_topic_as_it_is(client: mainstem.Client, topic: str) -> None:
    assert client.ensure_topic(topic, cap_records=7).config.cap_records == 7
    assert client.ensure_topic(topic, cap_records=9).config.cap_records == 7
    with pytest.raises(TopicIncompatible):
        client.ensure_topic(topic, type="queue")


def test_settings_by_their_kafka_names(client: mainstem.Client, topic: str) -> None:
    client.create_topic(topic, partitions=2, settings={"retention.ms": "5000"})
    shown = client.topic_settings(topic)
    assert [partition.partition for partition in shown.partitions] == [0, 1]
    assert shown.settings["retention.ms"] == "5000"
    changed = client.change_settings(topic, {"retention.ms": "6000"}, partitions=3)
    assert (len(changed.partitions), changed.settings["retention.ms"]) == (3, "6000")
    with pytest.raises(InvalidInput, match=r"did you mean retention\.ms"):
        client.change_settings(topic, {"retention.mss": "1"}, partitions=4)
    assert len(client.topic_settings(topic).partitions) == 3  # nothing of a refused change is made
    with pytest.raises(TopicNotFound):
        client.change_settings("no-such-topic", {"retention.ms": "1"})


def test_a_topic_with_records_is_kept_if_only_an_empty_one_may_go(
    client: mainstem.Client, topic: str
) -> None:
    client.produce(topic, 1)
    with pytest.raises(TopicNotEmpty) as refused:
        client.delete_topic(topic, if_empty=True)
    assert (refused.value.topic, refused.value.count) == (topic, 1)


async def test_a_list_has_every_page(async_client: mainstem.AsyncClient, topic: str) -> None:
    names = [f"{topic}.{number:04}" for number in range(1005)]
    await asyncio.gather(*(async_client.produce(name, 1) for name in names))
    assert [row.topic for row in await async_client.topics(f"{topic}.")] == names


@pytest.mark.parametrize("name", ["", ".", "..", "a//b", "ä", "a b", "-a", "x" * 300])
def test_hostile_names_reach_no_other_path(client: mainstem.Client, name: str) -> None:
    with pytest.raises((InvalidInput, InvalidConfig)):
        client.create_topic(name)
    with pytest.raises((TopicNotFound, InvalidInput)):
        client.topic(name)


def test_groups_are_shown_moved_and_forgotten(client: mainstem.Client, topic: str) -> None:
    group = f"group/{topic} ä"
    client.create_topic(topic, partitions=2)
    for number in range(10):
        client.produce(topic, number, partition=number % 2)
    client.commit_offsets(group, topic, {0: 2})
    assert group in [row.group for row in client.groups()]
    shown = client.group(group)
    assert (shown.state, shown.members, shown.lag) == ("Empty", [], 8)
    rows = [(row.partition, row.offset, row.end, row.lag) for row in shown.offsets]
    assert rows == [(0, 2, 5, 3), (1, None, 5, 5)]
    planned = client.reset_group(group, topic, to="latest", dry_run=True)
    assert [(move.partition, move.before, move.after) for move in planned] == [(0, 2, 5), (1, None, 5)]
    assert client.group(group).lag == 8
    client.reset_group(group, topic, to="latest")
    assert client.group(group).lag == 0
    client.reset_group(group, topic, to="earliest", partitions=[1])
    assert [row.offset for row in client.group(group).offsets] == [5, 0]
    client.reset_group(group, topic, to=3)
    assert [row.offset for row in client.group(group).offsets] == [3, 3]
    client.reset_group(group, topic, timestamp_ms=1)
    assert [row.offset for row in client.group(group).offsets] == [0, 0]
    client.delete_group(group)
    for gone in (client.group, client.delete_group):
        with pytest.raises(GroupNotFound):
            gone(group)


def test_a_group_is_put_nowhere_it_cannot_be(client: mainstem.Client, topic: str) -> None:
    with pytest.raises(TopicNotFound):
        client.reset_group("g", topic, to="earliest")
    client.create_topic(topic)
    with pytest.raises(InvalidInput):
        client.reset_group("g", topic, to="somewhere")
    assert [move.after for move in client.reset_group("g", topic, to=99, dry_run=True)] == [0]


def test_routers_copy_and_refuse_circles(client: mainstem.Client, topic: str) -> None:
    source, dest = f"{topic}.a", f"{topic}.b"
    made = client.put_router(f"{topic}>", source, dest, filter="eu-*")
    assert (made.created, made.source, made.dest, made.filter) == (
        True,
        source,
        dest,
        ["tag", "Glob", "eu-*"],
    )
    client.produce_many(source, [1, 2], keys=["eu-1", "us-1"])
    assert [record.value for record in client.read(dest)] == [1]  # type: ignore[union-attr]
    assert client.router(f"{topic}>").forwarded_total == 1
    assert [row.router for row in client.routers(source=source)] == [f"{topic}>"]
    with pytest.raises(RouterCycle) as refused:
        client.put_router("back", dest, source)
    assert {source, dest} <= set(refused.value.cycle)
    assert client.delete_router(f"{topic}>")
    assert not client.delete_router(f"{topic}>")
    with pytest.raises(RouterNotFound):
        client.router(f"{topic}>")
