"""Topics that a client names and that do not exist are made, as Kafka does by default."""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.doors.kafka.context import KafkaContext
from mainstem.errors import MainstemError


async def create_missing(context: KafkaContext, names: Sequence[str]) -> dict[str, MainstemError]:
    """Make these topics. Returns what refused those that could not be made."""
    refused: dict[str, MainstemError] = {}
    for name in dict.fromkeys(names):
        try:
            await context.broker.create_topic(name, partitions=context.default_partitions, exist_ok=True)
        except MainstemError as error:
            refused[name] = error
    return refused
