"""Starts, asks and stops the child processes that run queries."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator

from mainstem import events, extras
from mainstem.errors import Unavailable
from mainstem.ports.objectstore.open import STORE_ENV
from mainstem.tables.sql.messages import (
    LENGTH,
    Answer,
    Prepare,
    QueryFailed,
    Request,
    SqlReply,
    framed,
    replies,
)

SQL_WORKERS = 2  # queries that run at once
SQL_QUERIES_WAITING_MAX = 32
SQL_WORKER_IDLE_S = 600.0  # how long a worker process stays without a query

_PREPARE_S_MAX = 10.0

_log = events.named("sql")


class QueryTimeout(Exception):
    """A query ran longer than it may, and was stopped."""


class SqlWorkers:
    """`store_url`: the object store with its credentials, which workers read from."""

    def __init__(self, store_url: str) -> None:
        self._store_url = store_url
        self._idle: list[SqlWorker] = []
        self._free = asyncio.Semaphore(SQL_WORKERS)
        self._waiting = 0
        self._preparing: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Start a worker that waits for a query, unless there is one: so the first answer comes sooner."""
        preparing = self._preparing is not None and not self._preparing.done()
        busy = self._free.locked() or self._waiting > 0
        if not (preparing or busy or any(worker.running for worker in self._idle)) and not extras.missing(
            "sql"
        ):
            self._preparing = asyncio.get_running_loop().create_task(self._prepare())

    async def _prepare(self) -> None:
        try:
            worker = await SqlWorker.start(self._store_url)
        except OSError as error:
            _log.warning("worker not started", error=str(error))
            return
        try:
            answer = await worker.ask(Prepare(), asyncio.get_running_loop().time() + _PREPARE_S_MAX)
            if isinstance(answer, QueryFailed):
                _log.warning("worker not prepared", pid=worker.pid, error=answer.message)
        except QueryTimeout:
            _log.warning("worker not prepared", pid=worker.pid, seconds=_PREPARE_S_MAX)
        if worker.busy or worker.ended:
            worker.stop()
            return
        self._idle.append(worker)
        worker.expire_after(SQL_WORKER_IDLE_S, self._idle)

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[SqlWorker]:
        """A worker for the caller alone. It is stopped if it is still busy at the end. Raises Unavailable."""
        extras.require("sql", "SQL")
        if self._waiting >= SQL_QUERIES_WAITING_MAX:
            raise Unavailable("too many queries are waiting: try again later")
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            if not self._idle and self._preparing is not None:
                await asyncio.wait((self._preparing,))  # it loads what this query needs
            while self._idle and not self._idle[-1].running:
                self._idle.pop()
            worker = self._idle.pop() if self._idle else await SqlWorker.start(self._store_url)
            try:
                yield worker
            finally:
                if worker.busy or worker.ended:
                    worker.stop()
                elif worker.running:
                    self._idle.append(worker)
                    worker.expire_after(SQL_WORKER_IDLE_S, self._idle)
        finally:
            self._free.release()

    async def close(self) -> None:
        if self._preparing is not None:
            await self._preparing
        for worker in self._idle:
            worker.stop()
        await asyncio.gather(*(worker.wait() for worker in self._idle))
        self._idle.clear()


class SqlWorker:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.busy = False  # with a request that it has not answered
        self.ended = False  # with its last answer
        self._expiry: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, store_url: str) -> SqlWorker:
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith("MAINSTEM_API_KEY")
        }
        # Arrow's own allocator reserves a GiB of writable memory at once, which the kernel would count (memory.py).
        environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
        if store_url:
            environ[STORE_ENV] = store_url
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mainstem.tables.sql.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environ,
        )
        _log.info("worker started", pid=process.pid)
        return cls(process)

    async def ask(self, request: Request, deadline: float) -> Answer:
        """Raises QueryTimeout at the deadline (of the loop's clock), Unavailable if the worker died."""
        if self._expiry is not None:
            self._expiry.cancel()
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise Unavailable("the SQL worker has no pipes")
        self.busy = True
        try:
            async with asyncio.timeout_at(deadline):
                stdin.write(framed(request))
                await stdin.drain()
                (length,) = LENGTH.unpack(await stdout.readexactly(LENGTH.size))
                reply = replies.decode(await stdout.readexactly(length))
        except TimeoutError:
            raise QueryTimeout from None
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await self._process.wait()
            _log.warning("worker died", pid=self._process.pid, code=code)
            reply = SqlReply(
                QueryFailed("failed", "the query stopped its worker: it may need too much memory"), True
            )
        self.busy = False
        self.ended = reply.last
        return reply.answer

    def expire_after(self, seconds: float, idle: list[SqlWorker]) -> None:
        def expire() -> None:
            if self in idle:
                idle.remove(self)
                self.stop()

        self._expiry = asyncio.get_running_loop().call_later(seconds, expire)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self) -> None:
        await self._process.wait()
