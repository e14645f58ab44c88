"""The commands of clients as broker calls, and their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mainstem.broker.access.rules import Operation
from mainstem.broker.schemas.topic_schemas import TopicSchema
from mainstem.broker.streams import stream_of
from mainstem.broker.subscriptions.service import SubscriptionType
from mainstem.broker.topics.service import Topic
from mainstem.doors.pulsar import transactions
from mainstem.doors.pulsar.consumers import PulsarConsumer
from mainstem.doors.pulsar.errors import PulsarRefusal, ServerError
from mainstem.doors.pulsar.producers import SHARED, PulsarProducer
from mainstem.doors.pulsar.topic_names import (
    NON_PERSISTENT,
    PERSISTENT,
    ledger_of,
    namespace_of,
    position_of,
)
from mainstem.doors.pulsar.topic_names import topic_urls as topic_urls
from mainstem.doors.pulsar.topic_watchers import (
    hash_of_names,
    watch_topic_list,
    watch_topic_list_close,
)
from mainstem.doors.pulsar.wire import simple_frame
from mainstem.errors import MainstemError, TopicNotFound, TopicTerminated

if TYPE_CHECKING:
    from mainstem.doors.pulsar.connection import Opening, PulsarConnection

Handler = Callable[["PulsarConnection", Any], Awaitable[None]]

_LOOKUP_CONNECT, _LOOKUP_FAILED = 1, 2
_METADATA_SUCCESS, _METADATA_FAILED = 0, 1
_EARLIEST = 1  # the initial position of a subscription
_NO_ENTRY = (1 << 64) - 1  # entry -1: the topic is empty
_ORDERED_TYPES = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
_STICKY = 1  # the mode of Key_Shared consumers that name their hash ranges
_NO_SCHEMAS = (0, 21)  # the types of bytes without a schema, and of consumers that take any schema
PULSAR_PRODUCERS_MAX = 10_000  # of a connection
PULSAR_CONSUMERS_MAX = 10_000  # of a connection
_MS_MAX = 1 << 52


# Topics


async def partitioned_metadata(connection: PulsarConnection, request: Any) -> None:
    lookup, caller = connection.context.lookup, connection.caller
    if transactions.is_coordinator(request.topic):
        partitions = 1
    else:
        name, _ = lookup.find(request.topic, caller)
        caller.check(Operation.DESCRIBE, name.name)
        create = request.metadata_auto_creation_enabled
        partitions = await lookup.partitions(request.topic, caller, create=create)
    connection.write(
        simple_frame(
            "partitioned_metadata_response",
            request_id=request.request_id,
            partitions=partitions,
            response=_METADATA_SUCCESS,
        )
    )


async def lookup_topic(connection: PulsarConnection, request: Any) -> None:
    lookup, caller = connection.context.lookup, connection.caller
    name, _ = lookup.find(request.topic, caller)
    if not transactions.is_coordinator(request.topic):
        caller.check(Operation.DESCRIBE, name.name)
    if request.advertised_listener_name:
        raise PulsarRefusal(
            ServerError.NOT_ALLOWED, f"the broker has no listener named {request.advertised_listener_name!r}"
        )
    url = lookup.broker_url(name.name)
    connection.write(
        simple_frame(
            "lookup_response",
            request_id=request.request_id,
            response=_LOOKUP_CONNECT,
            authoritative=True,
            **{"brokerServiceUrlTls" if url.startswith("pulsar+ssl") else "brokerServiceUrl": url},
        )
    )


async def get_topics_of_namespace(connection: PulsarConnection, request: Any) -> None:
    caller = connection.caller
    namespace = namespace_of(request.namespace, caller.view)
    wanted = {0: (PERSISTENT,), 1: (NON_PERSISTENT,)}.get(request.mode, (PERSISTENT, NON_PERSISTENT))
    names = sorted(
        url
        for topic in connection.context.broker.namespaces.topics(namespace)
        if caller.may(Operation.DESCRIBE, topic.name)
        for url in topic_urls(topic)
        if url.partition("://")[0] in wanted
    )
    state = hash_of_names(names)
    changed = not request.HasField("topics_hash") or request.topics_hash != state
    connection.write(
        simple_frame(
            "get_topics_of_namespace_response",
            request_id=request.request_id,
            topics=names if changed else [],
            filtered=False,
            topics_hash=state,
            changed=changed,
        )
    )


# PulsarProducers


async def producer(connection: PulsarConnection, request: Any) -> None:
    existing = connection.producers.get(request.producer_id)
    if existing is None and len(connection.producers) >= PULSAR_PRODUCERS_MAX:
        raise PulsarRefusal(
            ServerError.NOT_ALLOWED,
            f"the connection has {PULSAR_PRODUCERS_MAX} producers, which is the limit",
        )
    if existing is not None and not existing.closed and not connection.opens("producer", request.producer_id):
        existing.request_id = request.request_id
        answer_producer(connection, existing)
        return
    with connection.opening("producer", request.producer_id) as opening:
        await admit_producer(connection, await _opened_producer(connection, request, opening))


async def _opened_producer(connection: PulsarConnection, request: Any, opening: Opening) -> PulsarProducer:
    context, caller = connection.context, connection.caller
    name, topic = await context.lookup.open(request.topic, caller)
    caller.check(Operation.WRITE, topic.name)
    if request.initial_subscription_name:
        caller.check(Operation.READ, topic.name)
        caller.check_subscription(topic.name, request.initial_subscription_name)
    _check_served(connection, topic)
    stream = stream_of(topic, max(name.partition, 0))
    if topic.config.terminated:
        raise TopicTerminated(topic.name)
    await context.broker.backlogs.check(topic, stream)
    producer_name = request.producer_name or context.producers.new_name(context.new_token())
    created = PulsarProducer(
        connection,
        request.producer_id,
        producer_name,
        topic,
        name.partition,
        request.epoch,
        details=connection.details(request.metadata),
        mode=request.producer_access_mode or SHARED,
    )
    created.request_id = request.request_id
    if request.HasField("schema"):
        created.schema_version = await _register_schema(connection, topic, request.schema)
    if request.initial_subscription_name:
        end = context.broker.streams.bounds(created.stream)[1]
        await context.broker.subscriptions.create(
            topic, max(name.partition, 0), request.initial_subscription_name, end
        )
    epoch = await _topic_epoch(connection, created.stream, request)
    opening.check()
    context.producers.check_count(created, topic.config.producers_max)
    context.producers.add(created, created.mode, epoch)
    connection.producers[created.id] = created
    context.metrics.producers += 1
    return created


async def _topic_epoch(connection: PulsarConnection, stream: int, request: Any) -> int | None:
    """The epoch that an exclusive producer had before. A client that names one that nobody got gets a new one: its own
    could be so high that there is none for those who come later."""
    broker = connection.context.broker
    epoch: int | None = request.topic_epoch if request.HasField("topic_epoch") else None
    if epoch is not None and epoch > broker.exclusive_producers.epoch(stream):
        await broker.barrier()  # another broker may have given it
        if epoch > broker.exclusive_producers.epoch(stream):
            return None
    return epoch


async def admit_producer(connection: PulsarConnection, created: PulsarProducer) -> None:
    """Answer PRODUCER, once the epoch of an exclusive producer is durable. Raises what `make_durable` raises."""
    try:
        await connection.context.producers.make_durable(created)
    except MainstemError:
        if connection.producers.get(created.id) is created:
            del connection.producers[created.id]
            connection.context.metrics.producers -= 1
        raise
    answer_producer(connection, created)


def answer_producer(connection: PulsarConnection, created: PulsarProducer) -> None:
    fields: dict[str, object] = {
        "request_id": created.request_id,
        "producer_name": created.name,
        "last_sequence_id": created.last_sequence(connection.context.broker.appends),
        "producer_ready": created.ready,
        "schema_version": created.schema_version or b"",
    }
    if created.topic_epoch is not None:
        fields["topic_epoch"] = created.topic_epoch
    connection.write(simple_frame("producer_success", **fields))


async def close_producer(connection: PulsarConnection, request: Any) -> None:
    connection.close_opening("producer", request.producer_id)
    found = connection.producers.pop(request.producer_id, None)
    if found is not None:
        connection.context.metrics.producers -= 1
        connection.context.producers.remove(found)
    _succeed(connection, request)


def _check_served(connection: PulsarConnection, topic: Topic) -> None:
    if not connection.context.lookup.serves(topic.name):
        raise PulsarRefusal(
            ServerError.SERVICE_NOT_READY, f"another broker serves topic {topic.name!r}: look it up again"
        )


# Consumers


async def subscribe(connection: PulsarConnection, request: Any) -> None:
    if request.consumer_id in connection.consumers:
        _succeed(connection, request)
        return
    if len(connection.consumers) >= PULSAR_CONSUMERS_MAX:
        raise PulsarRefusal(
            ServerError.NOT_ALLOWED,
            f"the connection has {PULSAR_CONSUMERS_MAX} consumers, which is the limit",
        )
    if not 0 <= request.subType < len(SubscriptionType):
        raise PulsarRefusal(ServerError.NOT_ALLOWED, f"unknown type of subscription {request.subType}")
    with connection.opening("consumer", request.consumer_id) as opening:
        await _subscribe(connection, request, opening)


async def _subscribe(connection: PulsarConnection, request: Any, opening: Opening) -> None:
    context, caller = connection.context, connection.caller
    broker = context.broker
    if request.read_compacted and request.subType not in _ORDERED_TYPES:
        raise PulsarRefusal(
            ServerError.NOT_ALLOWED, "only exclusive and failover subscriptions read a compacted view"
        )
    name, topic = await context.lookup.open(request.topic, caller, create=request.force_topic_creation)
    caller.check(Operation.READ, topic.name)
    partition = max(name.partition, 0)
    stream = stream_of(topic, partition)
    stored = broker.subscriptions.is_stored(stream, request.subscription)
    if request.durable or stored:
        caller.check_subscription(topic.name, request.subscription)
    if (
        stored and not request.durable
    ):  # a reader chooses a name of its own: it would keep the consumers of that out
        raise PulsarRefusal(
            ServerError.NOT_ALLOWED,
            f"a durable subscription is named {request.subscription!r}: use another name",
        )
    _check_served(connection, topic)
    if request.HasField("schema"):
        await _register_schema(connection, topic, request.schema, reads=True)
    broker.subscriptions.check_limits(topic, stream, request.subscription)
    durable = request.durable and topic.config.durability != "ephemeral"
    known = stored if durable else broker.subscriptions.exists(stream, request.subscription)
    start = 0 if known else await _start_offset(connection, topic, stream, request)
    properties = tuple(
        sorted(
            (row.key.decode(errors="replace"), row.value.decode(errors="replace"))
            for row in request.subscription_properties
        )
    )
    subscription = await broker.subscriptions.open(
        topic,
        name.partition,
        request.subscription,
        start=start,
        durable=request.durable,
        properties=properties,
        compacted=request.read_compacted,
    )
    consumer = PulsarConsumer(
        connection,
        request.consumer_id,
        topic,
        name.partition,
        subscription,
        request.consumer_name or context.new_token()[:10],
        priority=request.priority_level,
        ranges=_ranges(request),
        epoch=request.consumer_epoch if request.HasField("consumer_epoch") else None,
        details=connection.details(request.metadata),
    )
    type = SubscriptionType(request.subType)
    try:
        opening.check()
        subscription.check_join(consumer.member, type)
    except MainstemError:
        await broker.subscriptions.leave(subscription, None)
        raise
    connection.consumers[consumer.id] = consumer
    context.metrics.consumers += 1
    # The answer comes before the first message, and before the news of which consumer is active.
    _succeed(connection, request)
    subscription.limit(topic.config, consumer.member)
    subscription.join(consumer.member, type)


async def _start_offset(connection: PulsarConnection, topic: Topic, stream: int, request: Any) -> int:
    """Where a new subscription begins."""
    streams = connection.context.broker.streams
    first, end = streams.bounds(stream)
    if request.start_message_rollback_duration_sec:
        since = connection.context.broker.clock.now_ms() - request.start_message_rollback_duration_sec * 1000
        found = await streams.at_time(stream, since)
        return end if found is None else found[0]
    if request.HasField("start_message_id"):
        position = position_of(request.start_message_id, ledger_of(topic))
        if position.latest:
            return end
        if position.earliest:
            return first
        return min(max(position.entry, first), end)  # the client skips what it did not ask for
    return first if request.initialPosition == _EARLIEST else end


def _ranges(request: Any) -> tuple[tuple[int, int], ...] | None:
    meta = request.keySharedMeta
    if request.subType != SubscriptionType.KEY_SHARED or meta.keySharedMode != _STICKY:
        return None
    return tuple((one.start, one.end) for one in meta.hashRanges)


async def unsubscribe(connection: PulsarConnection, request: Any) -> None:
    consumer = _consumer(connection, request)
    subscription = consumer.subscription
    others = [one for one in subscription.consumers if one is not consumer.member]
    if others and not request.force:
        raise PulsarRefusal(
            ServerError.CONSUMER_BUSY, "the subscription has other consumers: close them first"
        )
    subscription.leave(consumer.member)
    _forget(connection, consumer)
    subscriptions = connection.context.broker.subscriptions
    if subscription.durable:
        await subscriptions.delete(consumer.topic, max(consumer.partition, 0), subscription.name, force=True)
    else:
        await subscriptions.leave(subscription, consumer.member)
    _succeed(connection, request)


async def close_consumer(connection: PulsarConnection, request: Any) -> None:
    connection.close_opening("consumer", request.consumer_id)
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is not None:
        _forget(connection, consumer)
        await leave(connection, consumer)
        await consumer.subscription.settled()
    _succeed(connection, request)


async def leave(connection: PulsarConnection, consumer: PulsarConsumer) -> None:
    """A consumer goes, with its connection or before it."""
    await connection.context.broker.subscriptions.leave(consumer.subscription, consumer.member)


def _forget(connection: PulsarConnection, consumer: PulsarConsumer) -> None:
    if connection.consumers.pop(consumer.id, None) is not None:
        connection.context.metrics.consumers -= 1


def redeliver(connection: PulsarConnection, request: Any) -> None:
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is None:
        return
    if request.HasField("consumer_epoch"):
        consumer.epoch = request.consumer_epoch
    bases = [one.entryId for one in request.message_ids if one.ledgerId == consumer.ledger]
    consumer.subscription.redeliver(consumer.member, bases if request.message_ids else None)


async def seek(connection: PulsarConnection, request: Any) -> None:
    consumer = _consumer(connection, request)
    streams = connection.context.broker.streams
    stream = consumer.subscription.stream
    first, end = streams.bounds(stream)
    if request.HasField("message_id"):
        position = position_of(request.message_id, consumer.ledger)
        if position.latest:
            offset = end
        elif position.earliest:
            offset = first
        else:
            offset = min(max(position.entry + max(position.batch_index, 0), first), end)
    elif request.HasField("message_publish_time"):
        found = await streams.at_time(stream, min(request.message_publish_time, _MS_MAX))
        offset = end if found is None else found[0]
    else:
        raise PulsarRefusal(ServerError.METADATA, "SEEK needs a message id or a time")
    await connection.context.broker.subscriptions.move(
        consumer.topic, max(consumer.partition, 0), consumer.subscription.name, offset
    )
    _succeed(connection, request)


async def get_last_message_id(connection: PulsarConnection, request: Any) -> None:
    consumer = _consumer(connection, request)
    streams = connection.context.broker.streams
    first, end = streams.bounds(consumer.subscription.stream)
    entry = await consumer.subscription.reader.last(first, end)
    last: dict[str, object] = {"ledgerId": consumer.ledger, "entryId": _NO_ENTRY}
    if entry is not None:
        last["entryId"] = entry.base
        if entry.batched:
            last["batch_index"] = entry.last - entry.base
    mark = consumer.subscription.acked.mark
    marked: dict[str, object] = {"ledgerId": consumer.ledger, "entryId": mark - 1 if mark else _NO_ENTRY}
    if consumer.partition >= 0:
        last["partition"] = consumer.partition
    connection.write(
        simple_frame(
            "get_last_message_id_response",
            request_id=request.request_id,
            last_message_id=last,
            consumer_mark_delete_position=marked,
        )
    )


async def consumer_stats(connection: PulsarConnection, request: Any) -> None:
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is None:
        connection.write(
            simple_frame(
                "consumer_stats_response",
                request_id=request.request_id,
                error_code=ServerError.CONSUMER_NOT_FOUND,
                error_message="no such consumer",
            )
        )
        return
    subscription, member = consumer.subscription, consumer.member
    end = connection.context.broker.streams.bounds(subscription.stream)[1]
    connection.write(
        simple_frame(
            "consumer_stats_response",
            request_id=request.request_id,
            consumerName=member.name,
            availablePermits=max(member.permits, 0),
            unackedMessages=member.unacked,
            blockedConsumerOnUnackedMsgs=not member.takes_more and member.has_permits,
            address=connection.peer,
            type=_TYPE_NAMES[subscription.type],
            msgBacklog=subscription.backlog(end),
        )
    )


_TYPE_NAMES = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
    SubscriptionType.KEY_SHARED: "Key_Shared",
}


def type_name(type: SubscriptionType | None) -> str:
    return "None" if type is None else _TYPE_NAMES[type]


# Schemas


async def get_schema(connection: PulsarConnection, request: Any) -> None:
    topic = _known_topic(connection, request.topic)
    versions = connection.context.broker.topic_schemas.versions(topic)
    number = len(versions) - 1
    if request.HasField("schema_version") and not request.schema_version:
        # The version in the response to a producer without a schema. Go's client asks for it to learn how to decode
        # bytes.
        no_schema = {"name": "Bytes", "type": _NO_SCHEMAS[0], "schema_data": b""}
        connection.write(simple_frame("get_schema_response", request_id=request.request_id, schema=no_schema))
        return
    if request.schema_version:
        number = int.from_bytes(request.schema_version, "big", signed=len(request.schema_version) == 8)
    if not 0 <= number < len(versions):
        connection.write(
            simple_frame(
                "get_schema_response",
                request_id=request.request_id,
                error_code=ServerError.TOPIC_NOT_FOUND,
                error_message="the topic has no such schema",
            )
        )
        return
    schema = versions[number]
    connection.write(
        simple_frame(
            "get_schema_response",
            request_id=request.request_id,
            schema={
                "name": schema.name,
                "type": schema.type,
                "schema_data": schema.data,
                "properties": [
                    {"key": key.encode(), "value": value.encode()} for key, value in schema.properties
                ],
            },
            schema_version=_version(number),
        )
    )


async def get_or_create_schema(connection: PulsarConnection, request: Any) -> None:
    topic = _known_topic(connection, request.topic)
    connection.caller.check(Operation.WRITE, topic.name)
    version = await _register_schema(connection, topic, request.schema)
    connection.write(
        simple_frame(
            "get_or_create_schema_response", request_id=request.request_id, schema_version=version or b""
        )
    )


def _known_topic(connection: PulsarConnection, text: str) -> Topic:
    name, topic = connection.context.lookup.find(text, connection.caller)
    connection.caller.check(Operation.DESCRIBE, name.name)
    if topic is None:
        raise TopicNotFound(text)
    return topic


async def _register_schema(
    connection: PulsarConnection, topic: Topic, schema: Any, *, reads: bool = False
) -> bytes | None:
    """Returns the version. `reads`: it is the schema of a consumer."""
    if schema.type in _NO_SCHEMAS:
        return None
    properties = tuple(
        sorted(
            (row.key.decode(errors="replace"), row.value.decode(errors="replace"))
            for row in schema.properties
        )
    )
    number = await connection.context.broker.topic_schemas.register(
        topic, TopicSchema(schema.name, schema.type, schema.schema_data, properties), reads=reads
    )
    return _version(number)


def _version(number: int) -> bytes:
    return number.to_bytes(8, "big")


# Answers


def _consumer(connection: PulsarConnection, request: Any) -> PulsarConsumer:
    consumer = connection.consumers.get(request.consumer_id)
    if consumer is None:
        raise PulsarRefusal(ServerError.CONSUMER_NOT_FOUND, "no such consumer")
    consumer.check_rights()
    return consumer


def _succeed(connection: PulsarConnection, request: Any) -> None:
    connection.write(simple_frame("success", request_id=request.request_id))


_TRANSACTIONAL = (
    "tc_client_connect",
    "new_txn",
    "add_partition_to_txn",
    "add_subscription_to_txn",
    "end_txn",
)


def error_frame(command: str, request_id: int, code: ServerError, message: str) -> bytes:
    """An error in the answer that the clients of a command wait for."""
    if command == "partitioned_metadata":
        if code is ServerError.INVALID_TOPIC_NAME:
            code = (
                ServerError.NOT_ALLOWED
            )  # the C++ client repeats its request on the other code, until its timeout
        return simple_frame(
            "partitioned_metadata_response",
            request_id=request_id,
            response=_METADATA_FAILED,
            error=code,
            message=message,
        )
    if command == "lookup":
        return simple_frame(
            "lookup_response", request_id=request_id, response=_LOOKUP_FAILED, error=code, message=message
        )
    if command in _TRANSACTIONAL:
        return simple_frame(f"{command}_response", request_id=request_id, error=code, message=message)
    if command in ("get_schema", "get_or_create_schema"):
        return simple_frame(
            f"{command}_response", request_id=request_id, error_code=code, error_message=message
        )
    return simple_frame("error", request_id=request_id, error=code, message=message)


HANDLERS: dict[str, Handler] = {
    "partitioned_metadata": partitioned_metadata,
    "lookup": lookup_topic,
    "get_topics_of_namespace": get_topics_of_namespace,
    "producer": producer,
    "close_producer": close_producer,
    "subscribe": subscribe,
    "unsubscribe": unsubscribe,
    "close_consumer": close_consumer,
    "seek": seek,
    "get_last_message_id": get_last_message_id,
    "consumer_stats": consumer_stats,
    "get_schema": get_schema,
    "get_or_create_schema": get_or_create_schema,
    "watch_topic_list": watch_topic_list,
    "watch_topic_list_close": watch_topic_list_close,
    "tc_client_connect": transactions.tc_client_connect,
    "new_txn": transactions.new_txn,
    "add_partition_to_txn": transactions.add_partition_to_txn,
    "add_subscription_to_txn": transactions.add_subscription_to_txn,
    "end_txn": transactions.end_txn,
}
