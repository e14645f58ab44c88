"""The access rules of each API. Produce, Fetch, Metadata, DescribeConfigs and ShareFetch encode responses themselves,
and check access themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mainstem.broker.access.rules import CLUSTER_NAME, Operation, ResourceType
from mainstem.doors.kafka.apis.config_entries import Resource
from mainstem.doors.kafka.transport.api import Call

_TOPIC, _GROUP, _CLUSTER, _TRANSACTION = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)


@dataclass(frozen=True, slots=True)
class WholeRequestRule:
    """One resource for the whole request."""

    kind: ResourceType
    operation: Operation
    name: str | None = None  # of the field that names it; None: the cluster


@dataclass(frozen=True, slots=True)
class EachItemRule:
    """A list whose items are allowed or refused one by one."""

    kind: ResourceType | Callable[[Any, Any], ResourceType]  # a function takes the request and the item
    operation: Operation
    items: str  # field of the request
    answers: str  # field of the response
    name: str = "name"  # field of an item; unused where the item is the name
    answer_name: str = ""  # field of a response item, where it repeats nothing else of the request
    indexes: str = ""  # field of an item that lists partitions by number …
    answer_indexes: str = "partitions"  # … and the field of the response
    or_cluster: bool = False  # the same operation on the cluster allows it too
    all_or_none: bool = False  # if one is refused, the others are not attempted


@dataclass(frozen=True, slots=True)
class FilteredListRule:
    """A list in the response, reduced to what the client may describe."""

    kind: ResourceType
    answers: str
    name: str


@dataclass(frozen=True, slots=True)
class SpecialRule:
    """A check that only one API needs."""

    allowed: Callable[[Call, Any], bool]
    kind: ResourceType  # of the error code


def _idempotent(call: Call, request: Any) -> bool:
    """A client that may write to any topic may be an idempotent producer."""
    if request.transactional_id is not None:
        return call.may(Operation.WRITE, _TRANSACTION, request.transactional_id)
    access = call.context.access
    return (
        access is None
        or call.may(Operation.IDEMPOTENT_WRITE, _CLUSTER, CLUSTER_NAME)
        or access.allows_some(call.principal, call.host, Operation.WRITE, _TOPIC)
    )


def _subscribed(call: Call, request: Any) -> bool:
    return all(call.may(Operation.DESCRIBE, _TOPIC, name) for name in request.subscribed_topic_names or ())


def _in_topology(call: Call, request: Any) -> bool:
    """A member of a streams group needs to see every topic of its topology."""
    if request.topology is None:
        return True
    names: set[str] = set()
    for one in request.topology.subtopologies:
        names.update(one.source_topics, one.repartition_sink_topics)
        names.update(topic.name for topic in (*one.repartition_source_topics, *one.state_changelog_topics))
    return all(call.may(Operation.DESCRIBE, _TOPIC, name) for name in names)


def _kind_of_config(_: Any, resource: Any) -> ResourceType:
    return {Resource.TOPIC: _TOPIC, Resource.GROUP: _GROUP}.get(resource.resource_type, _CLUSTER)


def _kind_of_coordinator(request: Any, _: Any) -> ResourceType:
    return {0: _GROUP, 1: _TRANSACTION}.get(request.key_type, _CLUSTER)


_READ, _WRITE, _DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
_ALTER, _DELETE, _ALTER_CONFIGS = Operation.ALTER, Operation.DELETE, Operation.ALTER_CONFIGS
_OF_GROUP = WholeRequestRule(_GROUP, _READ, "group_id")
_OF_TRANSACTION = WholeRequestRule(_TRANSACTION, _WRITE, "transactional_id")
_CLUSTER_DESCRIBE, _CLUSTER_ALTER = WholeRequestRule(_CLUSTER, _DESCRIBE), WholeRequestRule(_CLUSTER, _ALTER)

Rule = WholeRequestRule | EachItemRule | FilteredListRule | SpecialRule

RULES: dict[int, tuple[Rule, ...]] = {
    2: (EachItemRule(_TOPIC, _DESCRIBE, "topics", "topics"),),  # ListOffsets
    8: (_OF_GROUP, EachItemRule(_TOPIC, _READ, "topics", "topics")),  # OffsetCommit
    9: (
        EachItemRule(_GROUP, _DESCRIBE, "groups", "groups", "group_id", "group_id"),
    ),  # OffsetFetch; `enforcement` filters the topics
    10: (
        EachItemRule(_kind_of_coordinator, _DESCRIBE, "coordinator_keys", "coordinators", answer_name="key"),
    ),
    11: (_OF_GROUP,),  # JoinGroup
    12: (_OF_GROUP,),  # Heartbeat
    13: (_OF_GROUP,),  # LeaveGroup
    14: (_OF_GROUP,),  # SyncGroup
    15: (EachItemRule(_GROUP, _DESCRIBE, "groups", "groups", answer_name="group_id"),),  # DescribeGroups
    16: (FilteredListRule(_GROUP, "groups", "group_id"),),  # ListGroups
    17: (),  # SaslHandshake
    18: (),  # ApiVersions
    19: (EachItemRule(_TOPIC, Operation.CREATE, "topics", "topics", or_cluster=True),),  # CreateTopics
    20: (EachItemRule(_TOPIC, _DELETE, "topics", "responses"),),  # DeleteTopics
    21: (EachItemRule(_TOPIC, _DELETE, "topics", "topics"),),  # DeleteRecords
    23: (EachItemRule(_TOPIC, _DESCRIBE, "topics", "topics", "topic"),),  # OffsetForLeaderEpoch
    24: (  # AddPartitionsToTxn
        WholeRequestRule(_TRANSACTION, _WRITE, "v3_and_below_transactional_id"),
        EachItemRule(
            _TOPIC,
            _WRITE,
            "v3_and_below_topics",
            "results_by_topic_v3_and_below",
            indexes="partitions",
            answer_indexes="results_by_partition",
            all_or_none=True,
        ),
    ),
    25: (_OF_TRANSACTION, _OF_GROUP),  # AddOffsetsToTxn
    26: (_OF_TRANSACTION,),  # EndTxn
    27: (WholeRequestRule(_CLUSTER, Operation.CLUSTER_ACTION),),  # WriteTxnMarkers
    28: (_OF_TRANSACTION, _OF_GROUP, EachItemRule(_TOPIC, _READ, "topics", "topics")),  # TxnOffsetCommit
    22: (SpecialRule(_idempotent, _CLUSTER),),  # InitProducerId
    29: (_CLUSTER_DESCRIBE,),  # DescribeAcls
    30: (EachItemRule(_CLUSTER, _ALTER, "creations", "results"),),  # CreateAcls
    31: (EachItemRule(_CLUSTER, _ALTER, "filters", "filter_results"),),  # DeleteAcls
    33: (
        EachItemRule(_kind_of_config, _ALTER_CONFIGS, "resources", "responses", "resource_name"),
    ),  # AlterConfigs
    34: (),  # AlterReplicaLogDirs checks access itself: its response has codes of partitions only
    35: (_CLUSTER_DESCRIBE,),  # DescribeLogDirs
    36: (),  # SaslAuthenticate
    37: (EachItemRule(_TOPIC, _ALTER, "topics", "results"),),  # CreatePartitions
    42: (EachItemRule(_GROUP, _DELETE, "groups_names", "results", answer_name="group_id"),),  # DeleteGroups
    43: (_CLUSTER_ALTER,),  # ElectLeaders
    44: (
        EachItemRule(_kind_of_config, _ALTER_CONFIGS, "resources", "responses", "resource_name"),
    ),  # Incremental…
    45: (_CLUSTER_ALTER,),  # AlterPartitionReassignments
    46: (_CLUSTER_DESCRIBE,),  # ListPartitionReassignments
    47: (
        WholeRequestRule(_GROUP, _DELETE, "group_id"),
        EachItemRule(_TOPIC, _READ, "topics", "topics"),
    ),  # OffsetDelete
    48: (WholeRequestRule(_CLUSTER, Operation.DESCRIBE_CONFIGS),),  # DescribeClientQuotas
    49: (EachItemRule(_CLUSTER, _ALTER_CONFIGS, "entries", "entries"),),  # AlterClientQuotas
    50: (_CLUSTER_DESCRIBE,),  # DescribeUserScramCredentials
    51: (_CLUSTER_ALTER,),  # AlterUserScramCredentials
    55: (_CLUSTER_DESCRIBE,),  # DescribeQuorum
    60: (),  # DescribeCluster: every client needs to know the brokers
    61: (EachItemRule(_TOPIC, _READ, "topics", "topics", indexes="partition_indexes"),),  # DescribeProducers
    65: (  # DescribeTransactions
        EachItemRule(
            _TRANSACTION, _DESCRIBE, "transactional_ids", "transaction_states", answer_name="transactional_id"
        ),
    ),
    66: (FilteredListRule(_TRANSACTION, "transaction_states", "transactional_id"),),  # ListTransactions
    68: (_OF_GROUP, SpecialRule(_subscribed, _TOPIC)),  # ConsumerGroupHeartbeat
    69: (
        EachItemRule(_GROUP, _DESCRIBE, "group_ids", "groups", answer_name="group_id"),
    ),  # ConsumerGroupDescribe
    74: (WholeRequestRule(_CLUSTER, Operation.DESCRIBE_CONFIGS),),  # ListConfigResources
    75: (
        EachItemRule(_TOPIC, _DESCRIBE, "topics", "topics"),
        FilteredListRule(_TOPIC, "topics", "name"),
    ),  # DescribeTopicPartitions
    76: (_OF_GROUP, SpecialRule(_subscribed, _TOPIC)),  # ShareGroupHeartbeat
    77: (
        EachItemRule(_GROUP, _DESCRIBE, "group_ids", "groups", answer_name="group_id"),
    ),  # ShareGroupDescribe
    88: (_OF_GROUP, SpecialRule(_in_topology, _TOPIC)),  # StreamsGroupHeartbeat, which checks CREATE itself
    89: (
        EachItemRule(_GROUP, _DESCRIBE, "group_ids", "groups", answer_name="group_id"),
    ),  # StreamsGroupDescribe
    90: (  # DescribeShareGroupOffsets, which checks the topics itself
        EachItemRule(_GROUP, _DESCRIBE, "groups", "groups", "group_id", "group_id"),
    ),
    91: (
        _OF_GROUP,
        EachItemRule(_TOPIC, _READ, "topics", "responses", "topic_name"),
    ),  # AlterShareGroupOffsets
    92: (  # DeleteShareGroupOffsets
        WholeRequestRule(_GROUP, _DELETE, "group_id"),
        EachItemRule(_TOPIC, _READ, "topics", "responses", "topic_name"),
    ),
    79: (),  # ShareAcknowledge checks access itself: its session continues whatever is refused
}
