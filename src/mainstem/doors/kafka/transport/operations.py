"""Allowed operations as Kafka's bit sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kio.schema.types import GroupId
from kio.static.primitive import i32

from mainstem.broker.access.rules import CLUSTER_NAME, Operation, ResourceType
from mainstem.doors.kafka.transport.api import Call

NOT_ASKED = i32(-(1 << 31))

_OF = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def operations_on(call: Call, kind: ResourceType, name: str = CLUSTER_NAME) -> i32:
    """All operations that this client may perform on a resource."""
    return i32(sum(1 << operation for operation in _OF[kind] if call.may(operation, kind, name)))


def on_groups(call: Call, names: Iterable[GroupId], *, asked: bool) -> Iterator[tuple[GroupId, i32]]:
    """Each group with the operations that this client may perform on it, if it asked for them."""
    return ((name, operations_on(call, ResourceType.GROUP, name) if asked else NOT_ASKED) for name in names)
