"""Topics: make, configure, look at, list, delete."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mainstem import limits
from mainstem.broker.names import valid_name
from mainstem.broker.partition_summaries import PartitionSummary
from mainstem.doors.http.errors import invalid
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply
from mainstem.errors import TopicExists, TopicIncompatible, TopicNotEmpty, TopicNotFound
from mainstem.ledger.config import Durability, TopicConfig
from mainstem.ledger.topics import Topic

U64 = Annotated[int, Meta(ge=0)]  # larger ones than 64 bits are clamped like every other bound
I32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]

_LEASE_MS = (100, 86_400_000)
_JITTER_MS_MAX = 5_000


class ConfigBody(msgspec.Struct, frozen=True):
    """A topic's config as clients write it; what is left out is the default."""

    type: Literal["log", "queue"] = "log"
    ttl_ms: U64 = 0
    cap_records: U64 = 0
    cap_bytes: U64 = 0
    discard: Literal["old", "reject"] = "old"
    durable: bool | None = None
    durability: Durability | None = None
    priority: I32 | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: U64 = 120_000
    dedupe_node: bool = True
    lease_ms: U64 = 30_000
    claim_jitter_ms: U64 = 0
    max_deliveries: U64 = 0
    dead_letter: str | None = None
    leases_durable: bool = False

    def over(self, base: TopicConfig) -> TopicConfig:
        """The config of a topic: these settings, and whatever other doors set beside them."""
        low, high = _LEASE_MS
        return msgspec.structs.replace(
            base,
            type=self.type,
            durability=self.durability or ("fsync" if self.durable else "disk"),
            ttl_ms=_bounded(self.ttl_ms),
            cap_records=_bounded(self.cap_records),
            cap_bytes=_bounded(self.cap_bytes),
            discard=self.discard,
            priority=self.priority,
            auto_priority=self.auto_priority,
            auto_create=self.auto_create,
            idempotency_window_ms=_bounded(self.idempotency_window_ms),
            dedupe_node=self.dedupe_node,
            lease_ms=min(max(self.lease_ms, low), high),
            claim_jitter_ms=min(self.claim_jitter_ms, _JITTER_MS_MAX),
            max_deliveries=_bounded(self.max_deliveries),
            dead_letter=self.dead_letter,
            leases_durable=self.leases_durable,
        )


def _bounded(value: int) -> int:
    """Beyond what a ledger counts to, every bound is as good as none reached."""
    return min(value, limits.OFFSET_MAX)


_config_body = msgspec.json.Decoder(ConfigBody)
DEFAULT_BODY = ConfigBody()


def echo(config: TopicConfig) -> dict[str, object]:
    """The 17 keys of a config."""
    return {
        "type": config.type,
        "ttl_ms": config.ttl_ms,
        "cap_records": config.cap_records,
        "cap_bytes": config.cap_bytes,
        "discard": config.discard,
        "durable": config.durability == "fsync",
        "durability": config.durability,
        "priority": config.priority,
        "auto_priority": config.auto_priority,
        "auto_create": config.auto_create,
        "idempotency_window_ms": config.idempotency_window_ms,
        "dedupe_node": config.dedupe_node,
        "lease_ms": config.lease_ms,
        "claim_jitter_ms": config.claim_jitter_ms,
        "max_deliveries": config.max_deliveries,
        "dead_letter": config.dead_letter,
        "leases_durable": config.leases_durable,
    }


def check_dead_letter(topic: str, body: ConfigBody) -> None:
    """Raises Refusal 400 unless it names another topic."""
    name = body.dead_letter
    if name is None:
        return
    if not valid_name(name):
        raise invalid(f"dead_letter {name[:64]!r} is no topic name")
    if name == topic and body.type == "queue":
        raise invalid("dead_letter must be another topic than the queue itself")


async def put_topic(request: HttpRequest) -> Response:
    """Make a topic, or replace its whole config."""
    body = request.json(_config_body)
    check_dead_letter(request.topic, body)
    topic = request.broker.streams.get(request.topic)
    created = False
    if topic is None:
        try:
            config = body.over(request.broker.options.default_config)
            await request.broker.make_topic(request.topic, config)
            created = True
        except TopicExists:
            topic = request.broker.streams.get(request.topic)  # another PUT was first: this one changes it
    if topic is not None:
        _check_compatible(topic, body)
        await request.broker.change_topic(topic.name, body.over)
    config = request.broker.streams.topic(request.topic).config
    return reply(
        {
            "topic": request.topic,
            "created": created,
            "config": echo(config),
            "performance": request.performance(),
        },
        201 if created else 200,
    )


def _check_compatible(topic: Topic, body: ConfigBody) -> None:
    config = topic.config
    if body.type != config.type:
        raise TopicIncompatible(
            f"topic {topic.name!r} is a {config.type} and cannot become a {body.type}",
            topic=topic.name,
            existing_type=config.type,
            requested_type=body.type,
        )
    wanted = body.over(config).durability
    if (wanted == "ephemeral") != (config.durability == "ephemeral"):
        raise TopicIncompatible(
            f"topic {topic.name!r} has durability {config.durability} and cannot change to {wanted}: "
            "only the offsets of records in the log outlive the process",
            topic=topic.name,
            existing_durability=config.durability,
            requested_durability=wanted,
        )


async def get_topic(request: HttpRequest) -> Response:
    """A topic's state and config."""
    broker = request.broker
    topic = broker.streams.topic(request.topic)
    await broker.routing.drain(topic.name)
    state = await broker.states.settled(topic, request.partition)
    if request.flag("touch", True):
        broker.activity.read(topic.topic_id)
    answer: dict[str, object] = {
        "topic": topic.name,
        "type": topic.config.type,
        "head_seq": state.head_seq,
        "earliest_seq": state.earliest_seq,
        "next_seq": state.head_seq + 1,
        "count": state.count,
        "bytes": state.bytes,
        "config": echo(topic.config),
        "effective_priority": broker.activity.priority(topic.topic_id, topic.config),
        "last_write_ts": state.last_write_ms,
        "last_read_ts": broker.activity.last_read_ms(topic.topic_id),
    }
    if topic.config.type == "queue":
        counts = await broker.queues.state(topic.name, request.partition)
        answer["queue"] = counts._asdict()
    answer["performance"] = request.performance()
    return reply(answer)


async def list_topics(request: HttpRequest) -> Response:
    """All topics by name, in pages."""
    broker = request.broker
    prefix = request.text("prefix") or ""
    after = after_cursor(request.text("cursor"))
    size = max(1, min(request.number("page_size", limits.TOPIC_PAGE_DEFAULT), limits.TOPIC_PAGE_MAX))
    names = [
        topic
        for topic in broker.streams.topics()
        if topic.name.startswith(prefix) and topic.name > after and request.key.allows(topic.name)
    ]
    page = names[:size]
    touch = request.flag("touch", False)
    answer: dict[str, object] = {"topics": [_row(request, topic, touch) for topic in page]}
    if len(names) > size:
        answer["next_cursor"] = cursor_after(page[-1].name)
    answer["performance"] = request.performance()
    return reply(answer)


def _row(request: HttpRequest, topic: Topic, touch: bool) -> dict[str, object]:
    broker = request.broker
    if touch:
        broker.activity.read(topic.topic_id)
    state: PartitionSummary = broker.states.state(topic)
    return {
        "topic": topic.name,
        "head_seq": state.head_seq,
        "earliest_seq": state.earliest_seq,
        "count": state.count,
        "bytes": state.bytes,
        "durable": topic.config.durability == "fsync",
        "effective_priority": broker.activity.priority(topic.topic_id, topic.config),
    }


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
    except (binascii.Error, ValueError):
        raise invalid("the cursor is not one that a page before gave out") from None


async def delete_topic(request: HttpRequest) -> Response:
    """Delete a topic and its records."""
    broker = request.broker
    topic = broker.streams.get(request.topic)
    removed: list[str] = []
    deleted = False
    if topic is not None:
        if request.flag("if_empty", False):
            state = await broker.states.settled(topic, 0)
            count = sum(
                broker.states.state(topic, partition).count for partition in range(1, len(topic.streams))
            )
            if state.count + count:
                raise TopicNotEmpty(topic.name, state.count + count)
        removed = await broker.routing.forget(topic.name)
        try:
            await broker.delete_topic(topic.name)
            deleted = True
        except TopicNotFound:
            deleted = False  # another request was first
    return reply(
        {
            "topic": request.topic,
            "deleted": deleted,
            "routers_removed": removed,
            "performance": request.performance(),
        }
    )
