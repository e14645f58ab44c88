"""Subscriptions of a topic: create, delete, and move them. A name without a partition means all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mainstem.broker.access.rules import Operation
from mainstem.broker.streams import stream_of
from mainstem.broker.subscriptions.entries import MessageEntryReader
from mainstem.broker.topics.service import Topic
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.pulsar.admin.call import (
    CONFLICT,
    DONE,
    AdminCall,
    AdminRefusal,
    answer,
    partitions_of,
    text_map,
    whole_number,
)
from mainstem.doors.pulsar.admin.messages import one_partition
from mainstem.doors.pulsar.topic_names import ledger_of
from mainstem.errors import SubscriptionNotFound

_LATEST = 1 << 60  # a ledger from here on means the end


async def list_subscriptions(call: AdminCall, topic: str) -> Response:
    name, found = await call.topic(topic, Operation.DESCRIBE)
    call.check_served(found)
    streams = [found.streams[at] for at in partitions_of(found, name)]
    return answer(sorted({one.name for stream in streams for one in call.subscriptions(found, stream)}))


async def create_subscription(call: AdminCall, topic: str, subscription: str) -> Response:
    if call.find(topic)[1] is None:
        await call.lookup.partitions(topic, call.caller, create=True)
    if call.find(topic)[1] is None:
        await call.lookup.open(topic, call.caller)  # a consumer would create it too
    name, found = await call.topic(topic, Operation.READ)
    call.caller.check_subscription(found.name, subscription)
    body = call.fields()
    properties = tuple(sorted(text_map(body.get("properties") or {}, "properties").items()))
    created = [
        await call.broker.subscriptions.create(
            found, at, subscription, await _offset(call, found, at, body), properties
        )
        for at in partitions_of(found, name)
    ]
    if not any(created):
        raise AdminRefusal(CONFLICT, "Subscription already exists for topic")
    return DONE


async def delete_subscription(call: AdminCall, topic: str, subscription: str) -> Response:
    async def delete(topic: Topic, at: int) -> None:
        await call.broker.subscriptions.delete(topic, at, subscription, force=call.flag("force"))

    return await _each(call, topic, subscription, delete)


async def skip_all(call: AdminCall, topic: str, subscription: str) -> Response:
    async def skip(topic: Topic, at: int) -> None:
        end = call.broker.streams.bounds(stream_of(topic, at))[1]
        await call.broker.subscriptions.skip(topic, at, subscription, end)

    return await _each(call, topic, subscription, skip)


async def skip(call: AdminCall, topic: str, subscription: str, count: str) -> Response:
    skipped = whole_number(count, "the number of messages")
    name, found = await call.topic(topic, Operation.READ)
    one_partition(found, name, "Skipping messages of")

    async def skip_some(topic: Topic, at: int) -> None:
        mark = call.broker.subscriptions.after_unacked(stream_of(topic, at), subscription, max(skipped, 0))
        await call.broker.subscriptions.skip(topic, at, subscription, mark)

    return await _each(call, topic, subscription, skip_some)


async def reset_to_time(call: AdminCall, topic: str, subscription: str, time_ms: str) -> Response:
    since = whole_number(time_ms, "the time")

    async def move(topic: Topic, at: int) -> None:
        mark = await _at_time(call, stream_of(topic, at), since)
        await call.broker.subscriptions.move(topic, at, subscription, mark)

    return await _each(call, topic, subscription, move)


async def reset_to_id(call: AdminCall, topic: str, subscription: str) -> Response:
    body = call.fields()
    name, found = await call.topic(topic, Operation.READ)
    one_partition(found, name, "Reset-cursor at position of")

    async def move(topic: Topic, at: int) -> None:
        mark = await _offset(
            call, topic, at, body, after=bool(body.get("isExcluded") or body.get("excluded"))
        )
        await call.broker.subscriptions.move(topic, at, subscription, mark)

    return await _each(call, topic, subscription, move, _partition_of(body))


async def get_backlog_size(call: AdminCall, topic: str) -> Response:
    """About how many bytes a partition has from a message id on: offsets count alike."""
    name, found = await call.topic(topic, Operation.DESCRIBE)
    at = one_partition(found, name, "The backlog size of")
    state = call.broker.partition(found.name, at)
    left = call.broker.streams.bounds(stream_of(found, at))[1] - await _offset(call, found, at, call.fields())
    return answer(state.bytes * min(left, state.records) // state.records if state.records else 0)


async def expire(call: AdminCall, topic: str, subscription: str, seconds: str) -> Response:
    """Acknowledge messages that are older than some seconds."""
    before = call.broker.clock.now_ms() - whole_number(seconds, "the age") * 1000

    async def skip_old(topic: Topic, at: int) -> None:
        mark = await _at_time(call, stream_of(topic, at), before)
        await call.broker.subscriptions.skip(topic, at, subscription, mark)

    return await _each(call, topic, subscription, skip_old)


async def expire_to_id(call: AdminCall, topic: str, subscription: str) -> Response:
    """Acknowledge messages up to one."""
    body = call.fields()

    async def skip_to(topic: Topic, at: int) -> None:
        excluded = bool(body.get("isExcluded") or body.get("excluded"))
        mark = await _offset(call, topic, at, body, after=not excluded)
        await call.broker.subscriptions.skip(topic, at, subscription, mark)

    return await _each(call, topic, subscription, skip_to, _partition_of(body))


async def expire_all(call: AdminCall, topic: str, seconds: str) -> Response:
    """The same for every subscription of a topic."""
    name, found = await call.topic(topic, Operation.READ)
    names = {
        one
        for at in partitions_of(found, name)
        for one, _ in call.broker.subscriptions.marks(stream_of(found, at))
    }
    for subscription in sorted(names):
        await expire(call, topic, subscription, seconds)
    return DONE


async def get_properties(call: AdminCall, topic: str, subscription: str) -> Response:
    name, found = await call.topic(topic, Operation.DESCRIBE)
    rows = [
        one
        for at in partitions_of(found, name)
        for one in call.subscriptions(found, stream_of(found, at))
        if one.name == subscription
    ]
    if not rows:
        raise SubscriptionNotFound(subscription)
    return answer(dict(rows[0].properties))


async def put_properties(call: AdminCall, topic: str, subscription: str) -> Response:
    properties = tuple(sorted(text_map(call.fields(), "properties").items()))

    async def put(topic: Topic, at: int) -> None:
        await call.broker.subscriptions.put_properties(topic, at, subscription, properties)

    return await _each(call, topic, subscription, put)


async def analyze_backlog(call: AdminCall, topic: str, subscription: str) -> Response:
    name, found = await call.topic(topic, Operation.READ)
    call.caller.check_subscription(found.name, subscription)
    at = one_partition(found, name, "Analyzing the backlog of")
    rows = call.broker.subscriptions.of_stream(stream_of(found, at))
    one = next((row for row in rows if row.name == subscription), None)
    if one is None:
        raise SubscriptionNotFound(subscription)
    counted = {"entries": one.backlog, "messages": one.backlog, "markerMessages": 0}
    counts = ("filterAcceptedEntries", "filterAcceptedMessages")
    none = ("filterRejectedEntries", "filterRejectedMessages", "filterRescheduledEntries")
    return answer(
        {
            **counted,
            **dict.fromkeys(counts, one.backlog),
            **dict.fromkeys((*none, "filterRescheduledMessages"), 0),
            "aborted": False,
        }
    )


async def _each(
    call: AdminCall,
    topic: str,
    subscription: str,
    work: Callable[[Topic, int], Awaitable[None]],
    partition: int = -1,
) -> Response:
    """Do something in each partition that has the subscription. Raises SubscriptionNotFound if none has."""
    name, found = await call.topic(topic, Operation.READ)
    call.caller.check_subscription(found.name, subscription)
    call.check_served(found)
    subscriptions = call.broker.subscriptions
    known = [
        at
        for at in partitions_of(found, name)
        if subscriptions.exists(stream_of(found, at), subscription) and partition in (-1, at)
    ]
    if not known:
        raise SubscriptionNotFound(subscription)
    for at in known:
        await work(found, at)
    return DONE


def _partition_of(body: dict[str, Any]) -> int:
    """The partition of a message id; -1: it names none."""
    return whole_number(body.get("partitionIndex", -1), "partitionIndex")


async def _at_time(call: AdminCall, stream: int, since: int) -> int:
    found = await call.broker.streams.at_time(stream, since)
    return call.broker.streams.bounds(stream)[1] if found is None else found[0]


async def _offset(
    call: AdminCall, topic: Topic, partition: int, body: dict[str, Any], *, after: bool = False
) -> int:
    """Where a message id of a body points, or after that message; without one, to the end."""
    stream = stream_of(topic, partition)
    first, end = call.broker.streams.bounds(stream)
    ledger = whole_number(body.get("ledgerId", _LATEST), "ledgerId")
    if ledger >= _LATEST:
        return end
    if ledger != ledger_of(topic):
        return first
    entry = whole_number(body.get("entryId", 0), "entryId")
    index = whole_number(body.get("batchIndex", -1), "batchIndex")
    offset = min(max(entry + max(index, 0), first), end)
    if after and offset < end:
        whole = await MessageEntryReader(call.broker.streams, stream).at(offset) if index < 0 else None
        offset = offset + 1 if whole is None else whole.end
    return min(offset, end)
