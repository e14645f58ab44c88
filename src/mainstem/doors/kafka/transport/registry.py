"""The table of all APIs, by key. Every API module exports `API`."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from mainstem.doors.kafka.transport.api import Api, FastApi
from mainstem.errors import invariant

MODULES = (
    "produce",  # 0
    "fetch",  # 1
    "list_offsets",  # 2
    "metadata",  # 3
    "offset_commit",  # 8
    "offset_fetch",  # 9
    "find_coordinator",  # 10
    "join_group",  # 11
    "heartbeat",  # 12
    "leave_group",  # 13
    "sync_group",  # 14
    "describe_groups",  # 15
    "list_groups",  # 16
    "sasl_handshake",  # 17
    "api_versions",  # 18
    "create_topics",  # 19
    "delete_topics",  # 20
    "delete_records",  # 21
    "init_producer_id",  # 22
    "offset_for_leader_epoch",  # 23
    "add_partitions_to_txn",  # 24
    "add_offsets_to_txn",  # 25
    "end_txn",  # 26
    "write_txn_markers",  # 27
    "txn_offset_commit",  # 28
    "describe_acls",  # 29
    "create_acls",  # 30
    "delete_acls",  # 31
    "describe_configs",  # 32
    "alter_configs",  # 33
    "alter_replica_log_dirs",  # 34
    "describe_log_dirs",  # 35
    "sasl_authenticate",  # 36
    "create_partitions",  # 37
    "delete_groups",  # 42
    "elect_leaders",  # 43
    "incremental_alter_configs",  # 44
    "alter_partition_reassignments",  # 45
    "list_partition_reassignments",  # 46
    "offset_delete",  # 47
    "describe_client_quotas",  # 48
    "alter_client_quotas",  # 49
    "describe_user_scram_credentials",  # 50
    "alter_user_scram_credentials",  # 51
    "describe_quorum",  # 55
    "describe_cluster",  # 60
    "describe_producers",  # 61
    "describe_transactions",  # 65
    "list_transactions",  # 66
    "consumer_group_heartbeat",  # 68
    "consumer_group_describe",  # 69
    "list_config_resources",  # 74
    "describe_topic_partitions",  # 75
    "share_group_heartbeat",  # 76
    "share_group_describe",  # 77
    "share_fetch",  # 78
    "share_acknowledge",  # 79
    "streams_group_heartbeat",  # 88
    "streams_group_describe",  # 89
    "describe_share_group_offsets",  # 90
    "alter_share_group_offsets",  # 91
    "delete_share_group_offsets",  # 92
)


@cache
def apis() -> dict[int, Api | FastApi]:
    """All APIs of the door."""
    table: dict[int, Api | FastApi] = {}
    for name in MODULES:
        api: Api | FastApi = import_module(f"mainstem.doors.kafka.apis.{name}").API
        invariant(api.key not in table, f"one module speaks API {api.key}, not two")
        table[api.key] = api
    return table
