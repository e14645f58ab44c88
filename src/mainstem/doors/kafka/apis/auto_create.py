"""Create topics that a client names and that do not exist, as Kafka does by default."""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.broker.access.rules import CLUSTER_NAME, Operation, ResourceType
from mainstem.doors.kafka.transport.api import Call
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.errors import InvalidName, MainstemError

_NAME_CHARS_MAX = 249


def may_create(call: Call, name: str) -> bool:
    """Whether the access rules let this client create a topic by naming it."""
    return call.may(Operation.CREATE, ResourceType.TOPIC, name) or call.may(
        Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME
    )


def check_name(name: str) -> None:
    """Raises InvalidName. The log and the HTTP door allow a few characters more than Kafka's clients expect."""
    if len(name) > _NAME_CHARS_MAX:
        raise InvalidName(f"invalid topic name: it has at most {_NAME_CHARS_MAX} characters, not {len(name)}")


async def create_missing(context: KafkaContext, names: Sequence[str]) -> dict[str, MainstemError]:
    """Create these topics. Returns the errors of those that could not be created."""
    refused: dict[str, MainstemError] = {}
    for name in dict.fromkeys(names):
        try:
            check_name(name)
            partitions = context.broker.namespaces.default_partitions(name, context.default_partitions)
            await context.broker.create_topic(name, partitions=partitions, exist_ok=True)
        except MainstemError as error:
            refused[name] = error
    return refused
