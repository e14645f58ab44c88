"""Replica assignments by hand. Every partition is served by this broker, so they may name it and no other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kio.schema.errors import ErrorCode

from mainstem.doors.kafka.apis.bulk import ItemRefused


def check_assignments(assignments: Iterable[Sequence[int]], node_id: int) -> None:
    """Raises Refused unless each of them is this broker."""
    for brokers in assignments:
        if list(brokers) != [node_id]:
            raise ItemRefused(
                ErrorCode.invalid_replica_assignment,
                f"partitions are served by broker {node_id}: they cannot be assigned to {list(brokers)[:16]}",
            )
