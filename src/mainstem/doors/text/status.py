"""STATE and METRICS: the log as the text door's clients see it, in segments with leaders.

A segment is a fixed number of a topic's entries; segments are numbered from 1. Nothing is stored for them: numbers,
counts and leaders follow from how many entries the topic has ever had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from mainstem import limits
from mainstem.broker.broker import Broker

_FIRST_SEGMENT = 1
_LEADS = "text"  # the key by which the brokers choose a leader


@dataclass(frozen=True, slots=True)
class SegmentLeader:
    """This broker, and the brokers that lead segments in turn."""

    broker_id: int
    name: str
    address: str
    segment_entries: int

    def leaders(self, broker: Broker) -> Sequence[int]:
        """The brokers that share the log, or this one."""
        cluster = broker.cluster
        return sorted(one.broker for one in cluster.members()) if cluster.shared else (self.broker_id,)


class TopicState(msgspec.Struct):
    current_segment: int
    leader_node: int
    last_sealed_entry_offset: (
        int  # entries in all sealed segments: where the open one starts; 0 before a seal
    )
    sealed_segments: dict[str, int]
    segment_leaders: dict[str, int]


def topic_state(broker: Broker, node: SegmentLeader, topic: str) -> bytes:
    """Raises TopicNotFound."""
    partitions = broker.topic(topic).partitions
    entries = sum(broker.partition(topic, partition).end for partition in range(partitions))
    return msgspec.json.encode(segments(entries, node, node.leaders(broker)))


def segments(entries: int, node: SegmentLeader, leaders: Sequence[int]) -> TopicState:
    """The segments of a topic with this many entries, or the newest of them. The leaders take turns."""
    sealed = entries // node.segment_entries
    current = _FIRST_SEGMENT + sealed
    oldest = max(_FIRST_SEGMENT, current - limits.TEXT_STATE_SEGMENTS_MAX)
    listed = range(oldest, current + 1)
    by_segment = {str(segment): leaders[(segment - _FIRST_SEGMENT) % len(leaders)] for segment in listed}
    return TopicState(
        current_segment=current,
        leader_node=by_segment[str(current)],
        last_sealed_entry_offset=sealed * node.segment_entries,
        sealed_segments={str(segment): node.segment_entries for segment in range(oldest, current)},
        segment_leaders=by_segment,
    )


def metrics(broker: Broker, node: SegmentLeader) -> bytes:
    """The brokers of the log, and the one that all of them name as the current leader.

    Each says that it is a leader, since each serves every request."""
    last = broker.last_position
    cluster = broker.cluster
    if cluster.shared:
        id, leader = cluster.broker, cluster.broker_for(_LEADS)
        members = {
            one.broker: {"name": one.node, "addr": dict(one.addresses).get("text", "")}
            for one in cluster.members()
        }
    else:
        id = leader = node.broker_id
        members = {id: {"name": node.name, "addr": node.address}}
    return msgspec.json.encode(
        {
            "id": id,
            "state": "Leader",
            "current_leader": leader,
            "last_log_index": last,
            "membership_config": {
                "membership": {
                    "configs": [sorted(members)],
                    "nodes": {str(number): members[number] for number in sorted(members)},
                }
            },
            "replication": {str(number): {"index": last} for number in sorted(members)},
        }
    )
