"""Publish and dispatch rates: rates of a topic at all doors, or of a namespace, which its topics share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from mainstem.broker.access.rules import Operation
from mainstem.broker.namespaces import split
from mainstem.broker.rates import (
    CONSUMER_BYTE_RATE,
    CONSUMER_RECORD_RATE,
    PRODUCER_BYTE_RATE,
    PRODUCER_RECORD_RATE,
    AlterRate,
    RateEntity,
)
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.pulsar.admin.call import DONE, NOT_ALLOWED, AdminCall, AdminRefusal, answer, whole_number


class _Kind(NamedTuple):
    messages: str  # the field of the body
    bytes: str
    record_rate: str  # the rate of the broker
    byte_rate: str
    constant: dict[str, Any]  # what else an answer has


PUBLISH = _Kind(
    "publishThrottlingRateInMsg",
    "publishThrottlingRateInByte",
    PRODUCER_RECORD_RATE,
    PRODUCER_BYTE_RATE,
    {},
)
DISPATCH = _Kind(
    "dispatchThrottlingRateInMsg",
    "dispatchThrottlingRateInByte",
    CONSUMER_RECORD_RATE,
    CONSUMER_BYTE_RATE,
    {"ratePeriodInSecond": 1, "relativeToPublishRate": False},
)


Find = Callable[[AdminCall, str, Operation], Awaitable[RateEntity]]  # by what a path names


async def of_namespace(call: AdminCall, namespace: str, operation: Operation) -> RateEntity:
    """Raises Forbidden if the client may not change it."""
    if operation is Operation.ALTER_CONFIGS:
        call.check_cluster(operation, "rates")
    return RateEntity(namespace=call.namespace(namespace))


async def of_topic(call: AdminCall, topic: str, operation: Operation) -> RateEntity:
    """Raises Forbidden, TopicNotFound."""
    _, found = await call.topic(topic, operation)
    return RateEntity(topic=found.name)


def getter(kind: _Kind, find: Find) -> Callable[..., Any]:
    async def get(call: AdminCall, name: str) -> Response:
        entity, stored = await find(call, name, Operation.DESCRIBE), call.broker.rates.stored
        found = stored.get(entity)
        if found.keys().isdisjoint((kind.record_rate, kind.byte_rate)):
            if entity.topic is None or not call.flag("applied"):
                return DONE
            found = stored.get(RateEntity(namespace=split(entity.topic)[0]))
            if found.keys().isdisjoint((kind.record_rate, kind.byte_rate)):
                return DONE
        return answer(
            {
                kind.messages: int(found.get(kind.record_rate, -1)),
                kind.bytes: int(found.get(kind.byte_rate, -1)),
                **kind.constant,
            }
        )

    return get


def setter(kind: _Kind, find: Find) -> Callable[..., Any]:
    async def set(call: AdminCall, name: str) -> Response:
        entity, body = await find(call, name, Operation.ALTER_CONFIGS), call.fields()
        if body.get("relativeToPublishRate"):
            raise AdminRefusal(NOT_ALLOWED, "a dispatch rate cannot be relative to the publish rate")
        period_s = max(whole_number(body.get("ratePeriodInSecond", 1), "ratePeriodInSecond"), 1)
        wanted = {
            kind.record_rate: whole_number(body.get(kind.messages, -1), kind.messages),
            kind.byte_rate: whole_number(body.get(kind.bytes, -1), kind.bytes),
        }
        put = tuple((key, rate / period_s) for key, rate in wanted.items() if rate > 0)
        removed = tuple(key for key, rate in wanted.items() if rate <= 0)
        await call.broker.rates.alter(AlterRate(entity, put, removed))
        return DONE

    return set


def remover(kind: _Kind, find: Find) -> Callable[..., Any]:
    async def remove(call: AdminCall, name: str) -> Response:
        entity = await find(call, name, Operation.ALTER_CONFIGS)
        await call.broker.rates.alter(AlterRate(entity, (), (kind.record_rate, kind.byte_rate)))
        return DONE

    return remove
