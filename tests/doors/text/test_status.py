"""Segments are computed from the number of entries."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mainstem import limits
from mainstem.doors.text.status import SegmentLeader, metrics, segments, topic_state
from tests.support.cluster import brokers_here

NODE = SegmentLeader(broker_id=7, name="n", address="h:1", segment_entries=10)


@pytest.mark.parametrize(
    ("entries", "current", "sealed_to", "sealed"),
    [
        (0, 1, 0, {}),
        (1, 1, 0, {}),
        (9, 1, 0, {}),
        (10, 2, 10, {"1": 10}),
        (19, 2, 10, {"1": 10}),
        (35, 4, 30, {"1": 10, "2": 10, "3": 10}),
    ],
)
def test_full_segments_are_sealed_and_the_last_one_is_open(
    entries: int, current: int, sealed_to: int, sealed: dict[str, int]
) -> None:
    state = segments(entries, NODE, (NODE.broker_id,))
    assert state.current_segment == current
    assert state.last_sealed_entry_offset == sealed_to
    assert state.sealed_segments == sealed
    assert state.segment_leaders == {str(segment): 7 for segment in range(1, current + 1)}
    assert state.leader_node == 7


def test_only_the_newest_of_many_segments_are_listed() -> None:
    state = segments(10**12, NODE, (NODE.broker_id,))
    assert len(state.sealed_segments) == limits.TEXT_STATE_SEGMENTS_MAX
    assert state.current_segment == 10**11 + 1
    assert str(10**11) in state.sealed_segments


async def test_metrics_and_state_name_all_brokers_of_a_cluster(tmp_path: Path) -> None:
    async with brokers_here(tmp_path, "a", "b", "c") as brokers:
        for broker in brokers:
            await broker.cluster.join({"text": "h:1"})
        for broker in brokers:
            await broker.barrier()
        numbers = sorted(broker.cluster.broker for broker in brokers)
        nodes = [SegmentLeader(broker.cluster.broker, "n", "h:1", 2) for broker in brokers]
        told = [
            msgspec.json.decode(metrics(broker, node)) for broker, node in zip(brokers, nodes, strict=True)
        ]
        assert [one["membership_config"]["membership"]["configs"] for one in told] == [[numbers]] * 3
        assert len({one["current_leader"] for one in told}) == 1
        assert {one["state"] for one in told} == {"Leader"}
        await brokers[0].create_topic("t")
        await brokers[0].append_values("t", [b"x"] * 7)
        states = []
        for broker, node in zip(brokers, nodes, strict=True):
            await broker.barrier()
            states.append(msgspec.json.decode(topic_state(broker, node, "t")))
        assert states[0] == states[1] == states[2]
        assert set(states[0]["segment_leaders"].values()) == set(numbers)
