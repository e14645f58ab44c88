"""Publish and dispatch rates of a namespace: rates of all doors, which its topics share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mainstem.broker.access.rules import Operation
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


def getter(kind: _Kind) -> Callable[..., Any]:
    async def get(call: AdminCall, namespace: str) -> Response:
        stored = call.broker.rates.stored.get(RateEntity(namespace=call.namespace(namespace)))
        if kind.record_rate not in stored and kind.byte_rate not in stored:
            return DONE
        return answer(
            {
                kind.messages: int(stored.get(kind.record_rate, -1)),
                kind.bytes: int(stored.get(kind.byte_rate, -1)),
                **kind.constant,
            }
        )

    return get


def setter(kind: _Kind) -> Callable[..., Any]:
    async def set(call: AdminCall, namespace: str) -> Response:
        call.check_cluster(Operation.ALTER_CONFIGS, "rates")
        name, body = call.namespace(namespace), call.fields()
        if body.get("relativeToPublishRate"):
            raise AdminRefusal(NOT_ALLOWED, "a dispatch rate cannot be relative to the publish rate")
        period_s = max(whole_number(body.get("ratePeriodInSecond", 1), "ratePeriodInSecond"), 1)
        wanted = {
            kind.record_rate: whole_number(body.get(kind.messages, -1), kind.messages),
            kind.byte_rate: whole_number(body.get(kind.bytes, -1), kind.bytes),
        }
        put = tuple((key, rate / period_s) for key, rate in wanted.items() if rate > 0)
        removed = tuple(key for key, rate in wanted.items() if rate <= 0)
        await call.broker.rates.alter(AlterRate(RateEntity(namespace=name), put, removed))
        return DONE

    return set


def remover(kind: _Kind) -> Callable[..., Any]:
    async def remove(call: AdminCall, namespace: str) -> Response:
        call.check_cluster(Operation.ALTER_CONFIGS, "rates")
        entity = RateEntity(namespace=call.namespace(namespace))
        await call.broker.rates.alter(AlterRate(entity, (), (kind.record_rate, kind.byte_rate)))
        return DONE

    return remove


def refuse_for_topics(policy: str) -> Callable[..., Any]:
    async def refused(call: AdminCall, topic: str) -> Response:
        raise AdminRefusal(
            NOT_ALLOWED,
            f"{policy} of a topic has no effect here, so it is not stored: set that of its namespace",
        )

    return refused
