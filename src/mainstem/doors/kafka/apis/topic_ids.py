"""Topics that clients name by their id."""

from __future__ import annotations

from uuid import UUID

from mainstem.doors.kafka.transport.api import Call


def name_of(call: Call, topic_id: UUID | None) -> str | None:
    """None if no topic has that id."""
    topic = call.context.broker.streams.get_by_id(topic_id.bytes) if topic_id is not None else None
    return None if topic is None else topic.name


def id_of(call: Call, name: str) -> UUID:
    """The id of an existing topic. Raises TopicNotFound."""
    return UUID(bytes=call.context.broker.topic(name).topic_id)
