"""Runs coroutines that rarely wait without a task, unless they do wait.

A task costs several microseconds and a turn of the event loop, which is a system call. Python 3.12 has such tasks
(`eager_start`); this also works before.
"""

from __future__ import annotations

import asyncio
from asyncio import tasks
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


def run_eagerly(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T] | T:
    """Run it at once. Returns its result if it never waits, otherwise a task that runs the rest.

    Call it from a callback of the loop, not from a task: the coroutine must not see another task as its own (for a
    timeout, for example). Raises what the coroutine raises before its first wait."""
    loop = asyncio.get_running_loop()
    context = copy_context()  # as a task has its own
    first = _FirstStep() if tasks.current_task(loop) is None else None
    current = cast("asyncio.Task[T]", first)
    if first is not None:
        tasks._enter_task(loop, current)
    try:
        awaited = context.run(coroutine.send, None)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        if first is not None:
            tasks._leave_task(loop, current)
    task = loop.create_task(_finish(_SuspendedCoroutine(coroutine, awaited)), context=context)
    if first is not None:
        first.task = task
    return task


class _FirstStep:
    """The current task while there is none yet. Timeouts that begin meanwhile cancel the later task through it."""

    __slots__ = ("task",)

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None

    def cancel(self, msg: Any = None) -> bool:
        return self.task is not None and self.task.cancel(msg)

    def cancelling(self) -> int:
        return 0 if self.task is None else self.task.cancelling()

    def uncancel(self) -> int:
        return 0 if self.task is None else self.task.uncancel()


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
