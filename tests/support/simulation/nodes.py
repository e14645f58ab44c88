"""Nodes of a simulation: they crash in the middle of anything, and are cut off from what they share."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Generator
from typing import Any

from mainstem.errors import invariant
from tests.support.simulation.trace import Trace

_LIFE: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)


class Life:
    """From one start of a node to its end. What it sent may still arrive afterwards; what it gets, nobody gets."""

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.number = number
        self.alive = True
        self.tasks: dict[asyncio.Task[Any], None] = {}  # all that its work started, in that order

    @property
    def name(self) -> str:
        return f"{self.node.name}#{self.number}"


class Node:
    """A process of the simulation."""

    def __init__(self, name: str, trace: Trace) -> None:
        self.name = name
        self.cut_off = False  # from everything shared
        self.skew_ms = 0  # of its clock
        self.failures: list[
            BaseException
        ] = []  # errors that ended its work, except crashes; the world raises them
        self._trace = trace
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in the order they were started
        self.life = Life(self, 1)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Work of the node's present life. A crash ends it where it stands; if it fails, so does the world."""
        invariant(self.life.alive, "a crashed node does nothing until it is restarted")
        context = contextvars.copy_context()
        context.run(_LIFE.set, self.life)
        task = asyncio.get_running_loop().create_task(work, name=self.life.name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._trace.note(task.get_name(), f"fails: {error!r}")
            self.failures.append(error)

    async def crash(self) -> None:
        """As kill -9: nothing that it still does has any effect. Its clean-up code runs, but reaches nobody."""
        self._trace.note(self.life.name, "crashes")
        self._trace.effects["crashed"] += 1
        self.life.alive = False
        tasks = [*self._tasks, *self.life.tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def restart(self) -> None:
        """Start its next life. Its memory is lost: the caller opens everything again."""
        invariant(not self.life.alive, "only a crashed node is restarted")
        self.life = Life(self, self.life.number + 1)
        self._trace.note(self.life.name, "starts")

    def cut(self) -> None:
        """From now on its calls do not arrive."""
        self._trace.note(self.life.name, "is cut off")
        self.cut_off = True

    def heal(self) -> None:
        self._trace.note(self.life.name, "is back")
        self.cut_off = False


def tracked(
    loop: asyncio.AbstractEventLoop,
    factory: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    **options: Any,
) -> asyncio.Task[Any]:
    """A task factory that knows whose life a task is a part of: what it starts ends with it."""
    context = options.get("context")
    life = _LIFE.get() if context is None else context.get(_LIFE)
    task: asyncio.Task[Any] = asyncio.Task(factory, loop=loop, **options)
    if life is not None:
        life.tasks[task] = None
        task.add_done_callback(lambda done: life.tasks.pop(done, None))
    return task
