"""Random requests of members of streams groups (KIP-1071)."""

from __future__ import annotations

from typing import Any

from tools.outside.kafka_group_requests import KafkaGroupRequests
from tools.outside.kafka_requests import Calls, ms
from tools.outside.kafka_side import Slot, Step

HEARTBEAT, DESCRIBE = 88, 89


class KafkaStreamsRequests(KafkaGroupRequests):
    def _streams(self) -> Calls:
        return [
            *[self.streams_heartbeat] * 8,
            *[self.streams_group_describe] * 2,
            *[self.offset_commit] * 3,
            *[self.offset_fetch] * 2,
            self.offset_delete,
            self.delete_groups,
            self.list_groups,
            self.describe_groups,
            self.consumer_group_describe,
            self.consumer_heartbeat,
            self.join,
        ]

    def streams_heartbeat(self) -> Step:
        group, member = self._group(), self._member()
        epoch = self._rarely(self._one(0, -1, -2, 7), Slot(f"epoch {member} {group}", 0), 0.25)
        joins = not isinstance(epoch, Slot) or self._random.random() < 0.6
        tasks = self._rarely([{"subtopology_id": "0", "partitions": [0]}], [], 0.1)
        return self._step(
            "streams heartbeat",
            HEARTBEAT,
            0,
            {
                "group_id": group,
                "member_id": member,
                "member_epoch": epoch,
                "endpoint_information_epoch": self._rarely(-1, 0),
                "instance_id": None,
                "rack_id": None,
                "rebalance_timeout": ms(60_000 if joins else -1),
                "topology": self._rarely(None, self._topology(), 0.1) if joins else None,
                "active_tasks": tasks if joins else None,
                "standby_tasks": [] if joins else None,
                "warmup_tasks": [] if joins else None,
                "process_id": member if joins else None,
                "user_endpoint": None,
                "client_tags": self._rarely([{"key": "zone", "value": "a"}], [], 0.2) if joins else None,
                "task_offsets": None,
                "task_end_offsets": None,
                "shutdown_application": False,
            },
            {f"epoch {member} {group}": "member_epoch", f"generation {group}": "member_epoch"},
        )

    def _topology(self) -> dict[str, Any]:
        changelog = {
            "name": f"{self._prefix}changelog",
            "partitions": 0,
            "replication_factor": self._one(-1, 1, 0),
            "topic_configs": self._one([], [{"key": "cleanup.policy", "value": "compact"}]),
        }
        first = {
            "subtopology_id": "0",
            "source_topics": self._rarely([f"{self._prefix}nope"], [self.topics[0]]),
            "source_topic_regex": [],
            "state_changelog_topics": [changelog],
            "repartition_sink_topics": [],
            "repartition_source_topics": [],
            "copartition_groups": [],
        }
        return {"epoch": self._rarely(1, 0, 0.05), "subtopologies": self._rarely([], [first], 0.05)}

    def streams_group_describe(self) -> Step:
        return self._step(
            "streams group describe",
            DESCRIBE,
            0,
            {"group_ids": [self._group()], "include_authorized_operations": self._one(True, False)},
        )
