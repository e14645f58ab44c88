"""What Pulsar's admin API has and Mainstem does not: changes are refused with the reason, and nothing is set."""

from __future__ import annotations

from mainstem.broker.access.rules import Operation
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.pulsar.admin.call import CLUSTER, DONE, NOT_ALLOWED, AdminCall, AdminRefusal, answer

_GEO = f"there is no geo-replication: the one cluster is {CLUSTER}"
_OFFLOAD = "the server decides itself what moves to its object store"
_BUNDLES = "a namespace is one bundle: brokers share its topics, one by one"
_ISOLATION = "every broker serves every namespace"

# By the last fixed part of the path.
REASONS: dict[str, str] = {
    "backlog": "every topic is served: its stats have the backlogs",
    "bookieAffinity": "there are no bookies",
    "configuration": "the server's settings are its command line, its file and its environment",
    "dispatchRate": "rates limit users, groups, topics and namespaces: see mainstem rate",
    "failureDomains": _ISOLATION,
    "migration": _GEO,
    "migrate": _GEO,
    "namespaceIsolationPolicies": _ISOLATION,
    "offload": _OFFLOAD,
    "ownedNamespaces": "brokers serve topics, one by one: look up a topic",
    "peers": _GEO,
    "properties": "namespaces have no properties: topics and subscriptions have them",
    "property": "namespaces have no properties: topics and subscriptions have them",
    "replicatedSubscriptionStatus": _GEO,
    "replication": _GEO,
    "resourcegroup": "there are no resource groups: see mainstem rate",
    "scanOffloadedLedgers": _OFFLOAD,
    "shadowTopics": "a router copies records to another topic: see mainstem router",
    "shutdown": "stop the server by a signal",
    "split": _BUNDLES,
    "topicHashPositions": _BUNDLES,
    "trim": "retention deletes records on its own",
}


async def refuse(call: AdminCall, *parameters: str) -> Response:
    parts = call.path.split("/")
    reason = next(REASONS[part] for part in reversed(parts) if part in REASONS)
    raise AdminRefusal(NOT_ALLOWED, f"not available: {reason}")


async def not_set(call: AdminCall, topic: str, *parameters: str) -> Response:
    """A policy of a topic that nobody can set."""
    await call.topic(topic, Operation.DESCRIBE)
    return DONE


async def not_set_in_namespace(call: AdminCall, namespace: str, *parameters: str) -> Response:
    call.namespace(namespace)
    return DONE


async def none_of_namespace(call: AdminCall, namespace: str) -> Response:
    call.namespace(namespace)
    return answer({})


async def none_in_cluster(call: AdminCall, cluster: str) -> Response:
    _check_cluster(cluster)
    return answer({})


async def list_none_in_cluster(call: AdminCall, cluster: str, name: str = "") -> Response:
    _check_cluster(cluster)
    return answer([])


async def not_found(call: AdminCall, cluster: str, name: str) -> Response:
    _check_cluster(cluster)
    raise AdminRefusal(404, f"{name} does not exist: {_ISOLATION}")


def _check_cluster(cluster: str) -> None:
    if cluster != CLUSTER:
        raise AdminRefusal(404, f"Cluster does not exist: there is one, {CLUSTER}")


async def replicated_subscription_status(call: AdminCall, topic: str, subscription: str) -> Response:
    """Whether subscriptions are replicated to other clusters: none is."""
    await call.topic(topic, Operation.DESCRIBE)
    return answer({topic: False})
