"""Namespaces: create, delete, and what concerns all topics of one. `policies.py` has their policies."""

from __future__ import annotations

from mainstem.api.access import AUDIT_TOPIC
from mainstem.broker.access.rules import Operation
from mainstem.broker.topics.service import Topic
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.pulsar.admin.call import (
    CLUSTER,
    CONFLICT,
    DONE,
    NOT_ALLOWED,
    AdminCall,
    AdminRefusal,
    answer,
)
from mainstem.doors.pulsar.admin.policies import create_policies, namespace_summary
from mainstem.doors.pulsar.admin.tenants import namespaces_seen
from mainstem.doors.pulsar.commands import topic_urls
from mainstem.doors.pulsar.topic_names import NON_PERSISTENT, PERSISTENT, namespace_of, topic_url

_BUNDLE = ("0x00000000", "0xffffffff")  # the one that every namespace is
_BUNDLES = {"boundaries": _BUNDLE, "numBundles": 1}
_MODES = {"PERSISTENT": (PERSISTENT,), "NON_PERSISTENT": (NON_PERSISTENT,)}


async def list_namespaces(call: AdminCall, tenant: str) -> Response:
    return answer([name for name in namespaces_seen(call) if name.split("/")[0] == tenant])


async def create_namespace(call: AdminCall, namespace: str) -> Response:
    call.check_cluster(Operation.CREATE)
    name = namespace_of(namespace, call.caller.view)
    if call.broker.namespaces.exists(name):
        raise AdminRefusal(CONFLICT, "Namespace already exists")
    policies = create_policies(call.fields())
    await call.broker.namespaces.create(name, call.broker.namespaces.new_policies(policies))
    return DONE


async def delete_namespace(call: AdminCall, namespace: str) -> Response:
    call.check_cluster(Operation.ALTER)
    name = call.namespace(namespace)
    if call.flag("force"):
        for topic in call.broker.namespaces.topics(name):
            await call.broker.delete_topic(topic.name)
            call.producers.close_topic(topic.streams)
    await call.broker.namespaces.delete(name)
    return DONE


async def get_namespace(call: AdminCall, namespace: str) -> Response:
    summary = namespace_summary(call, call.namespace(namespace))
    return answer({"replication_clusters": [CLUSTER], "bundles": _BUNDLES, **summary})


async def list_topics_of_namespace(call: AdminCall, namespace: str) -> Response:
    domains = _MODES.get(call.text("mode") or "PERSISTENT", (PERSISTENT, NON_PERSISTENT))
    return answer([url for domain in domains for url in _urls(call, domain, namespace)])


async def list_topics(call: AdminCall, domain: str, namespace: str) -> Response:
    return answer(_urls(call, domain, namespace))


async def list_partitioned_topics(call: AdminCall, domain: str, namespace: str) -> Response:
    return answer(
        [
            url
            for topic in _topics(call, call.namespace(namespace))
            if len(topic.streams) > 1 and (url := topic_url(topic)).startswith(f"{domain}://")
        ]
    )


def _urls(call: AdminCall, domain: str, namespace: str) -> list[str]:
    return [
        url
        for topic in _topics(call, call.namespace(namespace))
        for url in topic_urls(topic)
        if url.startswith(f"{domain}://")
    ]


def _topics(call: AdminCall, namespace: str) -> list[Topic]:
    """Those that the client may see."""
    topics = call.broker.namespaces.topics(namespace)
    return [topic for topic in topics if call.caller.may(Operation.DESCRIBE, topic.name)]


async def get_bundles(call: AdminCall, namespace: str) -> Response:
    call.namespace(namespace)
    return answer(_BUNDLES)


async def get_replication(call: AdminCall, namespace: str) -> Response:
    call.namespace(namespace)
    return answer([CLUSTER])


async def set_replication(call: AdminCall, namespace: str) -> Response:
    call.namespace(namespace)
    if call.body() != [CLUSTER]:
        raise AdminRefusal(NOT_ALLOWED, f"there is no geo-replication: the one cluster is {CLUSTER}")
    return DONE


async def unload(call: AdminCall, namespace: str, bundle: str = "") -> Response:
    """Producers and consumers of the namespace connect again."""
    call.check_cluster(Operation.ALTER)
    for topic in call.broker.namespaces.topics(call.namespace(namespace)):
        disconnect(call, topic)
    return DONE


def disconnect(call: AdminCall, topic: Topic) -> None:
    for stream in topic.streams:
        call.producers.disconnect(stream)
    call.broker.subscriptions.disconnect(topic.streams)


# Backlogs of all topics


async def clear_backlog(call: AdminCall, namespace: str, subscription: str = "") -> Response:
    for topic, at, name in _subscriptions(call, namespace, subscription):
        end = call.broker.streams.bounds(topic.streams[at])[1]
        await call.broker.subscriptions.skip(topic, at, name, end)
    return DONE


async def unsubscribe(call: AdminCall, namespace: str, subscription: str) -> Response:
    for topic, at, name in _subscriptions(call, namespace, subscription):
        await call.broker.subscriptions.delete(topic, at, name)
    return DONE


async def clear_bundle(call: AdminCall, namespace: str, bundle: str, subscription: str = "") -> Response:
    _check_bundle(bundle)
    return await clear_backlog(call, namespace, subscription)


async def unsubscribe_bundle(call: AdminCall, namespace: str, bundle: str, subscription: str) -> Response:
    _check_bundle(bundle)
    return await unsubscribe(call, namespace, subscription)


async def list_bundle(call: AdminCall, namespace: str, bundle: str) -> Response:
    """The topics of a bundle that are not persistent."""
    _check_bundle(bundle)
    return answer(_urls(call, NON_PERSISTENT, namespace))


def _check_bundle(bundle: str) -> None:
    if bundle != "_".join(_BUNDLE):
        raise AdminRefusal(404, f"Bundle does not exist: a namespace is one bundle, {'_'.join(_BUNDLE)}")


def _subscriptions(call: AdminCall, namespace: str, wanted: str) -> list[tuple[Topic, int, str]]:
    found = []
    for topic in call.broker.namespaces.topics(call.namespace(namespace)):
        if topic.name == AUDIT_TOPIC:
            continue  # the server's own, which comes and goes without the namespace's clients
        call.caller.check(Operation.READ, topic.name)
        for at, stream in enumerate(topic.streams):
            for name, _ in call.broker.subscriptions.marks(stream):
                if wanted in ("", name):
                    call.caller.check_subscription(topic.name, name)
                    found.append((topic, at, name))
    return found
