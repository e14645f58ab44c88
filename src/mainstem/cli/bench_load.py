"""The load of `mainstem bench`: clients that produce, consume or measure latency."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mainstem.address import Address
from mainstem.cli.kafka_client import (
    EARLIEST,
    LATEST,
    BrokerConnection,
    EncodedRequest,
    PartitionReader,
    encode_produce,
    find_leaders,
    produced_offset,
)
from mainstem.errors import NotFound, Unavailable
from mainstem.records.building import build_batch

_STEPS_PER_E = 100  # latencies that differ by less than 1 % are counted as one
_FETCH_WAIT_S = 0.5


@dataclass(frozen=True)
class LoadOptions:
    """A run ends after `records` or after `seconds`, whichever comes first."""

    bootstrap: Address
    topic: str
    clients: int
    records: int | None
    seconds: float | None
    timeout_s: float
    record_bytes: int = 0
    batch_records: int = 1
    in_flight: int = 1


class Latencies:
    """A histogram, so that memory does not grow with the length of a run."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._max_s = 0.0

    def add(self, seconds: float) -> None:
        self._counts[math.floor(math.log(max(seconds, 1e-6)) * _STEPS_PER_E)] += 1
        self._max_s = max(self._max_s, seconds)

    def quantile_ms(self, part: float) -> float:
        wanted = math.ceil(self._counts.total() * part)
        for step in sorted(self._counts):
            wanted -= self._counts[step]
            if wanted <= 0:
                return min(math.exp(step / _STEPS_PER_E), self._max_s) * 1000
        return 0.0

    @property
    def max_ms(self) -> float:
        return self._max_s * 1000


class Load:
    """Progress and results of all clients together."""

    def __init__(self, options: LoadOptions) -> None:
        self.options = options
        self.records = 0
        self.bytes = 0
        self.latencies: dict[str, Latencies] = {}
        self._reserved = 0
        self._began: float | None = None

    def begin(self) -> None:
        """Start the clock: all clients are connected."""
        self._began = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        return 0.0 if self._began is None else time.perf_counter() - self._began

    @property
    def over(self) -> bool:
        limit = self.options
        return (limit.seconds is not None and self.elapsed_s >= limit.seconds) or (
            limit.records is not None and self.records >= limit.records
        )

    def reserve(self, count: int) -> int:
        """Return how many of `count` records a client may still write. At 0 the client stops."""
        if self.over:
            return 0
        if self.options.records is not None:
            count = min(count, self.options.records - self._reserved)
        self._reserved += count
        return count

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size

    def took(self, what: str, seconds: float) -> None:
        self.latencies.setdefault(what, Latencies()).add(seconds)


async def produce(load: Load) -> None:
    """Each client writes batches to one partition, with several requests in flight."""
    options = load.options
    async with _clients(options) as clients:
        writers = [_Writer(connection, load, partition) for connection, partition in clients]
        load.begin()
        await _all([writer.run() for writer in writers])


class _Writer:
    def __init__(self, connection: BrokerConnection, load: Load, partition: int) -> None:
        self._connection = connection
        self._load = load
        self._partition = partition
        self._frames: dict[
            int, EncodedRequest
        ] = {}  # by records; only the last batch is smaller than the others
        self._frame(min(load.options.batch_records, load.options.records or load.options.batch_records))

    def _frame(self, records: int) -> EncodedRequest:
        if records not in self._frames:
            self._frames[records] = _produce_frame(self._load.options, self._partition, records)
        return self._frames[records]

    async def run(self) -> None:
        options = self._load.options
        sent: deque[tuple[float, int, EncodedRequest]] = deque()
        while True:
            while len(sent) < options.in_flight and (records := self._load.reserve(options.batch_records)):
                frame = self._frame(records)
                sent.append((time.perf_counter(), records, frame))
                await self._connection.send(frame)
            if not sent:
                return
            sent_at, records, frame = sent.popleft()
            produced_offset(await self._connection.receive(frame))
            self._load.took("request", time.perf_counter() - sent_at)
            self._load.add(records, len(frame.data))


async def consume(load: Load) -> None:
    """Each client reads one partition after the other, up to its end offset at the start of the run."""
    options = load.options
    leaders = await find_leaders(options.bootstrap, options.topic, options.timeout_s, create=False)
    async with _connections([*leaders.values()], options.timeout_s) as connections:
        unread: deque[tuple[PartitionReader, int]] = deque()
        for partition, connection in zip(leaders, connections, strict=True):
            reader = PartitionReader(connection, options.topic, partition)
            reader.offset = await reader.offset_at(EARLIEST)
            end = await reader.offset_at(LATEST)
            if reader.offset < end:
                unread.append((reader, end))
        if not unread:
            raise NotFound(
                f"topic {options.topic!r} has no records: write some with `mainstem bench produce`"
            )
        load.begin()
        await _all([_read(load, unread) for _ in range(options.clients)])


async def _read(load: Load, unread: deque[tuple[PartitionReader, int]]) -> None:
    while unread:
        reader, end = unread.popleft()
        heard_at = time.perf_counter()
        while reader.offset < end and not load.over:
            sent_at = time.perf_counter()
            records, size = await reader.fetch(_fetch_wait_s(load.options))
            now = time.perf_counter()
            if size:
                load.add(records, size)
                load.took("request", now - sent_at)
                heard_at = now
            elif now - heard_at > load.options.timeout_s:
                raise Unavailable(
                    f"{reader}: no record at offset {reader.offset} within {load.options.timeout_s:g} s, "
                    f"although the partition ends at {end}"
                )


async def latency(load: Load) -> None:
    """Each client writes one record at a time and waits until it is acknowledged and read over a second connection."""
    options = load.options
    async with _clients(options) as writing, _clients(options) as reading:
        pairs: list[tuple[BrokerConnection, PartitionReader, EncodedRequest]] = []
        for (writer, partition), (connection, _) in zip(writing, reading, strict=True):
            reader = PartitionReader(connection, options.topic, partition)
            reader.offset = await reader.offset_at(LATEST)
            pairs.append((writer, reader, _produce_frame(options, partition, 1)))
        load.begin()
        await _all([_write_and_read(load, *pair) for pair in pairs])


async def _write_and_read(
    load: Load, writer: BrokerConnection, reader: PartitionReader, frame: EncodedRequest
) -> None:
    while load.reserve(1):
        sent_at = time.perf_counter()
        await writer.send(frame)
        acknowledged = asyncio.ensure_future(_acknowledged(load, writer, frame, sent_at))
        try:
            read_at = await _read_at(load, reader, acknowledged, sent_at + load.options.timeout_s)
        finally:
            acknowledged.cancel()
        load.took("read", read_at - sent_at)
        load.add(1, len(frame.data))


async def _acknowledged(load: Load, writer: BrokerConnection, frame: EncodedRequest, sent_at: float) -> int:
    """Return the offset of the record."""
    offset = produced_offset(await writer.receive(frame))
    load.took("acknowledged", time.perf_counter() - sent_at)
    return offset


async def _read_at(
    load: Load, reader: PartitionReader, acknowledged: asyncio.Future[int], give_up_at: float
) -> float:
    """Return when the record was read, which may be before its ack. Other clients may write to the same partition."""
    while True:
        await reader.fetch(_fetch_wait_s(load.options))
        read_at = time.perf_counter()
        offset = await acknowledged
        if reader.offset > offset:
            return read_at
        if read_at > give_up_at:
            raise Unavailable(
                f"{reader}: no fetch returned the record at offset {offset} within {load.options.timeout_s:g} s"
            )


def _fetch_wait_s(options: LoadOptions) -> float:
    return min(_FETCH_WAIT_S, options.timeout_s / 2)  # an empty response arrives before the timeout


def _produce_frame(options: LoadOptions, partition: int, records: int) -> EncodedRequest:
    randomness = random.Random(0)  # bytes that do not compress, the same in every run
    values = [randomness.randbytes(options.record_bytes) for _ in range(records)]
    batch = build_batch(values, timestamps_ms=int(time.time() * 1000))
    return encode_produce(options.topic, partition, bytes(batch), options.timeout_s)


@asynccontextmanager
async def _clients(options: LoadOptions) -> AsyncIterator[list[tuple[BrokerConnection, int]]]:
    """Open a connection for each client and assign partitions round-robin. Creates the topic if needed."""
    leaders = await find_leaders(options.bootstrap, options.topic, options.timeout_s, create=True)
    partitions = [[*leaders][client % len(leaders)] for client in range(options.clients)]
    async with _connections([leaders[each] for each in partitions], options.timeout_s) as connections:
        yield list(zip(connections, partitions, strict=True))


@asynccontextmanager
async def _connections(
    addresses: Sequence[Address], timeout_s: float
) -> AsyncIterator[list[BrokerConnection]]:
    opened: list[BrokerConnection] = []
    try:
        for address in addresses:
            opened.append(await BrokerConnection.open(address, timeout_s))
        yield opened
    finally:
        for connection in opened:
            connection.close()


async def _all(work: Sequence[Coroutine[None, None, None]]) -> None:
    """Run all coroutines. The first error cancels the others and is raised directly, not in a group."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
