"""Access to a running server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from mainstem.cli.records import InputRecord
from mainstem.cli.store import PartitionLine, ReadRecord, TopicDetails, TopicLine
from mainstem.errors import GroupNotFound, InvalidBatch, TooLarge, TopicExists, Unavailable, Unreachable

if TYPE_CHECKING:
    from mainstem.client.asynchronous import AsyncClient

T = TypeVar("T")

_WAIT_S = 30.0
_INTERRUPT_AGAIN_S = 0.5


def with_client(
    url: str | None, api_key: str | None, work: Callable[[AsyncClient], Awaitable[T]], *, offline: str = ""
) -> T:
    """Run `work` with a client of the server. `offline` is advice for the error if no server responds."""
    # Imported here, so that help and usage errors are fast.
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_interruptible(_with_client(url, api_key, work, offline)))


async def _interruptible(work: Awaitable[T]) -> T:
    """Cancel the work at SIGINT. A call may swallow a cancellation, so cancel repeatedly until the work ends."""
    import asyncio
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        return await work
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    again: asyncio.TimerHandle | None = None

    def interrupt() -> None:
        nonlocal again
        if task is not None:
            task.cancel()
        again = loop.call_later(_INTERRUPT_AGAIN_S, interrupt)

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await work
    except asyncio.CancelledError:
        if again is None:
            raise
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        if again is not None:
            again.cancel()


async def _with_client(
    url: str | None, api_key: str | None, work: Callable[[AsyncClient], Awaitable[T]], offline: str
) -> T:
    from mainstem.client.asynchronous import AsyncClient

    # Probe once without retries, so that a missing server is reported at once instead of after half a minute.
    async with AsyncClient(url, api_key=api_key, timeout=_WAIT_S, retries=False) as probe:
        try:
            await probe.health()
        except Unreachable as silent:
            raise Unavailable(
                f"no server at {probe.url}: start one with `mainstem serve`, or {offline or 'set --url'}"
                + ("" if "attempts failed" in silent.reason else f" ({silent.reason})")
            ) from None
    async with AsyncClient(url, api_key=api_key, timeout=_WAIT_S) as client:
        return await work(client)


class ServerStore:
    """A log that a server has open."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create(self, name: str, partitions: int, settings: Mapping[str, str], exist_ok: bool) -> None:
        try:
            await self._client.change_settings(name, settings, partitions=partitions, create=True)
        except TopicExists:
            if not exist_ok:
                raise

    async def topics(self, prefix: str) -> list[TopicLine]:
        return [
            TopicLine(row.topic, row.partitions, row.records, row.bytes, row.type, row.durability)
            for row in await self._client.topic_sizes(prefix)
            if row.topic.startswith(prefix)
        ]

    async def describe(self, name: str) -> TopicDetails:
        shown = await self._client.topic_settings(name)
        lines = [
            PartitionLine(one.partition, one.start, one.end, one.records, one.bytes, one.max_timestamp_ms)
            for one in shown.partitions
        ]
        return TopicDetails(shown.topic, shown.id, lines, shown.settings)

    async def alter(self, name: str, settings: Mapping[str, str], partitions: int | None) -> None:
        await self._client.change_settings(name, settings, partitions=partitions)

    async def delete(self, name: str) -> None:
        await self._client.delete_topic(name)

    async def append(self, name: str, partition: int, records: Sequence[InputRecord]) -> None:
        await self._client.produce_batch(
            name,
            [record.value for record in records],
            keys=[record.key for record in records],
            headers=[record.headers for record in records],
            timestamps_ms=[record.timestamp_ms for record in records],
            partition=partition,
            create=False,
        )

    async def read(self, name: str, partition: int, offset: int) -> tuple[Sequence[ReadRecord], int]:
        while True:
            page = await self._client.batches(name, offset=offset, partition=partition)
            try:
                records = list(page.records())
            except (InvalidBatch, TooLarge):
                page = page.decodable()
                records = list(page.records())
            if records or page.at_end:
                return records, page.next_offset if records else offset
            offset = page.next_offset  # all records of the page were deleted

    async def offset_at(self, name: str, partition: int, timestamp_ms: int) -> int:
        return await self._client.offset_at(name, timestamp_ms, partition=partition)

    async def committed(self, group: str, name: str) -> Mapping[int, int]:
        try:
            found = await self._client.group(group)
        except GroupNotFound:
            return {}
        return {row.partition: row.offset for row in found.offsets if row.topic == name}

    async def commit(self, group: str, name: str, partition: int, offset: int) -> None:
        await self._client.commit_offsets(group, name, {partition: offset})
