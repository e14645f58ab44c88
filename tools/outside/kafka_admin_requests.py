"""Random requests of administrators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.outside.kafka_data_requests import KafkaDataRequests
from tools.outside.kafka_requests import Calls, ms
from tools.outside.kafka_side import Step

_CONFIGS = {
    "retention.ms": ("1000000000000", "-1", "-2", "x", ""),
    "retention.bytes": ("-1", "1000000", "x"),
    "cleanup.policy": ("delete", "compact", "compact,delete", "delete,compact", "", "x"),
    "max.message.bytes": ("1000", "1048588", "-1", "0"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "x"),
    "min.insync.replicas": ("1", "0"),
    "compression.type": ("producer", "lz4", "gzip", "x"),
    "segment.bytes": ("1048576", "13", "10485760"),
    "segment.ms": ("100", "0", "604800000"),
    "min.cleanable.dirty.ratio": ("0.5", "2", "-1", "0.01"),
    "delete.retention.ms": ("0", "86400000", "-1"),
    "min.compaction.lag.ms": ("0", "100", "-1"),
    "max.compaction.lag.ms": ("1", "0", "9223372036854775807"),
    "flush.messages": ("1", "0"),
    "flush.ms": ("0", "1000", "-1"),
    "file.delete.delay.ms": ("60000", "-1"),
    "index.interval.bytes": ("4096", "-1"),
    "preallocate": ("true", "false", "x", "TRUE"),
    "unclean.leader.election.enable": ("true", "false", "1"),
    "message.timestamp.before.max.ms": ("9223372036854775807", "1000", "-1"),
    "message.timestamp.after.max.ms": ("9223372036854775807", "3600000", "-1"),
    "local.retention.ms": ("-2", "-1", "5"),
    "remote.storage.enable": ("false",),
    "leader.replication.throttled.replicas": ("*", "0:1"),
    "no.such.config": ("1",),
}
_GROUP_CONFIGS = {
    "consumer.session.timeout.ms": ("45000", "50000", "1", "x"),
    "consumer.heartbeat.interval.ms": ("5000", "6000"),
    "share.record.lock.duration.ms": ("15000", "30000", "1"),
    "share.auto.offset.reset": ("earliest", "latest", "x", "by_duration:PT1H"),
    "share.isolation.level": ("read_committed", "read_uncommitted", "x"),
    "nothing": ("1",),
}


class KafkaAdminRequests(KafkaDataRequests):
    def _admin(self) -> Calls:
        return [
            *[self.create_topics] * 3,
            self.delete_topics,
            *[self.create_partitions] * 2,
            *[self.describe_configs] * 3,
            *[self.incremental_alter_configs] * 3,
            *[self.alter_configs] * 2,
            *[self.metadata] * 2,
            self.describe_topic_partitions,
            self.elect_leaders,
            self.alter_reassignments,
            self.list_reassignments,
            self.create_acls,
            self.describe_acls,
            self.delete_acls,
            self.alter_quotas,
            self.describe_quotas,
            self.alter_scram,
            self.describe_scram,
            self.describe_log_dirs,
            self.describe_cluster,
            self.group_configs,
            self.list_config_resources,
        ]

    def _some_configs(self, known: Mapping[str, tuple[str, ...]] = _CONFIGS) -> list[dict[str, Any]]:
        names = self._random.sample(sorted(known), self._one(1, 1, 2))
        return [{"name": name, "value": self._rarely(None, self._one(*known[name]), 0.05)} for name in names]

    def create_topics(self, usual: bool = False) -> Step:
        if usual:
            topics = [
                {"name": name, "num_partitions": count, "replication_factor": 1}
                for name, count in zip(self.topics, (1, 2, 3), strict=True)
            ]
        else:
            topics = [
                {
                    "name": self._topic(),
                    "num_partitions": self._one(1, 2, 3, -1, self._rarely(0, 1)),
                    "replication_factor": self._one(1, 1, -1, self._rarely(0, 1)),
                    "configs": self._rarely(self._some_configs(), [], 0.5),
                }
            ]
            if self._random.random() < 0.15:
                topics[0] |= {
                    "num_partitions": self._rarely(1, -1),
                    "replication_factor": -1,
                    "assignments": [
                        {
                            "partition_index": self._one(0, 0, 1),
                            "broker_ids": self._one([1], [1], [], [1, 1], [7]),
                        }
                    ],
                }
        validate = not usual and self._random.random() < 0.2
        return self._step(
            "create topics", 19, 2, {"topics": topics, "timeout": ms(5000), "validate_only": validate}
        )

    def delete_topics(self) -> Step:
        topic = self._rarely(self._topic(), f"{self._prefix}t2", 0.4)
        return self._step(
            "delete topics",
            20,
            1,
            {"topics": [{"name": topic, "topic_id": None}], "topic_names": [topic], "timeout": ms(5000)},
        )

    def create_partitions(self) -> Step:
        return self._step(
            "create partitions",
            37,
            0,
            {
                "topics": [
                    {
                        "name": self._topic(),
                        "count": self._one(1, 2, 3, 4, self._rarely(-1, 3)),
                        "assignments": self._rarely(
                            self._one([], [{"broker_ids": [1]}], [{"broker_ids": [7]}]), None
                        ),
                    }
                ],
                "timeout": ms(5000),
                "validate_only": self._rarely(True, False, 0.2),
            },
        )

    def describe_configs(self) -> Step:
        keys = self._random.sample(sorted(_CONFIGS), 3)
        return self._step(
            "describe configs",
            32,
            1,
            {
                "resources": [
                    {
                        "resource_type": self._rarely(self._one(9, 0), 2, 0.05),
                        "resource_name": self._topic(),
                        "configuration_keys": keys,
                    }
                ],
                "include_synonyms": False,
                "include_documentation": False,
            },
        )

    def incremental_alter_configs(self) -> Step:
        configs = [one | {"config_operation": self._one(0, 0, 0, 1, 2, 3)} for one in self._some_configs()]
        return self._step(
            "incremental alter configs",
            44,
            0,
            {
                "resources": [{"resource_type": 2, "resource_name": self._own_topic(), "configs": configs}],
                "validate_only": self._rarely(True, False, 0.2),
            },
        )

    def alter_configs(self) -> Step:
        return self._step(
            "alter configs",
            33,
            0,
            {
                "resources": [
                    {"resource_type": 2, "resource_name": self._own_topic(), "configs": self._some_configs()}
                ],
                "validate_only": self._rarely(True, False, 0.2),
            },
        )

    def group_configs(self) -> Step:
        group = self._group()
        if self._random.random() < 0.5:
            return self._step(
                "describe group configs",
                32,
                1,
                {
                    "resources": [
                        {
                            "resource_type": 32,
                            "resource_name": group,
                            "configuration_keys": self._random.sample(sorted(_GROUP_CONFIGS), 3),
                        }
                    ],
                    "include_synonyms": False,
                    "include_documentation": False,
                },
            )
        configs = [
            one | {"config_operation": self._one(0, 0, 0, 1)} for one in self._some_configs(_GROUP_CONFIGS)
        ]
        return self._step(
            "alter group configs",
            44,
            0,
            {
                "resources": [{"resource_type": 32, "resource_name": group, "configs": configs}],
                "validate_only": self._rarely(True, False, 0.2),
            },
        )

    def list_config_resources(self) -> Step:
        return self._step(
            "list config resources",
            74,
            0,
            {"resource_types": self._one([2], [32], [2, 32], [9])},
            only=self._prefix,
        )

    def describe_topic_partitions(self) -> Step:
        names = [self._topic() for _ in range(self._one(1, 2))]
        # Here a topic that does not exist counts as a partition.
        limit = self._one(2000, 1, 2) if set(names) <= set(self.topics) else 2000
        return self._step(
            "describe topic partitions",
            75,
            0,
            {
                "topics": [{"name": name} for name in names],
                "response_partition_limit": limit,
                "cursor": None,
            },
        )

    def elect_leaders(self) -> Step:
        return self._step(
            "elect leaders",
            43,
            0,
            {
                "election_type": self._one(0, 0, 1),
                "topic_partitions": [{"topic": self._topic(), "partitions": [self._partition()]}],
                "timeout": ms(5000),
            },
        )

    def alter_reassignments(self) -> Step:
        place = {"partition_index": self._partition(), "replicas": self._one([1], [1], None, [], [7])}
        return self._step(
            "alter partition reassignments",
            45,
            0,
            {
                "timeout": ms(5000),
                "allow_replication_factor_change": True,
                "topics": [{"name": self._topic(), "partitions": [place]}],
            },
        )

    def list_reassignments(self) -> Step:
        return self._step(
            "list partition reassignments",
            46,
            0,
            {
                "timeout": ms(5000),
                "topics": self._one(
                    None, [{"name": self._topic(), "partition_indexes": [self._partition()]}]
                ),
            },
        )

    def _acl(self, suffix: str = "") -> dict[str, Any]:
        # Only rules that name nothing that is used, so that they change no other answer.
        name, pattern = (
            f"{self._prefix}acl{self._one('', '1')}",
            self._one(3, 3, 4, self._rarely(0, 3)),
        )
        kind = self._one(2, 2, 3, 4, 5, self._rarely(self._one(0, 1, 6), 2))
        principal = self._one("User:ada", "User:*", self._rarely("ada", "User:bob"))
        operation = self._one(2, 3, 4, 8, self._rarely(self._one(0, 1, 9, 13), 3))
        return {
            f"resource_type{suffix}": kind,
            f"resource_name{suffix}": name,
            "resource_pattern_type": pattern,
            "pattern_type_filter": self._one(pattern, 1, 2),
            f"principal{suffix}": principal,
            f"host{suffix}": self._one("*", "127.0.0.9"),
            "operation": operation,
            "permission_type": self._one(2, 3, self._rarely(self._one(0, 1), 3)),
        }

    def create_acls(self) -> Step:
        return self._step("create acls", 30, 1, {"creations": [self._acl()]})

    def _acl_filter(self) -> dict[str, Any]:
        wanted = self._acl("_filter")
        if self._random.random() < 0.5:
            wanted |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
        return wanted

    def describe_acls(self) -> Step:
        return self._step("describe acls", 29, 1, self._acl_filter())

    def delete_acls(self) -> Step:
        return self._step("delete acls", 31, 1, {"filters": [self._acl_filter()]})

    def _entity(self) -> list[dict[str, Any]]:
        user = {"entity_type": "user", "entity_name": f"{self._prefix}u{self._one('0', '1')}"}
        client = {"entity_type": "client-id", "entity_name": f"{self._prefix}c"}
        return list(
            self._one(
                [user],
                [client],
                [user, client],
                self._rarely([{"entity_type": "x", "entity_name": "y"}], [user]),
            )
        )

    def alter_quotas(self) -> Step:
        change = {
            "key": self._one(
                "producer_byte_rate",
                "consumer_byte_rate",
                "request_percentage",
                self._rarely("x", "producer_byte_rate"),
            ),
            "value": self._one(1000.0, 2.5e6, self._rarely(self._one(-1.0, 0.0), 77.0)),
            "remove": self._rarely(True, False, 0.2),
        }
        return self._step(
            "alter client quotas",
            49,
            0,
            {
                "entries": [{"entity": self._entity(), "ops": [change]}],
                "validate_only": self._rarely(True, False, 0.1),
            },
        )

    def describe_quotas(self) -> Step:
        components = [
            {"entity_type": one["entity_type"], "match_type": self._one(0, 0, 2), "match": one["entity_name"]}
            for one in self._entity()
        ]
        for one in components:
            if one["match_type"] == 2:
                one["match"] = None
        return self._step(
            "describe client quotas",
            48,
            0,
            {"components": components, "strict": self._one(True, False)},
            only=self._prefix,
        )

    def alter_scram(self) -> Step:
        user = f"{self._prefix}u{self._one('0', '1')}"
        upsert = {
            "name": self._rarely("", user, 0.05),
            "mechanism": self._one(1, 2, self._rarely(self._one(0, 3), 1)),
            "iterations": self._one(4096, 8192, self._rarely(self._one(1, 100_000), 4096)),
            "salt": b"salt",
            "salted_password": b"x" * 32,
        }
        deletion = {"name": user, "mechanism": self._one(1, 2, self._rarely(0, 1))}
        luck = self._random.random()
        return self._step(
            "alter scram credentials",
            51,
            0,
            {"deletions": [deletion] if luck > 0.65 else [], "upsertions": [upsert] if luck < 0.7 else []},
        )

    def describe_scram(self) -> Step:
        users = [{"name": f"{self._prefix}u{self._one('0', '1')}"} for _ in range(self._one(1, 1, 2))]
        return self._step("describe scram credentials", 50, 0, {"users": users})

    def describe_log_dirs(self) -> Step:
        return self._step(
            "describe log dirs",
            35,
            1,
            {"topics": [{"topic": self._topic(), "partitions": [self._partition()]}]},
        )

    def describe_cluster(self) -> Step:
        return self._step(
            "describe cluster",
            60,
            0,
            {
                "include_cluster_authorized_operations": self._one(True, False),
                "endpoint_type": self._one(1, 1, 1, self._rarely(9, 1)),
            },
        )
