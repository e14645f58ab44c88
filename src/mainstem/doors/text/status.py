"""STATE and METRICS: the log as the text door's clients see it, in segments with leaders.

A segment is a fixed run of a topic's entries, numbered from 1. Nothing is stored for it: numbers, counts and
leaders follow from how many entries the topic ever took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from mainstem import limits
from mainstem.broker.broker import Broker

_FIRST_SEGMENT = 1


@dataclass(frozen=True, slots=True)
class SegmentLeader:
    """This broker, and those that lead segments in turn."""

    broker_id: int
    name: str
    address: str
    segment_entries: int

    @property
    def leaders(self) -> Sequence[int]:
        return (self.broker_id,)


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
    return msgspec.json.encode(segments(entries, node))


def segments(entries: int, node: SegmentLeader) -> TopicState:
    """The segments of a topic that took this many entries; of very many, the newest."""
    sealed = entries // node.segment_entries
    current = _FIRST_SEGMENT + sealed
    oldest = max(_FIRST_SEGMENT, current - limits.TEXT_STATE_SEGMENTS_MAX)
    leaders = node.leaders
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
    """A log of one broker: it leads, and it is all there is to replicate to."""
    last = broker.last_position
    members = {str(node.broker_id): {"name": node.name, "addr": node.address}}
    return msgspec.json.encode(
        {
            "id": node.broker_id,
            "state": "Leader",
            "current_leader": node.broker_id,
            "last_log_index": last,
            "membership_config": {"membership": {"configs": [[node.broker_id]], "nodes": members}},
            "replication": {str(node.broker_id): {"index": last}},
        }
    )
