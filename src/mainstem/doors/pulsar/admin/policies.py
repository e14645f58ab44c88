"""Policies of namespaces and topics. Those that the server cannot follow are refused, with the reason.

A policy is a set of fields that the policies of a namespace and the settings of a topic have in common. A topic follows
its namespace until it has the policy itself: then the names of its settings are in `TopicConfig.named`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import msgspec

from mainstem.api.topics import BacklogPolicy, InactiveMode
from mainstem.broker.access.rules import Operation
from mainstem.broker.topics.service import Topic, TopicConfig
from mainstem.broker.topics.topic_settings import BY_FIELD
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.pulsar.admin import rates
from mainstem.doors.pulsar.admin.call import (
    DONE,
    NOT_ALLOWED,
    PRECONDITION_FAILED,
    AdminCall,
    AdminRefusal,
    answer,
    whole_number,
)
from mainstem.errors import InvalidInput

Values = Mapping[str, Any]  # by field; None: not set
_MB = 1 << 20
_MINUTE_MS, _SECOND_MS = 60_000, 1_000
_NONE = -1  # of a limit that is off


class PulsarPolicy(NamedTuple):
    fields: tuple[str, ...]
    show: Callable[[Values], Any]  # as JSON; None: not set
    parse: Callable[[AdminCall], dict[str, Any]]  # the fields that a request sets


# Retention


def _show_retention(values: Values) -> Any:
    time_ms, size = values["retention_ms"], values["retention_bytes"]
    if time_ms is None and size is None:
        return None
    return {
        "retentionTimeInMinutes": _NONE if time_ms in (None, _NONE) else time_ms // _MINUTE_MS,
        "retentionSizeInMB": _NONE if size in (None, _NONE) else size // _MB,
    }


def _parse_retention(call: AdminCall) -> dict[str, Any]:
    return _retention(call.fields())


def _retention(body: dict[str, Any]) -> dict[str, Any]:
    minutes = whole_number(body.get("retentionTimeInMinutes", 0), "retentionTimeInMinutes")
    megabytes = whole_number(body.get("retentionSizeInMB", 0), "retentionSizeInMB")
    if min(minutes, megabytes) < _NONE or (minutes == 0) != (megabytes == 0):
        raise AdminRefusal(
            400,
            "Invalid retention policy: both limits are 0 (delete what is acknowledged), or both are -1 (no limit) "
            "or more than 0",
        )
    return {
        "retention_ms": minutes if minutes < 0 else minutes * _MINUTE_MS,
        "retention_bytes": megabytes if megabytes < 0 else megabytes * _MB,
        "keep_backlog": True,
    }


RETENTION = PulsarPolicy(
    ("retention_ms", "retention_bytes", "keep_backlog"), _show_retention, _parse_retention
)


# Message TTL


def _show_ttl(values: Values) -> Any:
    return None if values["subscription_ttl_ms"] is None else values["subscription_ttl_ms"] // _SECOND_MS


def _parse_ttl(call: AdminCall) -> dict[str, Any]:
    return _ttl(call.text("messageTTL") or call.body())


def _ttl(value: object) -> dict[str, Any]:
    seconds = whole_number(value, "messageTTL")
    if seconds < 0:
        raise AdminRefusal(PRECONDITION_FAILED, "Invalid value for message TTL")
    return {"subscription_ttl_ms": seconds * _SECOND_MS}


MESSAGE_TTL = PulsarPolicy(("subscription_ttl_ms",), _show_ttl, _parse_ttl)


# Backlog quotas

_SIZE_QUOTA, _AGE_QUOTA = "destination_storage", "message_age"
_SIZE_FIELDS = ("backlog_bytes", "backlog_bytes_policy")
_AGE_FIELDS = ("backlog_ms", "backlog_ms_policy")


def _show_quotas(values: Values) -> Any:
    found: dict[str, Any] = {}
    if values["backlog_bytes"]:
        found[_SIZE_QUOTA] = _quota(values["backlog_bytes"], _NONE, values["backlog_bytes_policy"])
    if values["backlog_ms"]:
        found[_AGE_QUOTA] = _quota(_NONE, values["backlog_ms"] // _SECOND_MS, values["backlog_ms_policy"])
    return found


def _quota(size: int, seconds: int, policy: str) -> dict[str, Any]:
    return {"limit": size, "limitSize": size, "limitTime": seconds, "policy": policy}


def _parse_quota(call: AdminCall) -> dict[str, Any]:
    return _one_quota(call.text("backlogQuotaType") or _SIZE_QUOTA, call.fields())


def _one_quota(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    policy = body.get("policy")
    if policy not in get_args(BacklogPolicy):
        raise AdminRefusal(PRECONDITION_FAILED, f"policy is one of {', '.join(get_args(BacklogPolicy))}")
    if kind == _AGE_QUOTA:
        seconds = whole_number(body.get("limitTime", 0), "limitTime")
        return {"backlog_ms": max(seconds, 0) * _SECOND_MS, "backlog_ms_policy": policy}
    if kind != _SIZE_QUOTA:
        raise InvalidInput(f"backlogQuotaType is {_SIZE_QUOTA} or {_AGE_QUOTA}")
    size = body.get("limitSize")
    if size in (None, 0, _NONE):
        size = body.get("limit", 0)
    return {"backlog_bytes": max(whole_number(size, "limitSize"), 0), "backlog_bytes_policy": policy}


QUOTAS = PulsarPolicy((*_SIZE_FIELDS, *_AGE_FIELDS), _show_quotas, _parse_quota)


def _removed_quota(call: AdminCall) -> PulsarPolicy:
    """The quota that a request removes."""
    kind = call.text("backlogQuotaType") or _SIZE_QUOTA
    return QUOTAS._replace(fields=_AGE_FIELDS if kind == _AGE_QUOTA else _SIZE_FIELDS)


# Numbers


def _number_policy(field: str, unit: int = 1) -> PulsarPolicy:
    def show(values: Values) -> Any:
        return None if values[field] is None else values[field] // unit

    def parse(call: AdminCall) -> dict[str, Any]:
        return {field: _limit(call.number()) * unit}

    return PulsarPolicy((field,), show, parse)


def _limit(number: int) -> int:
    if number < 0:
        raise AdminRefusal(PRECONDITION_FAILED, "the limit must be 0 or more")
    return number


MESSAGE_SIZE = _number_policy("max_message_bytes")
PRODUCERS = _number_policy("producers_max")
CONSUMERS = _number_policy("consumers_max")
SUBSCRIPTIONS = _number_policy("subscriptions_max")
SUBSCRIPTION_CONSUMERS = _number_policy("subscription_consumers_max")
CONSUMER_UNACKED = _number_policy("consumer_unacked_max")
SUBSCRIPTION_UNACKED = _number_policy("subscription_unacked_max")
SUBSCRIPTION_EXPIRY = _number_policy("subscription_expiry_ms", _MINUTE_MS)
TOPICS = PulsarPolicy(
    ("topics_max",),
    lambda values: values["topics_max"] or None,
    lambda call: {"topics_max": _limit(call.number())},
)


# Inactive topics


def _show_inactivity(values: Values) -> Any:
    if values["inactive_ms"] is None:
        return None
    return {
        "inactiveTopicDeleteMode": values["inactive_mode"],
        "maxInactiveDurationSeconds": values["inactive_ms"] // _SECOND_MS,
        "deleteWhileInactive": values["inactive_ms"] > 0,
    }


def _parse_inactivity(call: AdminCall) -> dict[str, Any]:
    return _inactivity(call.fields())


def _inactivity(body: dict[str, Any]) -> dict[str, Any]:
    mode = body.get("inactiveTopicDeleteMode") or get_args(InactiveMode)[0]
    if mode not in get_args(InactiveMode):
        raise AdminRefusal(
            PRECONDITION_FAILED, f"inactiveTopicDeleteMode is one of {', '.join(get_args(InactiveMode))}"
        )
    seconds = whole_number(body.get("maxInactiveDurationSeconds", 0), "maxInactiveDurationSeconds")
    active = body.get("deleteWhileInactive", False) is True
    return {"inactive_ms": max(seconds, 0) * _SECOND_MS if active else 0, "inactive_mode": mode}


INACTIVITY = PulsarPolicy(("inactive_ms", "inactive_mode"), _show_inactivity, _parse_inactivity)


# Deduplication


def _show_deduplication(values: Values) -> Any:
    return values["deduplication"]


def _parse_deduplication(call: AdminCall) -> dict[str, Any]:
    return _deduplication(call.body())


def _deduplication(value: object) -> dict[str, Any]:
    if not isinstance(value, bool):
        raise AdminRefusal(PRECONDITION_FAILED, "deduplication is true or false")
    return {"deduplication": value}


DEDUPLICATION = PulsarPolicy(("deduplication",), _show_deduplication, _parse_deduplication)


# Policies of a namespace


def _namespace_getter(policy: PulsarPolicy) -> Callable[..., Any]:
    async def get(call: AdminCall, namespace: str) -> Response:
        return _policy_response(policy.show(_namespace_values(call, call.namespace(namespace), policy)))

    return get


def _namespace_values(call: AdminCall, namespace: str, policy: PulsarPolicy) -> Values:
    policies = call.broker.namespaces.get(namespace).policies
    return {field: getattr(policies, field) for field in policy.fields}


def _namespace_setter(policy: PulsarPolicy) -> Callable[..., Any]:
    async def set(call: AdminCall, namespace: str) -> Response:
        return await _change_namespace(call, namespace, policy.parse(call))

    return set


def _namespace_remover(chosen: Callable[[AdminCall], PulsarPolicy]) -> Callable[..., Any]:
    async def remove(call: AdminCall, namespace: str) -> Response:
        return await _change_namespace(call, namespace, dict.fromkeys(chosen(call).fields))

    return remove


async def _change_namespace(call: AdminCall, text: str, changes: dict[str, Any]) -> Response:
    """Change the defaults of a namespace, also for its topics that have no setting of their own."""
    call.check_cluster(Operation.ALTER)
    namespace, namespaces = call.namespace(text), call.broker.namespaces
    if changes.keys() == {"topics_max"}:  # topics do not have it
        await namespaces.alter(namespace, {"topics_max": changes["topics_max"] or 0})
        return DONE
    await namespaces.alter(namespace, changes)
    for topic in namespaces.topics(namespace):
        default = namespaces.default_config(topic.name)
        following = {
            field: getattr(default, field)
            for field in changes
            if BY_FIELD[field].name not in topic.config.named
        }
        if following.get("keep_backlog") is False:  # the default of the server, which other doors use
            del following["keep_backlog"]
        if any(getattr(topic.config, field) != value for field, value in following.items()):
            await call.broker.change_topic(topic.name, lambda config: _replaced(config, following))  # noqa: B023
    return DONE


def _replaced(config: TopicConfig, changes: dict[str, Any]) -> TopicConfig:
    return msgspec.structs.replace(config, **changes)


def namespace_summary(call: AdminCall, namespace: str) -> dict[str, Any]:
    """The policies of a namespace that are set, as Pulsar names them."""
    found = {
        name: policy.show(_namespace_values(call, namespace, policy)) for name, policy in _SUMMARY.items()
    }
    return {name: value for name, value in found.items() if value is not None}


_LIMITS = {
    "max_producers_per_topic": PRODUCERS,
    "max_consumers_per_topic": CONSUMERS,
    "max_subscriptions_per_topic": SUBSCRIPTIONS,
    "max_consumers_per_subscription": SUBSCRIPTION_CONSUMERS,
    "max_unacked_messages_per_consumer": CONSUMER_UNACKED,
    "max_unacked_messages_per_subscription": SUBSCRIPTION_UNACKED,
}
_SUMMARY = {
    "retention_policies": RETENTION,
    "message_ttl_in_seconds": MESSAGE_TTL,
    "deduplicationEnabled": DEDUPLICATION,
    "backlog_quota_map": QUOTAS,
    "subscription_expiration_time_minutes": SUBSCRIPTION_EXPIRY,
    "inactive_topic_policies": INACTIVITY,
    **_LIMITS,
}


def create_policies(body: dict[str, Any]) -> dict[str, Any]:
    """The policies of a new namespace. Raises AdminRefusal for one that the server cannot follow."""
    found: dict[str, Any] = {}
    if body.get("retention_policies"):
        found |= _retention(body["retention_policies"])
    if body.get("message_ttl_in_seconds"):
        found |= _ttl(body["message_ttl_in_seconds"])
    if body.get("deduplicationEnabled") is not None:
        found |= _deduplication(body["deduplicationEnabled"])
    for kind, quota in (body.get("backlog_quota_map") or {}).items():
        found |= _one_quota(kind, quota)
    for name, policy in _LIMITS.items():
        if body.get(name) is not None:
            found[policy.fields[0]] = _limit(whole_number(body[name], name))
    if body.get("subscription_expiration_time_minutes"):
        minutes = whole_number(body["subscription_expiration_time_minutes"], "the expiration time")
        found["subscription_expiry_ms"] = _limit(minutes) * _MINUTE_MS
    if body.get("inactive_topic_policies"):
        found |= _inactivity(body["inactive_topic_policies"])
    for name in _REFUSED_AT_CREATION:
        if body.get(name):
            raise AdminRefusal(NOT_ALLOWED, f"the policy {name} has no effect here, so it is not stored")
    return found


_REFUSED_AT_CREATION = ("encryption_required", "compaction_threshold", "offload_policies")


# Policies of a topic


def _topic_getter(policy: PulsarPolicy) -> Callable[..., Any]:
    async def get(call: AdminCall, topic: str) -> Response:
        _, found = await call.topic(topic, Operation.DESCRIBE)
        return _policy_response(policy.show(_topic_values(found, policy, applied=call.flag("applied"))))

    return get


def _topic_values(topic: Topic, policy: PulsarPolicy, *, applied: bool) -> Values:
    named = topic.config.named
    return {
        field: getattr(topic.config, field) if applied or BY_FIELD[field].name in named else None
        for field in policy.fields
    }


def _topic_setter(policy: PulsarPolicy) -> Callable[..., Any]:
    async def set(call: AdminCall, topic: str) -> Response:
        changes = policy.parse(call)
        _, found = await call.topic(topic, Operation.ALTER_CONFIGS)
        names = {BY_FIELD[field].name for field in changes}

        def change(config: TopicConfig) -> TopicConfig:
            return _replaced(config, {**changes, "named": tuple(sorted({*config.named, *names}))})

        await call.broker.change_topic(found.name, change)
        return DONE

    return set


def _topic_remover(chosen: Callable[[AdminCall], PulsarPolicy]) -> Callable[..., Any]:
    async def remove(call: AdminCall, topic: str) -> Response:
        _, found = await call.topic(topic, Operation.ALTER_CONFIGS)
        default = call.broker.namespaces.default_config(found.name)
        fields = [field for field in chosen(call).fields if field != "keep_backlog"]
        names = {BY_FIELD[field].name for field in chosen(call).fields}

        def change(config: TopicConfig) -> TopicConfig:
            back = {field: getattr(default, field) for field in fields}
            return _replaced(config, {**back, "named": tuple(sorted(set(config.named) - names))})

        await call.broker.change_topic(found.name, change)
        return DONE

    return remove


async def remove_topic_policies(call: AdminCall, topic: str) -> Response:
    """All of them at once."""
    for handlers in TOPIC_POLICIES.values():
        await handlers.remove(call, topic)
    await _topic_remover(lambda call: QUOTAS)(call, topic)  # of both kinds
    for kind in (rates.PUBLISH, rates.DISPATCH):
        await rates.remover(kind, rates.of_topic)(call, topic)
    return DONE


def _policy_response(value: object) -> Response:
    """A policy that is not set has no content."""
    return DONE if value is None else answer(value)


class PolicyHandlers(NamedTuple):
    get: Callable[..., Any]
    set: Callable[..., Any]
    remove: Callable[..., Any]


def of_namespaces(
    policy: PulsarPolicy, chosen: Callable[[AdminCall], PulsarPolicy] | None = None
) -> PolicyHandlers:
    return PolicyHandlers(
        _namespace_getter(policy), _namespace_setter(policy), _namespace_remover(chosen or (lambda _: policy))
    )


def of_topics(
    policy: PulsarPolicy, chosen: Callable[[AdminCall], PulsarPolicy] | None = None
) -> PolicyHandlers:
    return PolicyHandlers(
        _topic_getter(policy), _topic_setter(policy), _topic_remover(chosen or (lambda _: policy))
    )


NAMESPACE_POLICIES: dict[str, PolicyHandlers] = {
    "retention": of_namespaces(RETENTION),
    "messageTTL": of_namespaces(MESSAGE_TTL),
    "backlogQuota": of_namespaces(QUOTAS, _removed_quota),
    "deduplication": of_namespaces(DEDUPLICATION),
    "maxProducersPerTopic": of_namespaces(PRODUCERS),
    "maxConsumersPerTopic": of_namespaces(CONSUMERS),
    "maxSubscriptionsPerTopic": of_namespaces(SUBSCRIPTIONS),
    "maxConsumersPerSubscription": of_namespaces(SUBSCRIPTION_CONSUMERS),
    "maxUnackedMessagesPerConsumer": of_namespaces(CONSUMER_UNACKED),
    "maxUnackedMessagesPerSubscription": of_namespaces(SUBSCRIPTION_UNACKED),
    "subscriptionExpirationTime": of_namespaces(SUBSCRIPTION_EXPIRY),
    "inactiveTopicPolicies": of_namespaces(INACTIVITY),
    "maxTopicsPerNamespace": of_namespaces(TOPICS),
}
TOPIC_POLICIES: dict[str, PolicyHandlers] = {
    "retention": of_topics(RETENTION),
    "messageTTL": of_topics(MESSAGE_TTL),
    "backlogQuota": of_topics(QUOTAS, _removed_quota),
    "maxMessageSize": of_topics(MESSAGE_SIZE),
    "deduplicationEnabled": of_topics(DEDUPLICATION),
    "maxProducers": of_topics(PRODUCERS),
    "maxConsumers": of_topics(CONSUMERS),
    "maxSubscriptionsPerTopic": of_topics(SUBSCRIPTIONS),
    "maxConsumersPerSubscription": of_topics(SUBSCRIPTION_CONSUMERS),
    "maxUnackedMessagesOnConsumer": of_topics(CONSUMER_UNACKED),
    "maxUnackedMessagesOnSubscription": of_topics(SUBSCRIPTION_UNACKED),
    "inactiveTopicPolicies": of_topics(INACTIVITY),
}
BACKLOG_QUOTA_MAP = "backlogQuotaMap"  # where the quotas of both kinds are read


# Delayed delivery, which is always on


async def get_delayed_delivery(call: AdminCall, scope: str) -> Response:
    return answer({"active": True, "tickTime": 1, "maxDeliveryDelayInMillis": 0})


async def set_delayed_delivery(call: AdminCall, scope: str) -> Response:
    body = call.fields()
    if body.get("active") is not True or body.get("maxDeliveryDelayInMillis"):
        raise AdminRefusal(NOT_ALLOWED, "delayed delivery is always on, for any delay")
    return DONE


# What has no effect here


_NO_EFFECT: dict[str, str] = {
    "persistence": "the log stores every topic in the same way: mainstem.durability says how",
    "compactionThreshold": "topics with cleanup.policy=compact are compacted by their own settings",
    "subscribeRate": "subscribing is not limited",
    "subscriptionDispatchRate": "rates limit users, groups and namespaces: see mainstem rate",
    "replicatorDispatchRate": "there is no geo-replication",
    "deduplicationSnapshotInterval": "producers are remembered by the ledger",
    "schemaValidationEnforced": "producers without a schema are accepted",
    "autoSubscriptionCreation": "consumers create their subscriptions",
    "subscriptionTypesEnabled": "all types of subscriptions are on",
    "subscriptionAuthMode": "a subscription is a group to the access rules",
    "encryptionRequired": "the server stores encrypted messages, and others too",
    "offloadPolicies": "the server decides itself what moves to its object store",
    "offloadThreshold": "the server decides itself what moves to its object store",
    "offloadThresholdInSeconds": "the server decides itself what moves to its object store",
    "offloadDeletionLagMs": "the server decides itself what moves to its object store",
    "antiAffinity": "every broker serves every namespace",
    "resourcegroup": "there are no resource groups: see mainstem rate",
    "entryFilters": "there are no entry filters",
    "isAllowAutoUpdateSchema": "producers may register schemas that the compatibility strategy allows",
    "schemaAutoUpdateCompatibilityStrategy": "use schemaCompatibilityStrategy",
    "dispatcherPauseOnAckStatePersistent": "acknowledgements are stored before their receipts",
    "autoTopicCreation": "the server's setting --pulsar-auto-create decides",
}
NO_EFFECT = tuple(_NO_EFFECT)


async def get_without_effect(call: AdminCall, scope: str, *rest: str) -> Response:
    """A policy that no one can set."""
    return DONE


def refuse(policy: str) -> Callable[..., Any]:
    async def refused(call: AdminCall, scope: str, *rest: str) -> Response:
        raise AdminRefusal(
            NOT_ALLOWED, f"the policy {policy} has no effect here, so it is not stored: {_NO_EFFECT[policy]}"
        )

    return refused
