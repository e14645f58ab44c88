"""Random requests of groups of all kinds."""

from __future__ import annotations

from typing import Any

from tools.outside.kafka_admin_requests import KafkaAdminRequests
from tools.outside.kafka_requests import Calls, ms
from tools.outside.kafka_side import Slot, Step, TopicId


class KafkaGroupRequests(KafkaAdminRequests):
    def _classic(self) -> Calls:
        return [
            *[self.join] * 4,
            *[self.sync] * 4,
            *[self.heartbeat] * 3,
            *[self.leave] * 2,
            *[self.offset_commit] * 4,
            *[self.offset_fetch] * 4,
            self.offset_delete,
            self.describe_groups,
            self.consumer_group_describe,
            self.delete_groups,
            self.list_groups,
            self.find_coordinator,
        ]

    def _consumer(self) -> Calls:
        return [
            *[self.consumer_heartbeat] * 8,
            *[self.offset_commit] * 4,
            *[self.offset_fetch] * 4,
            self.offset_delete,
            *[self.consumer_group_describe] * 2,
            self.describe_groups,
            self.delete_groups,
            self.list_groups,
            self.join,
            self.group_configs,
        ]

    def _share(self) -> Calls:
        return [
            *[self.share_heartbeat] * 5,
            *[self.share_fetch] * 6,
            self.share_acknowledge,
            self.share_group_describe,
            self.describe_share_offsets,
            self.alter_share_offsets,
            self.delete_share_offsets,
            self.delete_groups,
            self.list_groups,
            self.group_configs,
            *[self.produce] * 3,
        ]

    def _member(self) -> str:
        return f"{self._prefix}{self._one('m0', 'm0', 'm1')}"

    def join(self) -> Step:
        group, member = self._group(), f"{self._prefix}m0"
        return self._step(
            "join group",
            11,
            2,
            {
                "group_id": group,
                "session_timeout": ms(self._rarely(self._one(1, 10_000_000), 30_000)),
                "rebalance_timeout": ms(1000),
                "member_id": Slot(f"member {group}", self._rarely("unknown", "")),
                "group_instance_id": None,
                "protocol_type": self._rarely(self._one("", "connect"), "consumer"),
                "protocols": self._rarely(
                    [], [{"name": "range", "metadata": b"\0\0\0\0\0\0\xff\xff\xff\xff"}], 0.05
                ),
                "reason": member,
            },
            {f"member {group}": "member_id", f"generation {group}": "generation_id"},
        )

    def _as_member(self, group: str) -> dict[str, Any]:
        return {
            "group_id": group,
            "generation_id": Slot(f"generation {group}", self._one(-1, 1), self._rarely(self._one(-1, 1), 0)),
            "member_id": self._rarely(self._one("", "unknown"), Slot(f"member {group}", "")),
            "group_instance_id": None,
        }

    def sync(self) -> Step:
        group = self._group()
        return self._step(
            "sync group",
            14,
            0,
            {
                **self._as_member(group),
                "protocol_type": self._rarely(self._one("x", "consumer"), None),
                "protocol_name": self._rarely(self._one("x", "range"), None),
                "assignments": [{"member_id": Slot(f"member {group}", ""), "assignment": b"plan"}],
            },
        )

    def heartbeat(self) -> Step:
        return self._step("heartbeat", 12, 0, self._as_member(self._group()))

    def leave(self) -> Step:
        group = self._group()
        member = self._rarely("unknown", Slot(f"member {group}", "nobody"))
        return self._step(
            "leave group",
            13,
            0,
            {
                "group_id": group,
                "member_id": member,
                "members": [{"member_id": member, "group_instance_id": None}],
            },
        )

    def offset_commit(self) -> Step:
        group = self._group()
        alone = self._random.random() < 0.4
        values = self._as_member(group)
        values["generation_id_or_member_epoch"] = -1 if alone else values["generation_id"]
        if alone:
            values["member_id"] = ""
        place = {
            "partition_index": self._partition(),
            "committed_offset": self._random.randrange(9),
            "committed_leader_epoch": self._one(-1, -1, 0, 3),
            "committed_metadata": self._one("", "note", None, self._rarely("y" * 5000, "note")),
            "retention_time": ms(-1),
        }
        return self._step(
            "offset commit",
            8,
            2,
            {
                **values,
                "retention_time": ms(-1),
                "topics": [{**self._topic_fields(), "partitions": [place]}],
            },
        )

    def offset_fetch(self) -> Step:
        group = self._group()
        named = [
            {**self._topic_fields(), "partition_indexes": [self._partition()]} for _ in range(self._one(1, 2))
        ]
        topics = self._one(named, named, None)
        return self._step(
            "offset fetch",
            9,
            1 if topics else 2,  # version 1 cannot ask for all topics
            {
                "group_id": group,
                "topics": topics,
                "groups": [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}],
                "require_stable": self._one(True, False),
            },
        )

    def offset_delete(self) -> Step:
        return self._step(
            "offset delete",
            47,
            0,
            {
                "group_id": self._group(),
                "topics": [{**self._topic_fields(), "partitions": [{"partition_index": self._partition()}]}],
            },
        )

    def describe_groups(self) -> Step:
        return self._step(
            "describe groups",
            15,
            0,
            {"groups": [self._group()], "include_authorized_operations": self._one(True, False)},
        )

    def consumer_group_describe(self) -> Step:
        return self._step(
            "consumer group describe",
            69,
            0,
            {"group_ids": [self._group()], "include_authorized_operations": False},
        )

    def share_group_describe(self) -> Step:
        return self._step(
            "share group describe",
            77,
            0,
            {"group_ids": [self._group()], "include_authorized_operations": False},
        )

    def delete_groups(self) -> Step:
        return self._step("delete groups", 42, 0, {"groups_names": [self._group()]})

    def list_groups(self) -> Step:
        states = self._one([], [], ["Stable"], ["Empty", "Dead"], ["nothing"])
        types = self._one([], [], ["consumer"], ["Classic"], ["nothing"])
        return self._step(
            "list groups", 16, 0, {"states_filter": states, "types_filter": types}, only=self._prefix
        )

    def find_coordinator(self) -> Step:
        group = self._group()
        return self._step(
            "find coordinator",
            10,
            0,
            {"key_type": self._one(0, 1, 0, 1, 9), "key": group, "coordinator_keys": [group]},
        )

    def consumer_heartbeat(self) -> Step:
        group, member = self._group(), self._member()
        epoch = self._rarely(self._one(0, -1, -2, 7), Slot(f"epoch {member} {group}", 0), 0.25)
        joining = not isinstance(epoch, Slot) or self._random.random() < 0.5
        return self._step(
            "consumer heartbeat",
            68,
            0,
            {
                "group_id": group,
                "member_id": member,
                "member_epoch": epoch,
                "instance_id": None,
                "rack_id": None,
                "rebalance_timeout": ms(self._one(60_000, 60_000, 60_000, -1)),
                "subscribed_topic_names": self._one(
                    self.topics[:1], self.topics[:2], self.topics[:1], [], None
                )
                if joining
                else self.topics[:1],
                "subscribed_topic_regex": self._rarely(self._one(f"{self._prefix}t[01]", "("), None),
                "server_assignor": self._rarely(self._one("uniform", "x"), None),
                "topic_partitions": self._rarely(None, [], 0.2),
            },
            {f"epoch {member} {group}": "member_epoch"},
        )

    def share_heartbeat(self) -> Step:
        group, member = self._group(), "AAAAAAAAAAAAAAAAAAAAA" + self._one("A", "Q")
        return self._step(
            "share heartbeat",
            76,
            1,
            {
                "group_id": group,
                "member_id": member,
                "member_epoch": self._rarely(self._one(0, -1, 7), Slot(f"epoch {member} {group}", 0), 0.25),
                "rack_id": None,
                "subscribed_topic_names": self._one(self.topics[:1], self.topics[:1], self.topics[:2], None),
            },
            {f"epoch {member} {group}": "member_epoch"},
        )

    def share_fetch(self) -> Step:
        group, member = self._group(), "AAAAAAAAAAAAAAAAAAAAA" + self._one("A", "A", "Q")
        acknowledged = [
            {"first_offset": 0, "last_offset": self._one(0, 1), "acknowledge_types": [self._one(1, 2, 3, 9)]}
        ]
        return self._step(
            "share fetch",
            78,
            1,
            {
                "group_id": group,
                "member_id": member,
                "share_session_epoch": self._one(0, 0, 1, 1, 2, 3, -1),
                "max_wait": ms(200),
                "min_bytes": 1,
                "max_bytes": self._one(1 << 20, 1 << 20, 0),
                "max_records": 100,
                "batch_size": 100,
                "topics": [
                    {
                        "topic_id": TopicId(self._own_topic()),
                        "partitions": [
                            {
                                "partition_index": 0,
                                "acknowledgement_batches": self._rarely(acknowledged, [], 0.3),
                            }
                        ],
                    }
                ],
            },
        )

    def share_acknowledge(self) -> Step:
        group, member = self._group(), "AAAAAAAAAAAAAAAAAAAAA" + self._one("A", "Q")
        acknowledged = [
            {"first_offset": 0, "last_offset": self._one(0, 1), "acknowledge_types": [self._one(1, 2, 3, 9)]}
        ]
        return self._step(
            "share acknowledge",
            79,
            1,
            {
                "group_id": group,
                "member_id": member,
                "share_session_epoch": self._one(0, 1, 2, 3, -1),
                "topics": [
                    {
                        "topic_id": TopicId(self._own_topic()),
                        "partitions": [{"partition_index": 0, "acknowledgement_batches": acknowledged}],
                    }
                ],
            },
        )

    def describe_share_offsets(self) -> Step:
        topic = self._topic()
        topics = [{"topic_name": topic, "partitions": [0, 1]}]
        return self._step(
            "describe share offsets", 90, 0, {"groups": [{"group_id": self._group(), "topics": topics}]}
        )

    def alter_share_offsets(self) -> Step:
        place = {"partition_index": self._partition(), "start_offset": self._one(0, 1, 5)}
        return self._step(
            "alter share offsets",
            91,
            0,
            {"group_id": self._group(), "topics": [{"topic_name": self._topic(), "partitions": [place]}]},
        )

    def delete_share_offsets(self) -> Step:
        return self._step(
            "delete share offsets",
            92,
            0,
            {"group_id": self._group(), "topics": [{"topic_name": self._topic()}]},
        )
