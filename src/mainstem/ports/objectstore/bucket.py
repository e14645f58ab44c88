"""Objects in a bucket of S3, Google Cloud Storage or Azure, through obstore.

An object is put with one request, never in parts, so it is there whole or not at all and "if absent" is decided
by the store. A put whose answer was lost is settled by reading the object: ours if it holds what we sent.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Literal, TypeVar

import obstore
from obstore import exceptions

from mainstem import limits
from mainstem.errors import NotFound, StoreUnreachable
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.objectstore.failures import explained, out_of_range
from mainstem.ports.objectstore.leaving import wait_at_exit
from mainstem.ports.objectstore.port import StoredObject, check_key
from mainstem.ports.objectstore.ranges import Span, coalesced
from mainstem.ports.objectstore.retries import Retries

T = TypeVar("T")

wait_at_exit()


class BucketObjectStore:
    """An object store in a bucket, shared by whoever has access to it. Any event loop may use it."""

    def __init__(
        self,
        store: Any,  # of obstore
        name: str,
        *,
        retries: Retries | None = None,
        requests_max: int = limits.STORE_REQUESTS_MAX,
    ) -> None:
        self._store = store
        self._name = name
        self._retries = retries or Retries()
        self._requests_max = requests_max
        self._lock = threading.Lock()
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def name(self) -> str:
        """The URL, without what is secret in it."""
        return self._name

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        """Store an object durably and whole, or not at all. With `if_absent`: False if the key was taken.

        Raises StoreUnreachable (it may be stored all the same) or StoreRefused."""
        check_key(key)
        content = data if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        mode: Literal["create", "overwrite"] = "create" if if_absent else "overwrite"
        doubt = False  # an attempt that failed may have stored it

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

    async def get(self, key: str) -> bytes:
        """Raises NotFound, StoreUnreachable or StoreRefused."""
        check_key(key)
        return await self._retries.run(lambda: self._ask(key, lambda: self._whole(key)))

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Byte ranges as (start, length); a range past the end is cut short. Raises as `get`."""
        check_key(key)
        spans = coalesced(ranges, gap=limits.STORE_GAP_BYTES_MAX, size=limits.STORE_OBJECT_BYTES_MAX)
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

    async def list(self, prefix: str = "") -> AsyncIterator[StoredObject]:
        """Objects whose key starts with `prefix`, by key bytes. Held in memory: not every store sorts like that."""
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
            return  # some stores say so, which is as good

    async def _whole(self, key: str) -> bytes:
        found = await obstore.get_async(self._store, key)
        return bytes(await found.bytes_async())

    async def _span(self, key: str, span: Span) -> bytes:
        return await self._retries.run(lambda: self._ask(key, lambda: self._part(key, span)))

    async def _part(self, key: str, span: Span) -> bytes:
        try:
            return bytes(await obstore.get_range_async(self._store, key, start=span.start, end=span.end))
        except exceptions.GenericError as error:
            if out_of_range(error):
                return b""
            raise

    async def _ask(self, key: str, call: Callable[[], Awaitable[T]]) -> T:
        """One request, in its turn, with errors that a user can act on."""
        async with self._turn():
            try:
                return await call()
            except exceptions.AlreadyExistsError:
                raise
            except (exceptions.BaseError, FileNotFoundError) as error:
                failure = explained(error, f"{self._name}/{key}" if key else self._name)
        raise failure

    def _turn(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        with self._lock:
            turn = self._turns.get(loop)
            if turn is None:
                turn = self._turns[loop] = asyncio.Semaphore(self._requests_max)
            return turn
