"""Metadata: the brokers, the topics, and the leader of each partition. Requested topics may be created.

The response is written by hand, topic by topic, and cached: clients repeat the same request, and the library takes
milliseconds to encode a hundred topics. Response body (flexible from 9):

| field                             | type             | versions |
|-----------------------------------|------------------|----------|
| throttle_time_ms                  | i4               | 3+       |
| brokers                           | array            |          |
| · node_id, host, port             | i4, string, i4   |          |
| · rack                            | nullable string  | 1+       |
| cluster_id                        | nullable string  | 2+       |
| controller_id                     | i4               | 1+       |
| topics                            | array            |          |
| · error_code                      | i2               |          |
| · name                            | string           |          |
| · topic_id                        | uuid             | 10+      |
| · is_internal                     | bool             | 1+       |
| · partitions                      | array            |          |
| · · error_code, index, leader     | i2, i4, i4       |          |
| · · leader_epoch                  | i4               | 7+       |
| · · replicas, in-sync replicas    | arrays of i4     |          |
| · · offline replicas              | array of i4      | 5+       |
| · topic_authorized_operations     | i4               | 8+       |
| cluster_authorized_operations     | i4               | 8 to 10  |
| error_code                        | i2               | 13+      |
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from mainstem import limits
from mainstem.broker.access.rules import Operation, ResourceType
from mainstem.broker.namespaces import DEFAULT
from mainstem.broker.topics.service import Topic
from mainstem.doors.kafka.apis.auto_create import create_missing, may_create
from mainstem.doors.kafka.apis.leader_epochs import LEADER_EPOCH
from mainstem.doors.kafka.apis.messages import read_as_sent
from mainstem.doors.kafka.transport.api import Call, FastApi, Reply, off_loop
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.doors.kafka.transport.errors import code_of
from mainstem.doors.kafka.transport.operations import NOT_ASKED, operations_on
from mainstem.doors.kafka.transport.peers import Peer
from mainstem.doors.kafka.transport.wire import INT32, NO_TAGS, UUID_BYTES, write_count, write_string
from mainstem.errors import MainstemError

KAFKA_METADATA_PARTITIONS_PER_TURN = 1_000  # described in one turn of the event loop; topics count, too
KAFKA_METADATA_INLINE_BYTES_MAX = 8 * limits.KIB  # a larger request is read on a thread

_KEY = 3
_FIRST, _LAST = 0, 13
_FLEXIBLE_FROM = 9
_INT16 = struct.Struct(">h")
_PARTITION = struct.Struct(">hii")
_NO_ID = bytes(UUID_BYTES)


@dataclass(slots=True)
class _RequestedTopics:
    names: list[str] | None  # full names; None: every topic of the namespace
    ids: list[bytes]
    may_create: bool
    topic_operations: bool  # the client asks for its allowed operations
    cluster_operations: bool


def handle(call: Call, body: memoryview, reply: Reply) -> None:
    context = call.context
    asked = key = bytes(body)
    if call.restricted:  # the response depends on the client
        who = f"{call.principal.name}\0{call.principal.key_id}\0{call.host}"
        key = b"\0".join((asked, who.encode()))
    if call.view is not None:
        key = b"\0".join((key, call.view.namespace.encode()))
    answer = context.metadata_answers.get(_state(call), call.version, key)
    if answer is not None:
        reply.send([answer])
    elif len(asked) > KAFKA_METADATA_INLINE_BYTES_MAX:
        reply.run(_serve_large(call, asked, key, reply))
    else:
        _serve(call, _parse(call, asked), key, reply)


async def _serve_large(call: Call, asked: bytes, key: bytes, reply: Reply) -> None:
    _serve(call, await off_loop(call, lambda: _parse(call, asked)), key, reply)


def _serve(call: Call, wanted: _RequestedTopics, key: bytes, reply: Reply) -> None:
    context = call.context
    missing = _to_create(call, wanted)
    if missing:
        reply.run(_create_and_answer(call, wanted, missing, reply))
    elif context.broker.cluster.shared and _may_lack(context, wanted):
        reply.run(_answer_behind_barrier(call, wanted, reply))
    elif _partition_count(context, wanted) > KAFKA_METADATA_PARTITIONS_PER_TURN:
        reply.run(_answer_and_keep(call, wanted, key, reply))
    else:
        answer = _answer(call, wanted, [topic for topic in _topics(call, wanted, {}) if topic is not None])
        context.metadata_answers.put(call.version, key, answer)
        reply.send([answer])


def _partition_count(context: KafkaContext, wanted: _RequestedTopics) -> int:
    streams = context.broker.streams
    if wanted.names is None:
        return streams.partitions
    found = [*map(streams.get, wanted.names), *map(streams.get_by_id, wanted.ids)]
    return sum(1 if topic is None else topic.partitions for topic in found)


async def _answer_and_keep(call: Call, wanted: _RequestedTopics, key: bytes, reply: Reply) -> None:
    answers = call.context.metadata_answers
    async with call.context.metadata_turn:
        state = _state(call)
        answer = answers.get(state, call.version, key)  # another request may have built it meanwhile
        if answer is None:
            answer = await _answer_in_steps(call, wanted, {})
            if state == _state(call):
                answers.put(call.version, key, answer)
    reply.send([answer])


async def _answer_in_steps(call: Call, wanted: _RequestedTopics, refused: dict[str, MainstemError]) -> bytes:
    """Yield to the event loop between the steps."""
    topics: list[bytes] = []
    for topic in _topics(call, wanted, refused):
        if topic is None:
            await asyncio.sleep(0)
        else:
            topics.append(topic)
    return _answer(call, wanted, topics)


def _state(call: Call) -> int:
    """The cache key: equal while the response to this client is the same."""
    context = call.context
    state = context.broker.streams.topics_state ^ context.peers.state ^ context.access.state
    return state ^ context.broker.settings.state


def _parse(call: Call, body: bytes) -> _RequestedTopics:
    version = call.version
    request = read_as_sent(_KEY, version, body)
    may_create = getattr(request, "allow_auto_topic_creation", True)
    operations = (
        getattr(request, "include_topic_authorized_operations", False),
        getattr(request, "include_cluster_authorized_operations", False),
    )
    # Version 0 has no null array: an empty list asks for all topics.
    if request.topics is None or (version == 0 and not request.topics):
        return _RequestedTopics(None, [], may_create, *operations)
    names: list[str] = []
    ids: list[bytes] = []
    for topic in request.topics:
        id = getattr(topic, "topic_id", None)
        if id is not None:  # the id decides, whatever the name: the Java client sends an empty one
            ids.append(id.bytes)
        elif topic.name is not None:
            names.append(call.full_name(topic.name))
    return _RequestedTopics(names, ids, may_create, *operations)


def _to_create(call: Call, wanted: _RequestedTopics) -> list[str]:
    if not wanted.names or not wanted.may_create or not call.context.auto_create:
        return []
    return [
        name
        for name in wanted.names
        if call.context.broker.streams.get(name) is None and _visible(call, name) and may_create(call, name)
    ]


def _may_lack(context: KafkaContext, wanted: _RequestedTopics) -> bool:
    """Whether another broker may have just created or deleted a topic of the response."""
    streams = context.broker.streams
    if wanted.names is None:
        return True
    return any(streams.get(name) is None for name in wanted.names) or any(
        streams.get_by_id(id) is None for id in wanted.ids
    )


async def _answer_behind_barrier(call: Call, wanted: _RequestedTopics, reply: Reply) -> None:
    unsure: dict[str, MainstemError] = {}
    try:
        await call.context.broker.barrier()
    except MainstemError as error:
        # Respond with what is known. Whether unknown topics exist cannot be decided now.
        streams = call.context.broker.streams
        unsure = {name: error for name in wanted.names or () if streams.get(name) is None}
    reply.send([await _answer_in_steps(call, wanted, unsure)], failed=bool(unsure))


def _visible(call: Call, name: str) -> bool:
    return call.may(Operation.DESCRIBE, ResourceType.TOPIC, name)


async def _create_and_answer(call: Call, wanted: _RequestedTopics, missing: list[str], reply: Reply) -> None:
    context = call.context
    await context.broker.barrier()  # another broker may have created them just now
    missing = [name for name in missing if context.broker.streams.get(name) is None]
    refused = await create_missing(context, missing)
    reply.send([await _answer_in_steps(call, wanted, refused)], failed=bool(refused))


def _answer(call: Call, wanted: _RequestedTopics, topics: list[bytes]) -> bytes:
    version, context = call.version, call.context
    flexible = version >= _FLEXIBLE_FROM
    out = [INT32.pack(0)] if version >= 3 else []
    peers = context.peers.all()
    out.append(write_count(len(peers), flexible))
    for peer in peers:
        _write_broker(out, peer, version)
    if version >= 2:
        out.append(write_string(context.cluster_id, flexible))
    if version >= 1:
        out.append(INT32.pack(context.peers.controller()))
    out.append(write_count(len(topics), flexible))
    out += topics
    if 8 <= version <= 10:
        operations = operations_on(call, ResourceType.CLUSTER) if wanted.cluster_operations else NOT_ASKED
        out.append(INT32.pack(operations))
    if version >= 13:
        out.append(_INT16.pack(0))
    if flexible:
        out.append(NO_TAGS)
    return b"".join(out)


def _write_broker(out: list[bytes], peer: Peer, version: int) -> None:
    flexible = version >= _FLEXIBLE_FROM
    out.append(INT32.pack(peer.node_id))
    out.append(write_string(peer.host, flexible))
    out.append(INT32.pack(peer.port))
    if version >= 1:
        out.append(write_string(peer.rack, flexible))
    if flexible:
        out.append(NO_TAGS)


def _topics(
    call: Call, wanted: _RequestedTopics, refused: dict[str, MainstemError]
) -> Iterator[bytes | None]:
    """Each encoded topic, and None where one turn of the event loop should end."""
    partitions = 0
    for part in _each_topic(call, wanted, refused):
        if isinstance(part, int):
            partitions += part + 1
            if partitions >= KAFKA_METADATA_PARTITIONS_PER_TURN:
                partitions = 0
                yield None
        else:
            yield part


def _each_topic(
    call: Call, wanted: _RequestedTopics, refused: dict[str, MainstemError]
) -> Iterator[bytes | int]:
    """Each encoded topic, with the number of partitions it describes."""
    streams = call.context.broker.streams
    if wanted.names is None:
        namespace = DEFAULT if call.view is None else call.view.namespace
        for topic in streams.topics():
            if topic.namespace == namespace and _visible(call, topic.name):
                yield from _topic(call, topic, wanted)
            else:
                yield 0
        return
    for name in dict.fromkeys(wanted.names):
        found = streams.get(name)
        if not call.may_or_audit(Operation.DESCRIBE, ResourceType.TOPIC, name):
            shown = _client_name(call, name)
            yield _no_topic(call.version, ErrorCode.topic_authorization_failed, shown, _NO_ID)
            yield 0
        elif found is not None:
            yield from _topic(call, found, wanted)
        else:
            code = _missing(call, wanted, name, refused.get(name))
            yield _no_topic(call.version, code, _client_name(call, name), _NO_ID)
            yield 0
    for id in dict.fromkeys(wanted.ids):
        found = call.topic_of_id(id)
        if found is not None and _visible(call, found.name):
            yield from _topic(call, found, wanted)
        else:
            code = ErrorCode.unknown_topic_id if found is None else ErrorCode.topic_authorization_failed
            yield _no_topic(call.version, code, None, id)
            yield 0


def _client_name(call: Call, full_name: str) -> str:
    """The name as the client sent it."""
    return full_name if call.view is None else call.view.plain_topic(full_name) or full_name


def _missing(call: Call, wanted: _RequestedTopics, name: str, error: MainstemError | None) -> ErrorCode:
    if error is not None:
        return code_of(error)
    wants_it_made = wanted.may_create and call.context.auto_create
    if wants_it_made and not may_create(call, name):
        return ErrorCode.topic_authorization_failed
    return ErrorCode.unknown_topic_or_partition


def _no_topic(version: int, code: int, name: str | None, id: bytes) -> bytes:
    # Version 12 introduced null names; earlier versions give an unknown id an empty name.
    return _write_topic(version, code, name if version >= 12 else name or "", id, [], NOT_ASKED)


def _topic(call: Call, topic: Topic, wanted: _RequestedTopics) -> Iterator[bytes | int]:
    partitions: list[bytes] = []
    for first in range(0, topic.partitions, KAFKA_METADATA_PARTITIONS_PER_TURN):
        some = _partitions(call.context, call.version, topic, first)
        partitions += some
        yield len(some)
    operations = operations_on(call, ResourceType.TOPIC, topic.name) if wanted.topic_operations else NOT_ASKED
    name = call.plain_name(topic)
    yield _write_topic(call.version, 0, name, topic.topic_id, partitions, operations)


def _write_topic(
    version: int, code: int, name: str | None, id: bytes, partitions: list[bytes], operations: int
) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    out = [_INT16.pack(code), write_string(name, flexible)]
    if version >= 10:
        out.append(id)
    if version >= 1:
        out.append(b"\0")  # not internal
    out.append(write_count(len(partitions), flexible))
    out += partitions
    if version >= 8:
        out.append(INT32.pack(operations))
    if flexible:
        out.append(NO_TAGS)
    return b"".join(out)


def _partitions(context: KafkaContext, version: int, topic: Topic, first: int) -> list[bytes]:
    """Some partitions, from `first` on.

    The storage replicates the log, not the brokers: replicas are the brokers that clients should read from."""
    rests: dict[tuple[int, ...], bytes] = {}
    found = []
    last = first + KAFKA_METADATA_PARTITIONS_PER_TURN
    for index, stream in enumerate(topic.streams[first:last], first):
        nodes = context.peers.replicas(stream)
        if nodes not in rests:
            rests[nodes] = _after_leader(nodes, version)
        found.append(_PARTITION.pack(0, index, nodes[0]) + rests[nodes])
    return found


def _after_leader(nodes: tuple[int, ...], version: int) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    replicas = write_count(len(nodes), flexible) + b"".join(map(INT32.pack, nodes))
    rest = replicas + replicas
    if version >= 5:
        rest += write_count(0, flexible)
    if version >= 7:
        rest = INT32.pack(LEADER_EPOCH) + rest
    if flexible:
        rest += NO_TAGS
    return rest


def _throttle_at(version: int) -> int | None:
    return 0 if version >= 3 else None


API = FastApi(_KEY, _FIRST, _LAST, _FLEXIBLE_FROM, handle, throttle_at=_throttle_at)
