"""DeleteTopics: delete topics and their records, by name or by id."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any
from uuid import UUID

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from mainstem.broker.topics.service import Topic
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, ItemResult, outcome_of, repeated, side_by_side
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.doors.kafka.transport.versions import bridge
from mainstem.errors import MainstemError, TopicNotFound

_FIRST, _LAST = 1, 6

_Key = tuple[TopicName | None, UUID | None]


async def handle(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    keys: list[_Key] = [(wanted.name, wanted.topic_id) for wanted in request.topics]
    twice = repeated(keys)
    wanted = [key for key in keys if key not in twice]
    results = await side_by_side(partial(_delete, call.context), wanted)
    refused = ItemResult(ErrorCode.invalid_request, "the request names this topic more than once")
    results += [_result(key, refused) for key in dict.fromkeys(keys) if key in twice]
    return DeleteTopicsResponse(throttle_time=NO_THROTTLE, responses=tuple(results))


async def _delete(context: KafkaContext, key: _Key) -> DeletableTopicResult:
    try:
        deleted = await context.broker.delete_topic(_name(context, key))
    except TopicNotFound as error:
        code = ErrorCode.unknown_topic_or_partition if key[1] is None else ErrorCode.unknown_topic_id
        return _result(key, outcome_of(error)._replace(code=code))
    except (MainstemError, ItemRefused) as error:
        return _result(key, outcome_of(error))
    return _result(key, DONE, deleted)


def _name(context: KafkaContext, key: _Key) -> str:
    name, topic_id = key
    if (name is None) == (topic_id is None):
        raise ItemRefused(ErrorCode.invalid_request, "a topic to delete is given by its name or by its id")
    if name is not None:
        return name
    topic = None if topic_id is None else context.broker.streams.get_by_id(topic_id.bytes)
    if topic is None:
        raise TopicNotFound(str(topic_id))
    return topic.name


def _result(key: _Key, outcome: ItemResult, deleted: Topic | None = None) -> DeletableTopicResult:
    name, topic_id = key
    return DeletableTopicResult(
        name=TopicName(deleted.name) if deleted else name,
        topic_id=UUID(bytes=deleted.topic_id) if deleted else topic_id,
        error_code=outcome.code,
        error_message=outcome.message,
    )


def _from_names(request: Any) -> DeleteTopicsRequest:
    """Before version 6 a request lists topic names only."""
    topics = tuple(DeleteTopicState(name=name, topic_id=None) for name in request.topic_names)
    return DeleteTopicsRequest(topics=topics, timeout=request.timeout)


for _version in range(_FIRST, _LAST):
    _older = import_module(f"kio.schema.delete_topics.v{_version}.request").DeleteTopicsRequest
    bridge(_older, DeleteTopicsRequest, _from_names)

API = Api(20, _FIRST, _LAST, handle, fresh=True)
