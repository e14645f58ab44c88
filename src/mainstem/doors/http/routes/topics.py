"""Topics: make, configure, look at, list, delete."""

from __future__ import annotations

import base64
import binascii
from functools import partial

import msgspec

from mainstem import limits
from mainstem.api.access import AUDIT_TOPIC, Operation, ResourceType
from mainstem.api.topics import (
    CONFIG_BOUNDS,
    PartitionCounts,
    QueueStats,
    TopicConfigBody,
    TopicConfigResponse,
    TopicConfigured,
    TopicDeletion,
    TopicDescription,
    TopicList,
    TopicListing,
)
from mainstem.broker.broker import Broker
from mainstem.broker.namespaces import shown_id, split, within
from mainstem.broker.topics.names import valid_name
from mainstem.broker.topics.service import Topic, TopicConfig
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.errors import TopicExists, TopicIncompatible, TopicNotEmpty, TopicNotFound

_config_body = msgspec.json.Decoder(TopicConfigBody)
DEFAULT_CONFIG = TopicConfigBody()
_NUMBER_MAX = 2**64 - 1

# Configuration fields that the ledger stores under the same name; `durable` is only short for a durability.
_STORED = tuple(name for name in TopicConfigBody.__struct_fields__ if name != "durable")


def applied(body: TopicConfigBody, base: TopicConfig) -> TopicConfig:
    """The configuration of a topic: what the body says, and the settings of other doors as `base` has them."""
    changes = {name: _clamped(name, getattr(body, name)) for name in _STORED}
    changes["durability"] = body.durability or ("fsync" if body.durable else "disk")
    return msgspec.structs.replace(base, **changes)


def new_config(broker: Broker, name: str, body: TopicConfigBody) -> TopicConfig:
    """The configuration of a topic to create. The namespace decides what the body leaves open."""
    config = applied(body, broker.namespaces.default_config(name))
    policies = broker.namespaces.policies(name)
    changes: dict[str, object] = {}
    if policies.durability is not None and body.durability is None and body.durable is None:
        changes["durability"] = policies.durability
    if policies.ttl_ms is not None and not body.ttl_ms:
        changes["ttl_ms"] = policies.ttl_ms
    return msgspec.structs.replace(config, **changes) if changes else config


def _clamped(name: str, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or name == "priority":
        return value
    if value > _NUMBER_MAX:
        raise invalid(f"{name} is a whole number of up to 64 bits")
    low, high = CONFIG_BOUNDS.get(name, (0, limits.OFFSET_MAX))
    return min(max(value, low), high)


def echo(config: TopicConfig) -> TopicConfigResponse:
    """A stored configuration as responses show it."""
    stored = {name: getattr(config, name) for name in _STORED}
    return TopicConfigResponse(durable=config.durability == "fsync", **stored)


def check_dead_letter(request: HttpRequest, topic: str, body: TopicConfigBody) -> None:
    """Raises Refusal 400 unless it names another topic, 403 unless the client may write there."""
    name = body.dead_letter
    if name is None:
        return
    if not valid_name(split(name)[1]):
        raise invalid(f"dead_letter {name[:64]!r} is not a valid topic name")
    if name in (topic, split(topic)[1]) and body.type == "queue":
        raise invalid("dead_letter must be another topic than the queue itself")
    target = within(split(topic)[0], name)
    if not request.may(Operation.ALTER_CONFIGS, ResourceType.TOPIC, target):
        request.require_topic(target, Operation.WRITE)


async def put_topic(request: HttpRequest) -> Response:
    """Create a topic, or replace its whole config."""
    body = request.json(_config_body)
    check_dead_letter(request, request.topic, body)
    topic = request.broker.streams.get(request.topic)
    if topic is None:
        request.require_create(request.topic)
    created = False
    if topic is None:
        try:
            config = new_config(request.broker, request.topic, body)
            await request.broker.make_topic(request.topic, config)
            created = True
        except TopicExists:
            topic = request.broker.streams.get(request.topic)  # another PUT was first: this one changes it
    if topic is not None:
        _check_compatible(topic, body)
        await request.broker.change_topic(topic.name, partial(applied, body))
    config = request.broker.streams.topic(request.topic).config
    configured = TopicConfigured(request.topic, created, echo(config), request.performance())
    return reply(configured, 201 if created else 200)


def _check_compatible(topic: Topic, body: TopicConfigBody) -> None:
    config = topic.config
    if body.type != config.type:
        raise TopicIncompatible(
            f"topic {topic.name!r} is a {config.type} and cannot become a {body.type}",
            topic=topic.name,
            existing_type=config.type,
            requested_type=body.type,
        )
    wanted = applied(body, config).durability
    if (wanted == "ephemeral") != (config.durability == "ephemeral"):
        raise TopicIncompatible(
            f"topic {topic.name!r} has durability {config.durability} and cannot change to {wanted}: "
            "only the offsets of records in the log outlive the process",
            topic=topic.name,
            existing_durability=config.durability,
            requested_durability=wanted,
        )


async def get_topic(request: HttpRequest) -> Response:
    """Get the state and config of a topic."""
    broker = request.broker
    topic = broker.streams.topic(request.topic)
    await broker.routers.drain(topic.name)
    states = [await broker.states.settled(topic, partition) for partition in request.partitions_of(topic)]
    state = states[0]
    if request.flag("touch", True):
        broker.activity.read(topic.topic_id)
    queue = None
    if topic.config.type == "queue":
        queue = QueueStats(*await broker.queues.state(topic.name, request.partition))
    return reply(
        TopicDescription(
            topic=topic.name,
            type=topic.config.type,
            head_seq=state.head_seq,
            earliest_seq=state.earliest_seq,
            next_seq=state.head_seq + 1,
            count=sum(one.count for one in states),
            bytes=sum(one.bytes for one in states),
            config=echo(topic.config),
            effective_priority=broker.activity.priority(topic.topic_id, topic.config),
            last_write_ts=max(
                (one.last_write_ms for one in states if one.last_write_ms is not None), default=None
            ),
            last_read_ts=broker.activity.last_read_ms(topic.topic_id),
            performance=request.performance(),
            queue=queue,
            partitions=[
                PartitionCounts(number, one.head_seq, one.earliest_seq, one.count, one.bytes)
                for number, one in enumerate(states)
            ]
            if len(states) > 1
            else None,
        )
    )


async def list_topics(request: HttpRequest) -> Response:
    """List topics by name, in pages."""
    broker = request.broker
    prefix = (
        (request.text("prefix") or "")
        if request.view is None
        else request.view.prefix(request.text("prefix"))
    )
    after = after_cursor(request.text("cursor"))
    size = max(1, min(request.number("page_size", limits.TOPIC_PAGE_DEFAULT), limits.TOPIC_PAGE_MAX))
    names = [
        topic
        for topic in broker.streams.topics()
        if topic.name.startswith(prefix)
        and topic.name > after
        and request.sees(topic.name)
        and (prefix or topic.name != AUDIT_TOPIC)  # the server's own: shown to those who ask for it
    ]
    page = names[:size]
    touch = request.flag("touch", False)
    rows = [_row(request, topic, touch) for topic in page]
    cursor = cursor_after(page[-1].name) if len(names) > size else None
    return reply(TopicList(rows, request.performance(), cursor))


def _row(request: HttpRequest, topic: Topic, touch: bool) -> TopicListing:
    broker = request.broker
    if touch:
        broker.activity.read(topic.topic_id)
    states = [broker.states.state(topic, partition) for partition in range(len(topic.streams))]
    return TopicListing(
        topic.name,
        states[0].head_seq,
        states[0].earliest_seq,
        sum(state.count for state in states),
        sum(state.bytes for state in states),
        topic.config.durability == "fsync",
        broker.activity.priority(topic.topic_id, topic.config),
    )


class _Cursor(msgspec.Struct):
    after: str


def cursor_after(name: str) -> str:
    """What to send as `cursor` for the page after this name."""
    return base64.b64encode(msgspec.json.encode(_Cursor(name))).decode()


def after_cursor(cursor: str | None) -> str:
    """The name a page begins after. Raises Refusal 400."""
    if not cursor:
        return ""
    try:
        # A plus sign that a client sends as it is means a space in a query.
        plain = cursor.replace(" ", "+")
        return msgspec.json.decode(base64.b64decode(plain, validate=True), type=_Cursor).after
    except (binascii.Error, ValueError, RecursionError):
        raise invalid("the cursor is not the next_cursor of an earlier page") from None


async def delete_topic(request: HttpRequest) -> Response:
    """Delete a topic and its records."""
    broker = request.broker
    topic = broker.streams.get(request.topic)
    removed: list[str] = []
    deleted = False
    if topic is not None:
        if_empty = request.flag("if_empty", False)
        if if_empty:
            await broker.routers.drain(topic.name)
            states = [
                await broker.states.settled(topic, partition) for partition in range(len(topic.streams))
            ]
            if count := sum(state.count for state in states):
                raise TopicNotEmpty(topic.name, count)
        removed = await broker.routers.forget(topic.name)
        if request.view is None:
            removed = [shown_id(name) for name in removed]
        try:
            await broker.delete_topic(topic.name, if_empty=if_empty)
            deleted = True
        except TopicNotFound:
            deleted = False  # another request was first
    return reply(TopicDeletion(request.topic, deleted, removed, request.performance()))
