"""Helpers for requests that apply one operation to many topics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

from mainstem import limits
from mainstem.doors.kafka.transport.errors import code_of
from mainstem.errors import MainstemError

KAFKA_ERROR_MESSAGE_CHARS_MAX = 1024

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Key = TypeVar("Key", bound=Hashable)


class ItemRefused(Exception):
    """One item of a request fails with a Kafka code that no Mainstem error maps to."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class ItemResult(NamedTuple):
    code: ErrorCode
    message: str | None


DONE = ItemResult(ErrorCode.none, None)


def outcome_of(error: ItemRefused | MainstemError) -> ItemResult:
    """The error message for the client, cut to a bounded length: it may quote what the client sent."""
    code = error.code if isinstance(error, ItemRefused) else code_of(error)
    return ItemResult(code, str(error)[:KAFKA_ERROR_MESSAGE_CHARS_MAX])


async def side_by_side(work: Callable[[Item], Awaitable[Answer]], items: Sequence[Item]) -> list[Answer]:
    """The results of `work`, in order. Several run concurrently, so that one commit makes many changes durable."""
    answers: list[Answer] = []
    for first in range(0, len(items), limits.KAFKA_CHANGES_AT_ONCE):
        some = items[first : first + limits.KAFKA_CHANGES_AT_ONCE]
        answers += await asyncio.gather(*map(work, some))
    return answers


def repeated(keys: Iterable[Key]) -> set[Key]:
    """The items that occur more than once."""
    return {key for key, times in Counter(keys).items() if times > 1}
