"""Statistics of topics and subscriptions, in Pulsar's fields. Rates are those of Pulsar clients of this broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from mainstem.broker.broker import PartitionState
from mainstem.broker.streams import stream_of
from mainstem.broker.subscriptions.consumer import SubscriptionConsumer
from mainstem.broker.subscriptions.service import SubscriptionSummary
from mainstem.broker.topics.service import Topic
from mainstem.doors.pulsar.admin.call import AdminCall
from mainstem.doors.pulsar.commands import type_name
from mainstem.doors.pulsar.consumers import PulsarConsumer
from mainstem.doors.pulsar.producers import ACCESS_MODES, PulsarProducer
from mainstem.doors.pulsar.throughput import Throughput
from mainstem.doors.pulsar.topic_names import ledger_of, topic_url

_RATES_IN = ("msgRateIn", "msgThroughputIn")
_RATES_OUT = ("msgRateOut", "msgThroughputOut")
_SUMMED = (
    *(*_RATES_IN, *_RATES_OUT, "msgInCounter", "bytesInCounter"),
    *("msgOutCounter", "bytesOutCounter", "storageSize", "backlogSize"),
)
_SUMMED_OF_SUBSCRIPTIONS = (
    *(*_RATES_OUT, "msgOutCounter", "bytesOutCounter", "msgBacklog", "backlogSize"),
    *("msgBacklogNoDelayed", "msgDelayed", "unackedMessages"),
)


def topic_stats(call: AdminCall, topic: Topic, partition: int) -> dict[str, Any]:
    state = call.broker.partition(topic.name, partition)
    stream = stream_of(topic, partition)
    subscriptions = {one.name: _subscription_stats(one, state) for one in call.subscriptions(topic, stream)}
    publishers = [_producer_stats(one) for one in call.producers.of_stream(stream)]
    return {
        **_sums(_RATES_IN, publishers),
        **_sums((*_RATES_OUT, "msgOutCounter", "bytesOutCounter"), subscriptions.values()),
        "msgInCounter": state.end,
        "bytesInCounter": state.bytes,
        "averageMsgSize": state.bytes / state.records if state.records else 0.0,
        "msgChunkPublished": False,
        "storageSize": state.bytes,
        "backlogSize": max((one["backlogSize"] for one in subscriptions.values()), default=0),
        "offloadedStorageSize": 0,
        "waitingPublishers": 0,
        "publishers": publishers,
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Enabled" if topic.config.deduplication else "Disabled",
        "nonContiguousDeletedMessagesRanges": 0,
        "ownerBroker": call.lookup.broker_url(topic.name).partition("://")[2],
        "topicCreationTimeStamp": topic.created_ms,
    }


def _sums(fields: Iterable[str], rows: Collection[dict[str, Any]]) -> dict[str, Any]:
    return {field: sum(row[field] for row in rows) for field in fields}


def _producer_stats(one: PulsarProducer) -> dict[str, Any]:
    moved = one.throughput
    return {
        "accessMode": ACCESS_MODES[one.mode],
        "producerId": one.id,
        "producerName": one.name,
        "msgInCounter": moved.messages,
        "bytesInCounter": moved.bytes,
        "averageMsgSize": moved.bytes / moved.messages if moved.messages else 0.0,
        "address": one.client.caller.host,
        **one.details.shown(),
        **dict(zip(_RATES_IN, moved.rates(), strict=True)),
    }


def _subscription_stats(one: SubscriptionSummary, state: PartitionState) -> dict[str, Any]:
    consumers = [_consumer_stats(consumer) for consumer in one.consumers]
    active = next((consumer.name for consumer in one.consumers if consumer is one.active), None)
    stats = {
        **_sums((*_RATES_OUT, "msgOutCounter", "bytesOutCounter"), consumers),
        "msgRateRedeliver": 0.0,
        "msgBacklog": one.backlog,
        "msgBacklogNoDelayed": max(0, one.backlog - one.delayed),
        "msgDelayed": one.delayed,
        "backlogSize": state.bytes * one.backlog // state.records if state.records else 0,
        "unackedMessages": sum(consumer.unacked for consumer in one.consumers),
        "blockedSubscriptionOnUnackedMsgs": False,
        "type": type_name(one.type),
        "isDurable": one.durable,
        "durable": one.durable,
        "isReplicated": False,
        "replicated": False,
        "allowOutOfOrderDelivery": False,
        "nonContiguousDeletedMessagesRanges": one.ranges,
        "consumers": consumers,
        "subscriptionProperties": dict(one.properties),
    }
    if active is not None:
        stats["activeConsumerName"] = active
    return stats


def _consumer_stats(consumer: SubscriptionConsumer) -> dict[str, Any]:
    sink = consumer.sink
    client: dict[str, Any] = {"address": "", "metadata": {}}
    moved = Throughput()
    if isinstance(sink, PulsarConsumer):
        moved = sink.throughput
        client = {"address": sink.client.caller.host, **sink.details.shown()}
    return {
        **dict(zip(_RATES_OUT, moved.rates(), strict=True)),
        "consumerName": consumer.name,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.unacked,
        "blockedConsumerOnUnackedMsgs": consumer.has_permits and not consumer.takes_more,
        "msgOutCounter": consumer.delivered,
        "bytesOutCounter": moved.bytes,
        "msgRateRedeliver": 0.0,
        **client,
    }


def partitioned_stats(call: AdminCall, topic: Topic, *, each: bool) -> dict[str, Any]:
    """The sums of all partitions, and with `each` those of each."""
    rows = {topic_url(topic, at): topic_stats(call, topic, at) for at in range(len(topic.streams))}
    subscriptions: dict[str, dict[str, Any]] = {}
    for row in rows.values():
        for name, stats in row["subscriptions"].items():
            whole = subscriptions.get(name)
            if whole is None:
                subscriptions[name] = dict(stats)
                continue
            for field in _SUMMED_OF_SUBSCRIPTIONS:
                whole[field] += stats[field]
            both = (
                *whole["consumers"],
                *stats["consumers"],
            )  # a consumer of the topic is one of each partition
            whole["consumers"] = list({one["consumerName"]: one for one in both}.values())
            whole["type"] = stats["type"] if whole["type"] == "None" else whole["type"]
    return {
        **{field: sum(row[field] for row in rows.values()) for field in _SUMMED},
        "averageMsgSize": max((row["averageMsgSize"] for row in rows.values()), default=0.0),
        # A producer of the topic is one of each partition, where it has another name.
        "publishers": max((row["publishers"] for row in rows.values()), key=len),
        "subscriptions": subscriptions,
        "replication": {},
        "metadata": {
            "partitions": len(topic.streams),
            "deleted": False,
            **properties_of(topic),
        },
        "partitions": rows if each else {},
    }


def properties_of(topic: Topic) -> dict[str, Any]:
    """The properties of a partitioned topic as a field of its metadata, which one without properties does not have."""
    properties = topic.config.properties if len(topic.streams) > 1 else ()
    return {"properties": dict(properties)} if properties else {}


def internal_stats(call: AdminCall, topic: Topic, partition: int) -> dict[str, Any]:
    state = call.broker.partition(topic.name, partition)
    ledger = ledger_of(topic)
    return {
        "entriesAddedCounter": state.end,
        "numberOfEntries": state.records,
        "totalSize": state.bytes,
        "currentLedgerEntries": state.records,
        "currentLedgerSize": state.bytes,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "lastConfirmedEntry": f"{ledger}:{state.end - 1}",
        "state": "Terminated" if topic.config.terminated else "LedgerOpened",
        "ledgers": [
            {
                "ledgerId": ledger,
                "entries": state.records,
                "size": state.bytes,
                "offloaded": False,
                "underReplicated": False,
            }
        ],
        "cursors": {
            one.name: _cursor(one, ledger, state.end)
            for one in call.subscriptions(topic, stream_of(topic, partition))
        },
        "schemaLedgers": [],
        "compactedLedger": {
            "ledgerId": -1,
            "entries": -1,
            "size": -1,
            "offloaded": False,
            "underReplicated": False,
        },
    }


def _cursor(one: SubscriptionSummary, ledger: int, end: int) -> dict[str, Any]:
    return {
        "markDeletePosition": f"{ledger}:{one.mark - 1}",
        "readPosition": f"{ledger}:{one.mark}",
        "waitingReadOp": False,
        "pendingReadOps": 0,
        "messagesConsumedCounter": end - one.backlog,
        "cursorLedger": -1,
        "cursorLedgerLastEntry": -1,
        "individuallyDeletedMessages": "[]",
        "state": "Open",
        "active": bool(one.consumers),
        "numberOfEntriesSinceFirstNotAckedMessage": end - one.mark,
        "totalNonContiguousDeletedMessagesRange": one.ranges,
        "subscriptionHavePendingRead": False,
        "subscriptionHavePendingReplayRead": False,
        "properties": {},
    }
