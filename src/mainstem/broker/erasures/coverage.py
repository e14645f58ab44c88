"""Which topics an erasure covers: the named one, those that get copies of its records, and those that it got them from.

Records are deleted in the first two kinds. Of the sources, only records that were deleted before lose their bytes: a
copy by a router is read from the bytes of its source, and a dead letter was deleted from its queue.
"""

from __future__ import annotations

from mainstem.broker.namespaces import within
from mainstem.errors import TopicIncompatible
from mainstem.ledger.erasures import ErasedTopic, ErasureBy
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.topics import Topic
from mainstem.tables.copies import iceberg_of

NAMED = "named in the request"
_SOURCE = "source of "  # begins the role of a topic whose own records stay


def deletes_in(topic: ErasedTopic) -> bool:
    """Whether records of the topic are deleted."""
    return not topic.role.startswith(_SOURCE)


def covered_topics(ledger: Ledger, topic: Topic, by: ErasureBy) -> tuple[ErasedTopic, ...]:
    """The named topic first. Raises TopicIncompatible if copies cannot be found."""
    found = {topic.topic_id: ErasedTopic(topic.topic_id, topic.name, NAMED)}
    waiting = [topic]
    while waiting:
        source = waiting.pop(0)
        for copy, role in _copies(ledger, source, by):
            if copy.topic_id not in found:
                found[copy.topic_id] = ErasedTopic(copy.topic_id, copy.name, role)
                waiting.append(copy)
    for one in list(found.values()):
        for source, role in _sources(ledger, one):
            if source.topic_id not in found:
                found[source.topic_id] = ErasedTopic(source.topic_id, source.name, role)
    for one in found.values():
        _check_reachable(ledger, one)
    return tuple(found.values())


def _copies(ledger: Ledger, source: Topic, by: ErasureBy) -> list[tuple[Topic, str]]:
    found: list[tuple[Topic, str]] = []
    for router in ledger.routers.of_topic(source.topic_id):
        copy = ledger.topics.by_id(router.dest)
        if router.source != source.topic_id or copy is None:
            continue
        if by != "where" and not router.preserve_tag:
            raise TopicIncompatible(
                f"router {router.name!r} copies records without their keys to topic {copy.name!r}, so they cannot be "
                "found there by key: erase with --where",
                topic=copy.name,
                reason="router_without_keys",
            )
        found.append((copy, f"copies by router {router.name}"))
    letters = source.config.dead_letter and ledger.topics.get(
        within(source.namespace, source.config.dead_letter)
    )
    if letters:
        found.append((letters, f"dead letters of {source.name}"))
    return found


def _sources(ledger: Ledger, copy: ErasedTopic) -> list[tuple[Topic, str]]:
    found: list[tuple[Topic, str]] = []
    for router in ledger.routers.of_topic(copy.topic_id):
        source = ledger.topics.by_id(router.source)
        if router.dest == copy.topic_id and source is not None:
            found.append((source, f"{_SOURCE}router {router.name}: its own records stay"))
    for topic in ledger.topics:
        letters = topic.config.dead_letter and within(topic.namespace, topic.config.dead_letter)
        if letters == copy.name:
            found.append((topic, f"{_SOURCE}dead letters: its own jobs stay"))
    return found


def _check_reachable(ledger: Ledger, topic: ErasedTopic) -> None:
    copy = ledger.tables.declaration(topic.topic_id).copy
    if copy:
        kind, setting = ("an Iceberg", "iceberg") if iceberg_of(copy) else ("a Delta", "delta")
        raise TopicIncompatible(
            f"topic {topic.name!r} is also delivered to {kind} table, which an erasure does not reach: delete the "
            f'records there, remove the delivery (`"{setting}": ""`), then erase',
            topic=topic.name,
            reason=f"{setting}_table",
        )
