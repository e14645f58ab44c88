"""Change settings of resources: shared by AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from kio.schema.errors import ErrorCode

from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, outcome_of, repeated, side_by_side
from mainstem.doors.kafka.apis.config_entries import Resource
from mainstem.errors import MainstemError


class _Entry(Protocol):
    @property
    def name(self) -> str: ...


class _Named(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Iterable[_Entry]: ...


Wanted = TypeVar("Wanted", bound=_Named)
Answer = TypeVar("Answer")


async def change_each(
    resources: Sequence[Wanted], change: Callable[[Wanted], Awaitable[None]], answer: Callable[..., Answer]
) -> tuple[Answer, ...]:
    """The results of `change`, which may raise ItemRefused or MainstemError."""
    twice = repeated((resource.resource_type, resource.resource_name) for resource in resources)

    async def result(resource: Wanted) -> Answer:
        kind, name = resource.resource_type, resource.resource_name
        outcome = DONE
        try:
            if (kind, name) in twice:
                raise ItemRefused(ErrorCode.invalid_request, "the request names this resource more than once")
            if settings := repeated(entry.name for entry in resource.configs):
                raise ItemRefused(ErrorCode.invalid_request, f"{min(settings)[:64]} is given more than once")
            await change(resource)
        except (MainstemError, ItemRefused) as error:
            outcome = outcome_of(error)
        return answer(
            error_code=outcome.code, error_message=outcome.message, resource_type=kind, resource_name=name
        )

    return tuple(await side_by_side(result, resources))


def value_given(name: str, value: str | None) -> str:
    """Raises ItemRefused for null."""
    if value is None:
        raise ItemRefused(ErrorCode.invalid_request, f"{name[:64]} needs a value")
    return value


def unchangeable(resource_type: int) -> ItemRefused:
    if resource_type == Resource.BROKER:
        return ItemRefused(
            ErrorCode.invalid_request,
            "a broker's settings are not replaced as a whole: use IncrementalAlterConfigs",
        )
    return ItemRefused(
        ErrorCode.invalid_request,
        f"resources of type {resource_type} have no settings here: only topics (2) and groups (32) have",
    )
