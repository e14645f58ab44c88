"""Records: append them as JSON or as one batch, and delete them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import msgspec
from msgspec import UNSET, UnsetType

from mainstem import limits, tracing
from mainstem.api.access import Operation
from mainstem.api.records import DeleteBody, DeleteResult, RecordBody, WriteBody
from mainstem.broker.writes import Header, NewRecords, RecordTime, WriteOutcome
from mainstem.doors.http.routes.matching import parse_match
from mainstem.doors.http.routes.topics import DEFAULT_CONFIG, check_dead_letter, new_config
from mainstem.doors.http.transport.errors import Refusal, invalid, throttled
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import JSON, Response, reply
from mainstem.doors.http.transport.strict_json import DATA_NESTING_MAX, check_fields, too_deep
from mainstem.doors.http.transport.throttle import write_allowed
from mainstem.errors import TopicFull
from mainstem.records.header import record_count

HTTP_NODE_BYTES_MAX = 128
HTTP_META_BYTES_MAX = 16 * limits.KIB
HTTP_META_KEYS_MAX = 64
HTTP_IDEMPOTENCY_KEY_BYTES_MAX = 256

Raw = msgspec.Raw


_NULL = b"null"


_write_body = msgspec.json.Decoder(WriteBody)
_delete_body = msgspec.json.Decoder(DeleteBody)
_object = msgspec.json.Decoder(dict[str, Raw])


async def post_records(request: HttpRequest) -> Response:
    """Append records, all or nothing. Creates a missing topic."""
    bound = limits.HTTP_INGEST_BYTES_MAX
    if request.context.body_bytes > bound:
        raise throttled("ingest_queue", bound, "too many bytes are being written at once: retry")
    body = request.json(_write_body)
    check_fields(WriteBody, request.body, len(body.records))
    key = idempotency_key(body.idempotency_key, request.header(b"idempotency-key"))
    written, append_ms = await write(request, request.topic, body, key, request.chosen_partition)
    return Response(201 if written.created else 200, acknowledgement(request, written, append_ms), (JSON,))


def idempotency_key(in_body: str | None, in_header: bytes | None) -> bytes | None:
    """The body's, or else the header's. Raises Refusal 400 if it is too long."""
    key = in_body.encode() if in_body is not None else in_header
    if key is not None and len(key) > HTTP_IDEMPOTENCY_KEY_BYTES_MAX:
        raise invalid(f"an idempotency key has up to {HTTP_IDEMPOTENCY_KEY_BYTES_MAX} bytes")
    return key or None


async def write(
    request: HttpRequest, topic: str, body: WriteBody, key: bytes | None, partition: int | None
) -> tuple[WriteOutcome, float]:
    """Append what a body says, and how long that took, in ms. Raises Refusal and the broker's errors."""
    records = new_records(body.records, body.node)
    if await _is_new(request, topic):
        request.require_create(topic)
        if body.config is not None:
            request.require_topic(topic, Operation.ALTER_CONFIGS)
    if body.config is not None:
        check_dead_letter(request, topic, body.config)
    if request.broker.rates.stored.active:
        await write_allowed(request, topic, sum(records.sizes), len(records.values))
    appending = perf_counter()
    traceparent = request.header(b"traceparent")
    try:
        if traceparent is None and not tracing.enabled():
            written = await _append(request, topic, body, records, key, partition)
        else:
            with tracing.sending(topic, len(records.values), traceparent) as context:
                traced = _traced(records, context)
                written = await _append(request, topic, body, traced, key, partition)
    except TopicFull:
        raise _full(request, topic, partition or 0) from None
    return written, round((perf_counter() - appending) * 1000, 3)


async def _is_new(request: HttpRequest, topic: str) -> bool:
    """Whether no broker has created the topic."""
    streams = request.broker.streams
    if streams.get(topic) is None:
        await request.broker.refresh()
    return streams.get(topic) is None


async def _append(
    request: HttpRequest,
    topic: str,
    body: WriteBody,
    records: NewRecords,
    key: bytes | None,
    partition: int | None,
) -> WriteOutcome:
    return await request.broker.writes.write(
        topic,
        records,
        partition=partition,
        idempotency_key=key,
        create=body.create,
        config=lambda: new_config(request.broker, topic, body.config or DEFAULT_CONFIG),
        lone=True,
    )


def _traced(records: NewRecords, context: tuple[Header, ...]) -> NewRecords:
    """The records with the context of a trace among their headers."""
    if not context:
        return records
    own = records.headers or [()] * len(records.values)
    return replace(records, headers=[(*headers, *context) for headers in own])


def _full(request: HttpRequest, name: str, partition: int) -> Refusal:
    topic = request.broker.streams.topic(name)
    state = request.broker.states.state(topic, partition)
    return Refusal(
        422,
        "topic_full",
        f"topic {name!r} is at its cap and rejects what exceeds it",
        {
            "topic": name,
            "cap_records": topic.config.cap_records,
            "cap_bytes": topic.config.cap_bytes,
            "head_seq": state.head_seq,
            "earliest_seq": state.earliest_seq,
        },
    )


def acknowledgement(request: HttpRequest, written: WriteOutcome, append_ms: float) -> bytes:
    """A WriteResult. Assembled as bytes: it is the most frequent response."""
    first, last = written.base + 1, written.head_seq
    seqs = ""
    if written.placed:
        last = written.placed[-1].seq
        seqs = (
            f'"seqs":{[one.seq for one in written.placed]},'
            f'"partitions":{[one.partition for one in written.placed]},'
        )
    elif request.flag("return_seqs", True):
        seqs = f'"seqs":[{first}],' if first == last else f'"seqs":{[*range(first, last + 1)]},'
    fsync_ms = append_ms if written.fsync else 0.0
    partition = "" if written.partition is None else f'"partition":{written.partition},'
    return (
        f'{{"topic":"{request.shown_topic}","first_seq":{first},"last_seq":{last},{seqs}'
        f'"head_seq":{last},"count":{written.count},{partition}'
        f'"created":{"true" if written.created else "false"},'
        f'"deduped":{"true" if written.duplicate else "false"},'
        f'"performance":{{"server_total_ms":{request.elapsed_ms()},"wal_append_ms":{append_ms},'
        f'"fsync_ms":{fsync_ms}{request.throttle_field}}}}}'
    ).encode()


def new_records(records: Sequence[RecordBody], node: str | None) -> NewRecords:
    """Raises Refusal 400 for too many, too large, or none."""
    if not records:
        raise invalid("records must hold at least one record")
    if len(records) > limits.HTTP_WRITE_RECORDS_MAX:
        raise Refusal(
            400,
            "batch_too_large",
            f"{len(records)} records in one write: the limit is {limits.HTTP_WRITE_RECORDS_MAX}",
            {"max": limits.HTTP_WRITE_RECORDS_MAX},
        )
    values = [bytes(record.data) for record in records]
    sizes = [*map(len, values)]
    keys = _keys([record.tag for record in records])
    headers = _headers([record.node for record in records], [record.meta for record in records], node, sizes)
    if max(sizes) > 2 * DATA_NESTING_MAX and any(map(too_deep, values)):
        raise invalid(f"data is nested deeper than {DATA_NESTING_MAX} levels")
    if max(sizes) > limits.HTTP_RECORD_BYTES_MAX:
        raise Refusal(
            400,
            "record_too_large",
            f"a record has up to {limits.HTTP_RECORD_BYTES_MAX} bytes of data and meta",
            {"max": limits.HTTP_RECORD_BYTES_MAX},
        )
    times = None
    if any(record.delay_ms or record.ttl_ms for record in records):
        times = [RecordTime(record.delay_ms, record.ttl_ms) for record in records]
    return NewRecords(values, keys, headers, sizes, times)


def _keys(tags: list[str | None]) -> list[bytes | None] | None:
    if tags.count(None) == len(tags):
        return None
    keys = [None if tag is None else tag.encode() for tag in tags]
    if max(len(key) for key in keys if key is not None) > limits.HTTP_TAG_BYTES_MAX:
        raise invalid(f"a tag has up to {limits.HTTP_TAG_BYTES_MAX} bytes")
    return keys


def _headers(
    nodes: list[str | None], metas: list[Raw | UnsetType], default: str | None, sizes: list[int]
) -> list[tuple[Header, ...]] | None:
    """The node and meta of each record; adds the meta to its size."""
    count = len(nodes)
    without_meta = metas.count(UNSET) == count
    if without_meta and nodes.count(None) == count:
        return None if default is None else [(_node_header(default),)] * count
    by_node: dict[str | None, tuple[Header, ...]] = {
        name: (_node_header(name),) for name in {*nodes, default} if name is not None
    }
    by_node[None] = () if default is None else by_node[default]
    own = [by_node[name] for name in nodes]
    if without_meta:
        return own
    for row, meta in enumerate(metas):
        content = _NULL if meta is UNSET else bytes(meta)
        if content != _NULL:
            _check_meta(content)
            sizes[row] += len(content)
            own[row] = (*own[row], ("meta", content))
    return own


def _node_header(node: str) -> Header:
    encoded = node.encode()
    if len(encoded) > HTTP_NODE_BYTES_MAX:
        raise invalid(f"a node has up to {HTTP_NODE_BYTES_MAX} bytes")
    return "node", encoded


def _check_meta(meta: bytes) -> None:
    if len(meta) > HTTP_META_BYTES_MAX:
        raise invalid(f"meta has up to {HTTP_META_BYTES_MAX} bytes")
    # As many colons as keys at least: most metas need not be parsed to know that they are few.
    keys_max = HTTP_META_KEYS_MAX
    if meta.count(b":") > keys_max and meta.startswith(b"{") and len(_object.decode(meta)) > keys_max:
        raise invalid(f"meta has up to {keys_max} keys")


# One record batch


async def post_raw(request: HttpRequest) -> Response:
    """Append one RecordBatch v2, all or nothing."""
    if await _is_new(request, request.topic):
        request.require_create(request.topic)
    config = new_config(request.broker, request.topic, DEFAULT_CONFIG)
    times = max(request.number("delay_ms", 0), 0), max(request.number("ttl_ms", 0), 0)
    if request.broker.rates.stored.active:
        batch = bytearray(request.body)
        await write_allowed(request, request.topic, len(batch), record_count(batch))
    written = await request.broker.writes.write(
        request.topic,
        bytearray(request.body),
        partition=request.chosen_partition,
        idempotency_key=idempotency_key(None, request.header(b"idempotency-key")),
        create=request.flag("create", config.auto_create),
        config=lambda: config,
        time=RecordTime(*times) if any(times) else None,
        lone=True,
    )
    status = 201 if written.created else 200
    return Response(status, acknowledgement(request, written, request.elapsed_ms()), (JSON,))


# Deleting


async def post_delete(request: HttpRequest) -> Response:
    """Delete records before a sequence number, with a tag, or both."""
    body = request.json(_delete_body)
    if body.before_seq is None and body.match is None:
        raise invalid("say what to delete: before_seq, match, or both")
    match = None if body.match is None else parse_match(body.match)
    broker = request.broker
    topic = broker.streams.topic(request.topic)
    await broker.routers.drain(topic.name)
    partitions = request.partitions_of(topic)
    if len(partitions) > 1 and body.before_seq is not None:
        raise invalid(
            f"topic {request.shown_topic!r} has {len(partitions)} partitions, each with its own sequence numbers: "
            "before_seq needs ?partition="
        )
    deleted = 0
    for partition in partitions:
        deleted += await broker.deletes.delete(
            topic, before_seq=body.before_seq, match=match, partition=partition
        )
    states = [broker.states.state(topic, partition) for partition in partitions]
    return reply(
        DeleteResult(
            topic.name,
            deleted,
            states[0].earliest_seq,
            states[0].head_seq,
            sum(state.count for state in states),
            sum(state.bytes for state in states),
            request.performance(),
        )
    )
