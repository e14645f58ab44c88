"""The paths of the admin API, and who answers them: one table.

In a path, `{namespace}` is two segments and `{topic}` is four (`persistent/tenant/namespace/name`), which the handler
gets as `tenant/namespace` and `persistent://tenant/namespace/name`. Any other name in braces is one segment. Schemas
name a topic without its domain: `{plain_topic}` is three segments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from mainstem.doors.http.transport.responses import Response
from mainstem.doors.pulsar.admin import (
    absent,
    clusters,
    messages,
    namespaces,
    permissions,
    policies,
    rates,
    schemas,
    subscriptions,
    tenants,
    topics,
)
from mainstem.doors.pulsar.topic_names import NON_PERSISTENT, PERSISTENT

AdminHandler = Callable[..., Awaitable[Response]]

_TOPIC = "admin/v2/{topic}"
_NAMESPACE = "admin/v2/namespaces/{namespace}"
_CLUSTER = "admin/v2/clusters/{cluster}"
_ISOLATION = f"{_CLUSTER}/namespaceIsolationPolicies"
_SUBSCRIPTION = f"{_TOPIC}/subscription/{{subscription}}"
_SCHEMAS = "admin/v2/schemas/{plain_topic}"

_Row = tuple[str, str, AdminHandler]

_CLUSTERS: tuple[_Row, ...] = (
    ("GET", "admin/v2/clusters", clusters.list_clusters),
    ("GET", "admin/v2/clusters/{cluster}", clusters.get_cluster),
    ("PUT", "admin/v2/clusters/{cluster}", clusters.change_cluster),
    ("POST", "admin/v2/clusters/{cluster}", clusters.change_cluster),
    ("DELETE", "admin/v2/clusters/{cluster}", clusters.change_cluster),
    ("GET", "admin/v2/clusters/{cluster}/peers", clusters.list_peers),
    ("GET", "admin/v2/clusters/{cluster}/failureDomains", clusters.list_failure_domains),
    ("GET", "admin/v2/brokers", clusters.list_brokers),
    ("GET", "admin/v2/brokers/health", clusters.get_health),
    ("GET", "admin/v2/brokers/ready", clusters.get_health),
    ("GET", "admin/v2/brokers/version", clusters.get_version),
    ("GET", "admin/v2/brokers/leaderBroker", clusters.get_leader),
    ("GET", "admin/v2/brokers/configuration", clusters.list_settings),
    ("GET", "admin/v2/brokers/configuration/runtime", clusters.get_settings),
    ("GET", "admin/v2/brokers/configuration/values", clusters.get_settings),
    ("GET", "admin/v2/brokers/internal-configuration", clusters.get_settings),
    ("GET", "admin/v2/brokers/backlog-quota-check", clusters.check_backlog_quotas),
    ("GET", "admin/v2/brokers/{cluster}", clusters.list_brokers),
    ("GET", "admin/v2/broker-stats/{kind}", clusters.get_broker_stats),
    ("GET", "admin/v2/broker-stats/{kind}/{name}", clusters.get_broker_stats),
    ("GET", "admin/v2/broker-stats/{kind}/{namespace}", clusters.get_broker_stats),
)
_ABSENT: tuple[_Row, ...] = (
    ("POST", "admin/v2/brokers/configuration/{name}/{value}", absent.refuse),
    ("DELETE", "admin/v2/brokers/configuration/{name}", absent.refuse),
    ("POST", "admin/v2/brokers/shutdown", absent.refuse),
    ("GET", "admin/v2/brokers/{cluster}/{broker}/ownedNamespaces", absent.refuse),
    ("POST", f"{_CLUSTER}/peers", absent.refuse),
    ("GET", f"{_CLUSTER}/migrate", absent.none_in_cluster),
    ("POST", f"{_CLUSTER}/migrate", absent.refuse),
    ("GET", f"{_CLUSTER}/failureDomains/{{name}}", absent.not_found),
    ("POST", f"{_CLUSTER}/failureDomains/{{name}}", absent.refuse),
    ("DELETE", f"{_CLUSTER}/failureDomains/{{name}}", absent.not_found),
    ("GET", f"{_ISOLATION}", absent.none_in_cluster),
    ("GET", f"{_ISOLATION}/brokers", absent.list_none_in_cluster),
    ("GET", f"{_ISOLATION}/{{name}}", absent.not_found),
    ("POST", f"{_ISOLATION}/{{name}}", absent.refuse),
    ("DELETE", f"{_ISOLATION}/{{name}}", absent.not_found),
    ("GET", "admin/v2/namespaces/{cluster}/antiAffinity/{group}", absent.list_none_in_cluster),
    ("GET", f"{_NAMESPACE}/properties", absent.none_of_namespace),
    ("PUT", f"{_NAMESPACE}/properties", absent.refuse),
    ("DELETE", f"{_NAMESPACE}/properties", absent.not_set_in_namespace),
    ("GET", f"{_NAMESPACE}/property/{{name}}", absent.not_set_in_namespace),
    ("PUT", f"{_NAMESPACE}/property/{{name}}/{{value}}", absent.refuse),
    ("DELETE", f"{_NAMESPACE}/property/{{name}}", absent.not_set_in_namespace),
    ("GET", f"{_NAMESPACE}/persistence/bookieAffinity", absent.not_set_in_namespace),
    ("POST", f"{_NAMESPACE}/persistence/bookieAffinity", absent.refuse),
    ("DELETE", f"{_NAMESPACE}/persistence/bookieAffinity", absent.not_set_in_namespace),
    ("POST", f"{_NAMESPACE}/migration", absent.refuse),
    ("POST", f"{_NAMESPACE}/resourcegroup/{{name}}", absent.refuse),
    ("GET", f"{_NAMESPACE}/scanOffloadedLedgers", absent.refuse),
    ("DELETE", f"{_NAMESPACE}/removeOffloadPolicies", absent.not_set_in_namespace),
    ("GET", f"{_NAMESPACE}/{{bundle}}/topicHashPositions", absent.refuse),
    ("PUT", f"{_NAMESPACE}/{{bundle}}/split", absent.refuse),
    ("GET", f"{_TOPIC}/backlog", absent.refuse),
    ("GET", f"{_TOPIC}/replication", absent.not_set),
    ("POST", f"{_TOPIC}/replication", absent.refuse),
    ("DELETE", f"{_TOPIC}/replication", absent.not_set),
    ("GET", f"{_TOPIC}/shadowTopics", absent.not_set),
    ("PUT", f"{_TOPIC}/shadowTopics", absent.refuse),
    ("DELETE", f"{_TOPIC}/shadowTopics", absent.not_set),
    ("GET", f"{_TOPIC}/offload", absent.refuse),
    ("PUT", f"{_TOPIC}/offload", absent.refuse),
    ("POST", f"{_TOPIC}/trim", absent.refuse),
    ("GET", f"{_TOPIC}/{{subscription}}/dispatchRate", absent.not_set),
    ("POST", f"{_TOPIC}/{{subscription}}/dispatchRate", absent.refuse),
    ("DELETE", f"{_TOPIC}/{{subscription}}/dispatchRate", absent.not_set),
    ("GET", f"{_SUBSCRIPTION}/replicatedSubscriptionStatus", absent.replicated_subscription_status),
    ("POST", f"{_SUBSCRIPTION}/replicatedSubscriptionStatus", absent.refuse),
)
_TENANTS: tuple[_Row, ...] = (
    ("GET", "admin/v2/tenants", tenants.list_tenants),
    ("GET", "admin/v2/tenants/{tenant}", tenants.get_tenant),
    ("PUT", "admin/v2/tenants/{tenant}", tenants.create_tenant),
    ("POST", "admin/v2/tenants/{tenant}", tenants.update_tenant),
    ("DELETE", "admin/v2/tenants/{tenant}", tenants.delete_tenant),
)
_NAMESPACES: tuple[_Row, ...] = (
    ("GET", "admin/v2/namespaces/{tenant}", namespaces.list_namespaces),
    ("GET", _NAMESPACE, namespaces.get_namespace),
    ("PUT", _NAMESPACE, namespaces.create_namespace),
    ("DELETE", _NAMESPACE, namespaces.delete_namespace),
    ("GET", f"{_NAMESPACE}/topics", namespaces.list_topics_of_namespace),
    ("GET", f"{_NAMESPACE}/bundles", namespaces.get_bundles),
    ("GET", f"{_NAMESPACE}/replication", namespaces.get_replication),
    ("POST", f"{_NAMESPACE}/replication", namespaces.set_replication),
    ("GET", f"{_NAMESPACE}/allowedClusters", namespaces.get_replication),
    ("POST", f"{_NAMESPACE}/allowedClusters", namespaces.set_replication),
    ("PUT", f"{_NAMESPACE}/unload", namespaces.unload),
    ("PUT", f"{_NAMESPACE}/{{bundle}}/unload", namespaces.unload),
    ("POST", f"{_NAMESPACE}/clearBacklog", namespaces.clear_backlog),
    ("POST", f"{_NAMESPACE}/clearBacklog/{{subscription}}", namespaces.clear_backlog),
    ("POST", f"{_NAMESPACE}/unsubscribe/{{subscription}}", namespaces.unsubscribe),
    ("POST", f"{_NAMESPACE}/{{bundle}}/clearBacklog", namespaces.clear_bundle),
    ("POST", f"{_NAMESPACE}/{{bundle}}/clearBacklog/{{subscription}}", namespaces.clear_bundle),
    ("POST", f"{_NAMESPACE}/{{bundle}}/unsubscribe/{{subscription}}", namespaces.unsubscribe_bundle),
    ("GET", f"{_NAMESPACE}/permissions", permissions.namespace_permissions),
    ("GET", f"{_NAMESPACE}/permissions/subscription", permissions.subscription_permissions),
    ("POST", f"{_NAMESPACE}/permissions/subscription/{{subscription}}", permissions.grant_subscription),
    (
        "DELETE",
        f"{_NAMESPACE}/permissions/{{subscription}}/{{role}}",
        permissions.revoke_subscription,
    ),
    ("POST", f"{_NAMESPACE}/permissions/{{role}}", permissions.grant_namespace),
    ("DELETE", f"{_NAMESPACE}/permissions/{{role}}", permissions.revoke_namespace),
)
_TOPICS: tuple[_Row, ...] = (
    ("GET", "admin/v2/{domain}/{namespace}", namespaces.list_topics),
    ("GET", "admin/v2/{domain}/{namespace}/partitioned", namespaces.list_partitioned_topics),
    ("GET", "admin/v2/non-persistent/{namespace}/{bundle}", namespaces.list_bundle),
    ("PUT", _TOPIC, topics.create),
    ("DELETE", _TOPIC, topics.delete),
    ("GET", f"{_TOPIC}/partitions", topics.get_partitions),
    ("PUT", f"{_TOPIC}/partitions", topics.create_partitioned),
    ("POST", f"{_TOPIC}/partitions", topics.add_partitions),
    ("DELETE", f"{_TOPIC}/partitions", topics.delete),
    ("POST", f"{_TOPIC}/createMissedPartitions", topics.create_missing_partitions),
    ("DELETE", f"{_TOPIC}/truncate", topics.truncate),
    ("PUT", f"{_TOPIC}/unload", topics.unload),
    ("GET", f"{_TOPIC}/stats", topics.get_stats),
    ("GET", f"{_TOPIC}/partitioned-stats", topics.get_partitioned_stats),
    ("GET", f"{_TOPIC}/internalStats", topics.get_internal_stats),
    ("GET", f"{_TOPIC}/partitioned-internalStats", topics.get_partitioned_internal_stats),
    ("GET", f"{_TOPIC}/internal-info", topics.get_internal_info),
    ("PUT", f"{_TOPIC}/backlogSize", subscriptions.get_backlog_size),
    ("DELETE", f"{_TOPIC}/policies", policies.remove_topic_policies),
    ("POST", f"{_TOPIC}/terminate", topics.terminate),
    ("POST", f"{_TOPIC}/terminate/partitions", topics.terminate_partitions),
    ("PUT", f"{_TOPIC}/compaction", topics.compact),
    ("GET", f"{_TOPIC}/compaction", topics.get_compaction),
    ("GET", f"{_TOPIC}/properties", topics.get_properties),
    ("PUT", f"{_TOPIC}/properties", topics.put_properties),
    ("DELETE", f"{_TOPIC}/properties", topics.delete_property),
    ("GET", f"{_TOPIC}/permissions", permissions.topic_permissions),
    ("POST", f"{_TOPIC}/permissions/{{role}}", permissions.grant_topic),
    ("POST", "admin/v2/namespaces/grantPermissionsOnTopics", permissions.grant_topics),
    ("POST", "admin/v2/namespaces/revokePermissionsOnTopics", permissions.revoke_topics),
    ("DELETE", f"{_TOPIC}/permissions/{{role}}", permissions.revoke_topic),
    ("GET", f"{_TOPIC}/lastMessageId", messages.get_last_id),
    ("GET", f"{_TOPIC}/messageid/{{time}}", messages.get_id_by_time),
    ("GET", f"{_TOPIC}/ledger/{{ledger}}/entry/{{entry}}", messages.get_by_id),
    ("GET", f"{_TOPIC}/examinemessage", messages.examine),
    ("GET", "lookup/v2/topic/{topic}", topics.look_up),
    ("GET", "lookup/v2/topic/{topic}/bundle", topics.get_bundle),
)
_SUBSCRIPTIONS: tuple[_Row, ...] = (
    ("GET", f"{_TOPIC}/subscriptions", subscriptions.list_subscriptions),
    ("POST", f"{_TOPIC}/all_subscription/expireMessages/{{seconds}}", subscriptions.expire_all),
    ("PUT", _SUBSCRIPTION, subscriptions.create_subscription),
    ("DELETE", _SUBSCRIPTION, subscriptions.delete_subscription),
    ("POST", f"{_SUBSCRIPTION}/skip_all", subscriptions.skip_all),
    ("POST", f"{_SUBSCRIPTION}/skip/{{count}}", subscriptions.skip),
    ("POST", f"{_SUBSCRIPTION}/resetcursor/{{time}}", subscriptions.reset_to_time),
    ("POST", f"{_SUBSCRIPTION}/resetcursor", subscriptions.reset_to_id),
    ("POST", f"{_SUBSCRIPTION}/expireMessages/{{seconds}}", subscriptions.expire),
    ("POST", f"{_SUBSCRIPTION}/expireMessages", subscriptions.expire_to_id),
    ("GET", f"{_SUBSCRIPTION}/position/{{position}}", messages.peek),
    ("GET", f"{_SUBSCRIPTION}/properties", subscriptions.get_properties),
    ("PUT", f"{_SUBSCRIPTION}/properties", subscriptions.put_properties),
    ("POST", f"{_SUBSCRIPTION}/analyzeBacklog", subscriptions.analyze_backlog),
)
_SCHEMA_ROWS: tuple[_Row, ...] = (
    ("GET", f"{_SCHEMAS}/schema", schemas.get_latest),
    ("GET", f"{_SCHEMAS}/schema/{{version}}", schemas.get_version),
    ("GET", f"{_SCHEMAS}/schemas", schemas.get_all),
    ("GET", f"{_SCHEMAS}/metadata", schemas.get_metadata),
    ("POST", f"{_SCHEMAS}/schema", schemas.register),
    ("POST", f"{_SCHEMAS}/version", schemas.find_version),
    ("POST", f"{_SCHEMAS}/compatibility", schemas.check_compatibility),
    ("DELETE", f"{_SCHEMAS}/schema", schemas.delete_all),
    ("GET", f"{_NAMESPACE}/schemaCompatibilityStrategy", schemas.get_namespace_strategy),
    ("PUT", f"{_NAMESPACE}/schemaCompatibilityStrategy", schemas.put_namespace_strategy),
    ("GET", f"{_TOPIC}/schemaCompatibilityStrategy", schemas.get_topic_strategy),
    ("PUT", f"{_TOPIC}/schemaCompatibilityStrategy", schemas.put_topic_strategy),
    ("DELETE", f"{_TOPIC}/schemaCompatibilityStrategy", schemas.delete_topic_strategy),
)


def _policy_rows() -> list[_Row]:
    rows: list[_Row] = []
    for base, table in ((_NAMESPACE, policies.NAMESPACE_POLICIES), (_TOPIC, policies.TOPIC_POLICIES)):
        for name, handlers in table.items():
            read_at = policies.BACKLOG_QUOTA_MAP if name == "backlogQuota" else name
            rows += [
                ("GET", f"{base}/{read_at}", handlers.get),
                ("POST", f"{base}/{name}", handlers.set),
                ("DELETE", f"{base}/{name}", handlers.remove),
            ]
        rows += [
            ("GET", f"{base}/delayedDelivery", policies.get_delayed_delivery),
            ("POST", f"{base}/delayedDelivery", policies.set_delayed_delivery),
            ("DELETE", f"{base}/delayedDelivery", policies.get_without_effect),
        ]
        for name in policies.NO_EFFECT:
            rows += [
                ("GET", f"{base}/{name}", policies.get_without_effect),
                ("POST", f"{base}/{name}", policies.refuse(name)),
                ("PUT", f"{base}/{name}", policies.refuse(name)),
                ("DELETE", f"{base}/{name}", policies.get_without_effect),
            ]
    for base, find in ((_NAMESPACE, rates.of_namespace), (_TOPIC, rates.of_topic)):
        for name, kind in (("publishRate", rates.PUBLISH), ("dispatchRate", rates.DISPATCH)):
            rows += [
                ("GET", f"{base}/{name}", rates.getter(kind, find)),
                ("POST", f"{base}/{name}", rates.setter(kind, find)),
                ("DELETE", f"{base}/{name}", rates.remover(kind, find)),
            ]
    return rows


_WIDTHS = {"{namespace}": 2, "{plain_topic}": 3, "{topic}": 4}
_DOMAINS = (PERSISTENT, NON_PERSISTENT)


class AdminRoute(NamedTuple):
    parts: tuple[str, ...]
    handler: AdminHandler

    def match(self, segments: list[str]) -> list[str] | None:
        """The parameters of a path; None if it is not of this route."""
        found: list[str] = []
        at = 0
        for part in self.parts:
            width = _WIDTHS.get(part, 1)
            taken = segments[at : at + width]
            at += width
            if not part.startswith("{"):
                if taken != [part]:
                    return None
            elif part in ("{topic}", "{domain}") and taken[0] not in _DOMAINS:
                return None
            elif part == "{topic}":
                found.append(f"{taken[0]}://{'/'.join(taken[1:])}")
            elif part == "{plain_topic}":
                found.append(f"{PERSISTENT}://{'/'.join(taken)}")
            else:
                found.append("/".join(taken))
        return found


def _by_length() -> dict[tuple[str, int], list[AdminRoute]]:
    table: dict[tuple[str, int], list[AdminRoute]] = defaultdict(list)
    for method, path, handler in (
        *_CLUSTERS,
        *_ABSENT,
        *_TENANTS,
        *_NAMESPACES,
        *_TOPICS,
        *_SUBSCRIPTIONS,
        *_SCHEMA_ROWS,
        *_policy_rows(),
    ):
        parts = tuple(path.split("/"))
        table[method, sum(_WIDTHS.get(part, 1) for part in parts)].append(AdminRoute(parts, handler))
    return table


_ROUTES = _by_length()


def find_route(method: str, segments: list[str]) -> tuple[AdminHandler, list[str]] | None:
    """The handler of a request, and its parameters."""
    for route in _ROUTES.get((method, len(segments)), ()):
        parameters = route.match(segments)
        if parameters is not None:
            return route.handler, parameters
    return None
