"""Change topic settings: shared by AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kio.schema.errors import ErrorCode

from mainstem.broker.topics.service import TopicConfig
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, ItemResult, outcome_of, repeated
from mainstem.doors.kafka.apis.config_entries import Resource
from mainstem.doors.kafka.transport.context import KafkaContext
from mainstem.errors import MainstemError


async def change_resource(
    context: KafkaContext,
    resource_type: int,
    name: str,
    change: Callable[[TopicConfig], TopicConfig],
    *,
    dry_run: bool,
) -> ItemResult:
    """Apply `change` to a topic's config. It may raise Refused or InvalidConfig."""
    try:
        if resource_type != Resource.TOPIC:
            raise _unchangeable(resource_type)
        await context.broker.change_topic(name, change, dry_run=dry_run)
    except (MainstemError, ItemRefused) as error:
        return outcome_of(error)
    return DONE


def check_once(names: Iterable[str]) -> None:
    """Raises Refused if a setting is given more than once."""
    twice = repeated(names)
    if twice:
        raise ItemRefused(ErrorCode.invalid_request, f"{min(twice)[:64]} is given more than once")


def value_given(name: str, value: str | None) -> str:
    """Raises Refused for null."""
    if value is None:
        raise ItemRefused(ErrorCode.invalid_request, f"{name[:64]} needs a value")
    return value


TWICE = ItemResult(ErrorCode.invalid_request, "the request names this resource more than once")


def _unchangeable(resource_type: int) -> ItemRefused:
    if resource_type == Resource.BROKER:
        return ItemRefused(
            ErrorCode.invalid_request,
            "a broker's settings are not replaced as a whole: use IncrementalAlterConfigs",
        )
    return ItemRefused(
        ErrorCode.invalid_request,
        f"resources of type {resource_type} have no settings here: only topics (2) and groups (32) have",
    )
