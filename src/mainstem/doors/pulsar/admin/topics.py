"""Topics: create, change, delete and describe them. `policies.py` has their policies."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstem.broker.access.rules import Operation
from mainstem.broker.topics.service import Topic, TopicConfig
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.pulsar.admin import stats
from mainstem.doors.pulsar.admin.call import (
    CONFLICT,
    DONE,
    NOT_ALLOWED,
    PRECONDITION_FAILED,
    AdminCall,
    AdminRefusal,
    answer,
    partitions_of,
    text_answer,
    text_map,
    whole_number,
)
from mainstem.doors.pulsar.admin.messages import last_id_fields, one_partition
from mainstem.doors.pulsar.admin.namespaces import disconnect
from mainstem.doors.pulsar.topic_names import PulsarTopicName
from mainstem.errors import InvalidInput, TopicExists

_BUNDLE = "0x00000000_0xffffffff"  # there is one: any broker serves any topic
TOPIC_PROPERTIES_BYTES_MAX = 16 << 10


# Create and delete


async def create(call: AdminCall, topic: str) -> Response:
    return await _create(call, topic, 1, _properties(call.fields()))


async def create_partitioned(call: AdminCall, topic: str) -> Response:
    body = call.body()
    properties: dict[str, str] = {}
    if isinstance(body, dict):
        properties, body = _properties(body.get("properties") or {}), body.get("partitions")
    return await _create(call, topic, _partition_count(body), properties)


async def _create(call: AdminCall, text: str, partitions: int, properties: dict[str, str]) -> Response:
    name, _ = call.find(text)
    try:
        await call.lookup.create(name.whole(), call.caller, partitions, exist_ok=False, properties=properties)
    except TopicExists:
        raise AdminRefusal(CONFLICT, "This topic already exists") from None
    return DONE


async def get_partitions(call: AdminCall, topic: str) -> Response:
    name, found = call.find(topic)
    call.caller.check(Operation.DESCRIBE, name.name)
    create = call.flag("checkAllowAutoCreation")
    if found is None and not create:
        _, found = await call.topic(topic, Operation.DESCRIBE)
    partitions = await call.lookup.partitions(topic, call.caller, create=create)
    properties = {} if found is None else stats.properties_of(found)
    return answer({"partitions": partitions, "deleted": False, **properties})


async def add_partitions(call: AdminCall, topic: str) -> Response:
    total = _partition_count(call.body())
    _, found = await call.topic(topic, Operation.ALTER)
    if len(found.streams) == 1:
        raise AdminRefusal(CONFLICT, f"Topic {topic} is not the partitioned topic.")
    if total < len(found.streams):
        raise AdminRefusal(422, f"the topic has {len(found.streams)} partitions, and can only get more")
    await call.broker.add_partitions(found.name, total)
    return DONE


async def create_missing_partitions(call: AdminCall, topic: str) -> Response:
    """Partitions are made together with their topic."""
    await call.topic(topic, Operation.ALTER)
    return DONE


def _partition_count(value: object) -> int:
    count = whole_number(value, "the number of partitions")
    if count < 1:
        raise AdminRefusal(406, "Number of partitions should be more than 0")
    return count


async def delete(call: AdminCall, topic: str) -> Response:
    name, found = await call.topic(topic, Operation.DELETE)
    if name.partition >= 0:
        raise AdminRefusal(NOT_ALLOWED, "a partition cannot be deleted alone: delete the topic")
    if len(found.streams) > 1 and not call.path.endswith("/partitions"):
        raise AdminRefusal(CONFLICT, f"{topic} is a partitioned topic: delete it as one")
    if len(found.streams) == 1 and call.path.endswith("/partitions"):
        raise AdminRefusal(CONFLICT, f"{topic} is not a partitioned topic")
    call.check_served(found)
    subscriptions = call.broker.subscriptions
    used = any(call.producers.of_stream(stream) for stream in found.streams) or any(
        one.consumers for stream in found.streams for one in subscriptions.of_stream(stream)
    )
    if used and not call.flag("force"):
        raise AdminRefusal(PRECONDITION_FAILED, "Topic has active producers/subscriptions")
    await call.broker.topic_schemas.delete(found)
    await call.broker.delete_topic(found.name)
    call.producers.close_topic(found.streams)
    call.caller.audit("DELETE", found.name, "done")
    return DONE


async def truncate(call: AdminCall, topic: str) -> Response:
    """Delete all records, also those that subscriptions have not acknowledged."""
    name, found = await call.topic(topic, Operation.DELETE)
    for at in partitions_of(found, name):
        end = call.broker.streams.bounds(found.streams[at])[1]
        for subscription, _ in call.broker.subscriptions.marks(found.streams[at]):
            await call.broker.subscriptions.skip(found, at, subscription, end)
        await call.broker.trim(found.name, end, at)
    return DONE


async def unload(call: AdminCall, topic: str) -> Response:
    """Producers and consumers connect again."""
    _, found = await call.topic(topic, Operation.ALTER)
    disconnect(call, found)
    return DONE


# State


async def get_stats(call: AdminCall, topic: str) -> Response:
    name, found = await _described(call, topic)
    return answer(stats.topic_stats(call, found, _partition_of(found, name)))


def _partition_of(topic: Topic, name: PulsarTopicName) -> int:
    """Raises AdminRefusal for a topic whose partitions have statistics of their own."""
    if name.partition < 0 and len(topic.streams) > 1:
        raise AdminRefusal(404, f"Topic {name.name} not found: it has partitions")
    return max(name.partition, 0)


async def get_partitioned_stats(call: AdminCall, topic: str) -> Response:
    name, found = await _described(call, topic)
    if name.partition >= 0:
        raise AdminRefusal(PRECONDITION_FAILED, "Partitioned Topic Name should not contain '-partition-'")
    if len(found.streams) == 1:
        raise AdminRefusal(404, f"Partitioned Topic {topic} not found")
    return answer(stats.partitioned_stats(call, found, each=call.text("perPartition") != "false"))


async def get_internal_stats(call: AdminCall, topic: str) -> Response:
    name, found = await _described(call, topic)
    return answer(stats.internal_stats(call, found, _partition_of(found, name)))


async def get_partitioned_internal_stats(call: AdminCall, topic: str) -> Response:
    name, found = await _described(call, topic)
    rows = {at: stats.internal_stats(call, found, at) for at in partitions_of(found, name)}
    metadata = {"partitions": len(found.streams), "deleted": False, **stats.properties_of(found)}
    urls = {f"{topic}-partition-{at}": row for at, row in rows.items()}
    return answer({"metadata": metadata, "partitions": urls})


async def get_internal_info(call: AdminCall, topic: str) -> Response:
    name, found = await _described(call, topic)
    row = stats.internal_stats(call, found, one_partition(found, name, "The layout of"))
    return answer({"version": 1, "creationDate": "", "ledgers": row["ledgers"], "cursors": {}})


async def _described(call: AdminCall, text: str) -> tuple[Any, Topic]:
    name, found = await call.topic(text, Operation.DESCRIBE)
    call.check_served(found)
    return name, found


# Termination


async def terminate(call: AdminCall, topic: str) -> Response:
    name, found = await call.topic(topic, Operation.ALTER)
    one_partition(found, name, "Termination of")
    if name.partition >= 0:
        raise AdminRefusal(NOT_ALLOWED, "a partition cannot be terminated alone: terminate the topic")
    await _terminate(call, found)
    return answer(await last_id_fields(call, found, -1))


async def terminate_partitions(call: AdminCall, topic: str) -> Response:
    _, found = await call.topic(topic, Operation.ALTER)
    await _terminate(call, found)
    return answer({str(at): await last_id_fields(call, found, at) for at in range(len(found.streams))})


async def _terminate(call: AdminCall, topic: Topic) -> None:
    call.check_served(topic)
    await call.broker.change_topic(
        topic.name, lambda config: msgspec.structs.replace(config, terminated=True)
    )
    call.broker.subscriptions.wake(topic.streams)


# Compaction: of the view that readers may ask for, and of the topic itself if its cleanup policy says so


async def compact(call: AdminCall, topic: str) -> Response:
    name, found = await call.topic(topic, Operation.ALTER)
    call.check_served(found)
    views = call.broker.subscriptions.compacted
    started = [views.start(found.streams[at]) for at in partitions_of(found, name)]
    if not all(started):
        raise AdminRefusal(CONFLICT, "Compaction already in progress")
    if "compact" in found.config.cleanup_policy:
        call.broker.compact_now()
    return DONE


async def get_compaction(call: AdminCall, topic: str) -> Response:
    name, found = await call.topic(topic, Operation.DESCRIBE)
    call.check_served(found)
    stream = found.streams[_partition_of(found, name)]
    status, error = call.broker.subscriptions.compacted.state(stream)
    return answer({"status": status, "lastError": error})


# Properties


async def get_properties(call: AdminCall, topic: str) -> Response:
    name, found = await call.topic(topic, Operation.DESCRIBE)
    if not found.config.properties and len(found.streams) > 1 and name.partition < 0:
        return DONE  # Pulsar has no metadata of such a topic yet
    return answer(dict(found.config.properties))


async def put_properties(call: AdminCall, topic: str) -> Response:
    given = _properties(call.fields())
    return await _change_properties(call, topic, lambda before: {**before, **given})


async def delete_property(call: AdminCall, topic: str) -> Response:
    key = call.text("key")
    if not key:
        raise InvalidInput("name the property to delete: ?key=NAME")
    return await _change_properties(
        call, topic, lambda before: {name: value for name, value in before.items() if name != key}
    )


async def _change_properties(call: AdminCall, topic: str, change: Any) -> Response:
    _, found = await call.topic(topic, Operation.ALTER_CONFIGS)

    def changed(config: TopicConfig) -> TopicConfig:
        after = _properties(change(dict(config.properties)))
        return msgspec.structs.replace(config, properties=tuple(sorted(after.items())))

    await call.broker.change_topic(found.name, changed)
    return DONE


def _properties(value: object) -> dict[str, str]:
    """Raises InvalidInput."""
    properties = text_map(value, "properties")
    if sum(len(key.encode()) + len(text.encode()) for key, text in properties.items()) > (
        TOPIC_PROPERTIES_BYTES_MAX
    ):
        raise InvalidInput(f"the properties of a topic have at most {TOPIC_PROPERTIES_BYTES_MAX} bytes")
    return properties


# Lookup


async def look_up(call: AdminCall, topic: str) -> Response:
    name, _ = call.find(topic)
    call.caller.check(Operation.DESCRIBE, name.name)
    url = call.lookup.broker_url(name.name)
    tls = url.startswith("pulsar+ssl")
    address = call.lookup.http_address(name.name)
    return answer(
        {
            "brokerUrl": None if tls else url,
            "brokerUrlTls": url if tls else None,
            "httpUrl": f"http://{address}" if address else None,
            "httpUrlTls": None,
            "nativeUrl": url,
        }
    )


async def get_bundle(call: AdminCall, topic: str) -> Response:
    name, _ = call.find(topic)
    call.caller.check(Operation.DESCRIBE, name.name)
    return text_answer(_BUNDLE)
