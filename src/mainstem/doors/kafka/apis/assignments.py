"""Manual replica assignments. This broker serves every partition, so an assignment may name only this broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kio.schema.errors import ErrorCode

from mainstem.doors.kafka.apis.bulk import ItemRefused


def check_assignments(assignments: Iterable[Sequence[int]], node_id: int) -> None:
    """Raises Refused if an assignment names another broker."""
    for brokers in assignments:
        if list(brokers) != [node_id]:
            raise ItemRefused(
                ErrorCode.invalid_replica_assignment,
                f"partitions are served by broker {node_id}: they cannot be assigned to {list(brokers)[:16]}",
            )
