"""Objects in a bucket of S3, Google Cloud Storage or Azure, through obstore.

An object is put with one request, never in parts: it is there whole or not at all, and the store decides "if absent".
A put whose answer is lost is settled by reading the object: it is ours if it holds what we sent.
"""

from __future__ import annotations

import asyncio
import atexit
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import obstore
from obstore import exceptions

from mainstem import limits
from mainstem.errors import NotFound, StoreUnreachable
from mainstem.ports.clock import Clock, Random, SystemClock, SystemRandom
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.objectstore.failures import explained, out_of_range
from mainstem.ports.objectstore.port import StoredObject, check_key

STORE_ATTEMPTS_MAX = 6  # of one request, including the first
STORE_TRYING_S = 60.0  # total time for one request, with attempts and pauses
STORE_BACKOFF_S = 0.1  # before the second attempt; doubles from there, less a random part
STORE_BACKOFF_MAX_S = 5.0
STORE_LEAVING_S = 1.0  # at exit, for client threads with a response
STORE_REQUESTS_MAX = 64  # concurrent, of one event loop
STORE_GAP_BYTES_MAX = 256 * limits.KIB  # one request covers ranges closer than this

T = TypeVar("T")
_EXIT_PAUSE_S = 0.001


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """What one request may cost before its error reaches the caller."""

    attempts: int = STORE_ATTEMPTS_MAX
    trying_s: float = STORE_TRYING_S
    backoff_s: float = STORE_BACKOFF_S
    backoff_max_s: float = STORE_BACKOFF_MAX_S


@dataclass(slots=True)
class Retries:
    """Repeats requests within a budget, after StoreUnreachable only."""

    budget: RetryBudget = field(default_factory=RetryBudget)
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """The first answer. Raises the last StoreUnreachable once the budget is spent, any other error at once."""
        started = self.clock.monotonic()
        for attempt in range(1, self.budget.attempts):
            try:
                return await call()
            except StoreUnreachable:
                pause = self._pause(attempt)
                if self.clock.monotonic() - started + pause > self.budget.trying_s:
                    raise
                await self.wait(pause)
        return await call()

    def _pause(self, attempt: int) -> float:
        """Doubles, less a random part of up to half, so that writers that failed together do not return together."""
        whole = min(self.budget.backoff_s * float(1 << (attempt - 1)), self.budget.backoff_max_s)
        return whole * (1 - int.from_bytes(self.random.token(4), "big") / 2**33)


class RangeRequest(NamedTuple):
    """One request, and which of the ranges it answers."""

    start: int
    end: int
    answers: tuple[int, ...]


def coalesced(ranges: Sequence[tuple[int, int]], *, gap: int, size: int) -> list[RangeRequest]:
    """The requests for some (start, length) ranges: gaps up to `gap` are read too, up to `size` bytes a request.

    A larger range is still one request; an empty range needs none."""
    requests: list[RangeRequest] = []
    for number in sorted((n for n, (_, length) in enumerate(ranges) if length > 0), key=lambda n: ranges[n]):
        start, length = ranges[number]
        end = start + length
        if requests:
            last = requests[-1]
            if start - last.end <= gap and max(end, last.end) - last.start <= size:
                requests[-1] = RangeRequest(last.start, max(end, last.end), (*last.answers, number))
                continue
        requests.append(RangeRequest(start, end, (number,)))
    return requests


def wait_at_exit() -> None:
    """Delay the end of this process until no thread of obstore runs Python, for a moment at most.

    Those threads hand answers to the event loop. The interpreter ends a thread that enters it while it shuts down, and
    that aborts the process with SIGABRT, though all its work is done."""
    atexit.register(_await_foreign_threads)


def _await_foreign_threads() -> None:
    until = time.monotonic() + STORE_LEAVING_S
    time.sleep(_EXIT_PAUSE_S)  # a thread that is about to enter does so now
    while _foreign_threads_run() and time.monotonic() < until:
        time.sleep(_EXIT_PAUSE_S)


def _foreign_threads_run() -> bool:
    """Whether a thread that Python did not start runs Python."""
    ours = {thread.ident for thread in threading.enumerate()}
    return bool(sys._current_frames().keys() - ours)


wait_at_exit()


class BucketObjectStore:
    """An object store in a bucket. Any event loop may use it."""

    def __init__(
        self,
        store: Any,  # of obstore
        name: str,
        *,
        retries: Retries | None = None,
        requests_max: int = STORE_REQUESTS_MAX,
    ) -> None:
        self._store = store
        self._name = name
        self._retries = retries or Retries()
        self._requests_max = requests_max
        self._lock = threading.Lock()
        self._slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def name(self) -> str:
        """The URL without secrets."""
        return self._name

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Store an object durably and atomically. With `if_absent`: False if the key was taken.

        Raises StoreUnreachable (it may still be stored) or StoreRefused."""
        check_key(key)
        content = data if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        mode: Literal["create", "overwrite"] = "create" if if_absent else "overwrite"
        doubt = False  # a failed attempt may have stored it

        async def attempt() -> bool:
            nonlocal doubt
            try:
                await self._ask(
                    key, lambda: obstore.put_async(self._store, key, content, mode=mode, use_multipart=False)
                )
            except exceptions.AlreadyExistsError as error:
                if not if_absent:  # two puts of one key met in the store
                    raise explained(error, f"{self._name}/{key}") from None
                return doubt and await self.get(key) == content
            except StoreUnreachable:
                doubt = True
                raise
            return True

        return await self._retries.run(attempt)

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        """Store an object durably and atomically from chunks. Returns its size. Not retried: the chunks are gone.

        Raises StoreUnreachable (it may still be stored) or StoreRefused."""
        check_key(key)
        size = 0
        failed: BaseException | None = None

        async def counted() -> AsyncIterator[bytes]:
            nonlocal size, failed
            try:
                async for chunk in chunks:
                    size += len(chunk)
                    yield chunk
            except BaseException as error:
                failed = error
                raise

        try:
            # Outside the limit of requests: a client that sends slowly must not keep others from the store.
            await obstore.put_async(self._store, key, counted())
        except Exception as error:
            if failed is not None:
                raise failed from None
            if isinstance(error, exceptions.BaseError | FileNotFoundError):
                raise explained(error, f"{self._name}/{key}") from None
            raise
        return size

    async def get(self, key: str) -> bytes:
        """Raises NotFound, StoreUnreachable or StoreRefused."""
        check_key(key)
        return await self._retries.run(lambda: self._ask(key, lambda: self._whole(key)))

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Byte ranges as (start, length); a range past the end is cut short. Raises as `get`."""
        check_key(key)
        spans = coalesced(ranges, gap=STORE_GAP_BYTES_MAX, size=limits.STORE_OBJECT_BYTES_MAX)
        if not spans:
            await self._retries.run(
                lambda: self._ask(key, lambda: obstore.head_async(self._store, key))
            )  # only to learn that it is there
        fetched = await asyncio.gather(*(self._span(key, span) for span in spans))
        found = [b""] * len(ranges)
        for span, content in zip(spans, fetched, strict=True):
            for number in span.answers:
                start, length = ranges[number]
                found[number] = content[start - span.start : start - span.start + length]
        return found

    async def head(self, key: str) -> StoredObject:
        """Raises NotFound, StoreUnreachable or StoreRefused."""
        check_key(key)
        found = await self._retries.run(lambda: self._ask(key, lambda: obstore.head_async(self._store, key)))
        return StoredObject(key, found["size"], int(found["last_modified"].timestamp() * 1000))

    async def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        """Objects whose key starts with `prefix`, by key bytes. Sorted in memory: not every store does it."""
        folder = prefix.rpartition("/")[0]  # obstore lists whole folders
        listed = await self._retries.run(
            lambda: self._ask(prefix, lambda: obstore.list(self._store, folder or None).collect_async())
        )
        found = [one for one in listed if one["path"].startswith(prefix)]
        found.sort(key=lambda one: one["path"].encode())
        for one in found:
            yield StoredObject(one["path"], one["size"], int(one["last_modified"].timestamp() * 1000))

    async def delete(self, key: str) -> None:
        """Idempotent. Raises StoreUnreachable or StoreRefused."""
        check_key(key)
        try:
            await self._retries.run(lambda: self._ask(key, lambda: obstore.delete_async(self._store, key)))
        except NotFound:
            return  # some stores answer this to a delete

    async def _whole(self, key: str) -> bytes:
        found = await obstore.get_async(self._store, key)
        return bytes(await found.bytes_async())

    async def _span(self, key: str, span: RangeRequest) -> bytes:
        return await self._retries.run(lambda: self._ask(key, lambda: self._part(key, span)))

    async def _part(self, key: str, span: RangeRequest) -> bytes:
        try:
            return bytes(await obstore.get_range_async(self._store, key, start=span.start, end=span.end))
        except exceptions.GenericError as error:
            if out_of_range(error):
                return b""
            raise

    async def _ask(self, key: str, call: Callable[[], Awaitable[T]]) -> T:
        """One request, within the limit of requests, with errors that a user can act on."""
        async with self._slot():
            try:
                return await call()
            except exceptions.AlreadyExistsError:
                raise
            except (exceptions.BaseError, FileNotFoundError) as error:
                failure = explained(error, f"{self._name}/{key}" if key else self._name)
        raise failure

    def _slot(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        with self._lock:
            slot = self._slots.get(loop)
            if slot is None:
                slot = self._slots[loop] = asyncio.Semaphore(self._requests_max)
            return slot
