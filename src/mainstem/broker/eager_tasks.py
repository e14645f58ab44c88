"""Runs coroutines that rarely wait without a task, unless they do wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def run_eagerly(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T] | T:
    """Run it at once. Returns its result if it never waits, otherwise a task that runs the rest.

    Call it from a callback of the loop, not from a task: the coroutine must not see another task as its own (for a
    timeout, for example). Raises what the coroutine raises before its first wait."""
    try:
        awaited = coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    return asyncio.get_running_loop().create_task(_finish(_SuspendedCoroutine(coroutine, awaited)))


async def _finish(rest: _SuspendedCoroutine[T]) -> T:
    return await rest


class _SuspendedCoroutine(Generic[T]):
    """A coroutine from its first wait on."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, T]:
        awaited = self._awaited
        while True:
            try:
                sent = yield awaited
            except BaseException as error:  # noqa: BLE001 - handed on, as `yield from` would
                step = self._thrown(error)
            else:
                step = self._sent(sent)
            if isinstance(step, _CompletedAwaitable):
                result: T = step.value
                return result
            awaited = step

    def _sent(self, value: Any) -> Any:
        try:
            return self._coroutine.send(value)
        except StopIteration as done:
            return _CompletedAwaitable(done.value)

    def _thrown(self, error: BaseException) -> Any:
        try:
            return self._coroutine.throw(error)
        except StopIteration as done:
            return _CompletedAwaitable(done.value)


class _CompletedAwaitable:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value
