"""A minimal Kafka client for the load generator: no TLS, no authentication, no retries.

Every Kafka broker since 2.3 supports these versions. A broker responds to the requests of a connection in order, so all
requests use the same correlation id, and a request that is sent often is encoded once.
"""

from __future__ import annotations

import asyncio
import io
import struct
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple, TypeVar

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.list_offsets.v4.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.metadata.v7.request import MetadataRequest, MetadataRequestTopic
from kio.schema.produce.v7.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

from mainstem.address import Address
from mainstem.errors import InvariantBroken, Rejected, Unavailable
from mainstem.limits import MIB
from mainstem.records.header import BatchHeader, crc_matches, walk

EARLIEST, LATEST = -2, -1  # timestamps in ListOffsets

_CLIENT_ID = "mainstem-bench"
_CORRELATION = 1
_FETCH_BYTES = 4 * MIB
_SIZE = struct.Struct(">i")
_BATCH_PREFIX = struct.Struct(">qi")  # base offset, number of bytes that follow
_METADATA_AGAIN_S = 0.1  # a new topic has no leader yet

T = TypeVar("T")


class EncodedRequest(NamedTuple):
    """An encoded request and the decoder of its response."""

    data: bytes
    decode: Callable[[bytes], Any]


def encode(request: Any) -> EncodedRequest:
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(_CORRELATION),
        client_id=_CLIENT_ID,
    )
    out = io.BytesIO()
    entity_writer(type(header))(out, header)
    entity_writer(type(request))(out, request)
    body = out.getvalue()
    return EncodedRequest(_SIZE.pack(len(body)) + body, _decoder(request.__api_key__, request.__version__))


@cache
def _decoder(api: i16, version: i16) -> Callable[[bytes], Any]:
    schema = load_response_schema(api, version)
    read_header, read_body = entity_reader(schema.__header_schema__), entity_reader(schema)

    def decode(answer: bytes) -> Any:
        header, at = read_header(answer, 0)
        if header.correlation_id != _CORRELATION:
            raise InvariantBroken("the broker answers in the order of the requests")
        return read_body(answer, at)[0]

    return decode


class BrokerConnection:
    """One connection to a broker. `timeout_s` limits each wait. Every method raises Unavailable."""

    def __init__(
        self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout_s: float
    ) -> None:
        self._address = address
        self._reader = reader
        self._writer = writer
        self._timeout_s = timeout_s

    @classmethod
    async def open(cls, address: Address, timeout_s: float) -> BrokerConnection:
        try:
            async with asyncio.timeout(timeout_s):
                streams = await asyncio.open_connection(address.host, address.port, limit=_FETCH_BYTES)
        except TimeoutError:
            raise Unavailable(
                f"{address} does not accept connections: no response within {timeout_s:g} s"
            ) from None
        except OSError as error:
            raise Unavailable(
                f"no Kafka broker at {address}: start one with `mainstem serve`, or set "
                f"--bootstrap-server ({error.strerror or error})"
            ) from None
        return cls(address, *streams, timeout_s)

    def close(self) -> None:
        self._writer.close()

    async def send(self, frame: EncodedRequest) -> None:
        async def write() -> None:
            self._writer.write(frame.data)
            await self._writer.drain()

        await self._within_timeout(write())

    async def receive(self, frame: EncodedRequest) -> Any:
        """Receive the response to the oldest outstanding request, which is `frame`."""
        return frame.decode(await self._within_timeout(self._receive()))

    async def ask(self, request: Any) -> Any:
        frame = encode(request)
        await self.send(frame)
        return await self.receive(frame)

    async def _receive(self) -> bytes:
        (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
        return await self._reader.readexactly(size)

    async def _within_timeout(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError:
            raise Unavailable(f"{self._address} did not respond within {self._timeout_s:g} s") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Unavailable(
                f"{self._address} closed the connection; this command supports neither TLS nor authentication"
            ) from None


async def find_leaders(
    bootstrap: Address, topic: str, timeout_s: float, *, create: bool
) -> dict[int, Address]:
    """Return the leader of each partition. With `create`, ask the broker to create a missing topic.

    Raises Unavailable and Rejected."""
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name=TopicName(topic)),), allow_auto_topic_creation=create
    )
    give_up_at = asyncio.get_running_loop().time() + timeout_s
    connection = await BrokerConnection.open(bootstrap, timeout_s)
    try:
        while True:
            answer = await connection.ask(request)
            (found,) = answer.topics
            code = next((each for each in map(_code, (found, *found.partitions)) if each), ErrorCode.none)
            if code is ErrorCode.none and found.partitions:
                brokers = {each.node_id: Address(each.host, each.port) for each in answer.brokers}
                return {each.partition_index: brokers[each.leader_id] for each in found.partitions}
            again = code in (ErrorCode.leader_not_available, ErrorCode.none) or (
                create and code is ErrorCode.unknown_topic_or_partition
            )
            if not again or asyncio.get_running_loop().time() > give_up_at:
                raise refusal(f"topic {topic!r}", code)
            await asyncio.sleep(_METADATA_AGAIN_S)
    finally:
        connection.close()


def _code(answer: Any) -> ErrorCode:
    code: ErrorCode = answer.error_code
    return code


def refusal(about: str, code: ErrorCode) -> Rejected:
    advice = ": try a smaller --record-size or --batch-size" if code is ErrorCode.message_too_large else ""
    return Rejected(f"{about}: the broker returned {code.name.upper()}{advice}")


def encode_produce(topic: str, partition: int, batch: bytes, timeout_s: float) -> EncodedRequest:
    """Encode one batch for one partition, with acks=all."""
    data = PartitionProduceData(index=i32(partition), records=Records(batch))
    return encode(
        ProduceRequest(
            acks=i16(-1),
            timeout=i32Timedelta.parse(timedelta(seconds=timeout_s)),
            topic_data=(TopicProduceData(name=TopicName(topic), partition_data=(data,)),),
        )
    )


def produced_offset(answer: Any) -> int:
    """Return the base offset. Raises Rejected."""
    ((partition,),) = (topic.partition_responses for topic in answer.responses)
    if partition.error_code is not ErrorCode.none:
        raise refusal(f"partition {partition.index}", partition.error_code)
    return int(partition.base_offset)


class PartitionReader:
    """Fetches one partition, batch by batch."""

    def __init__(self, connection: BrokerConnection, topic: str, partition: int) -> None:
        self._connection = connection
        self._topic = TopicName(topic)
        self._partition = i32(partition)
        self.offset = 0  # of the next record

    def __str__(self) -> str:
        return f"partition {self._partition} of topic {self._topic!r}"

    async def offset_at(self, time: int) -> int:
        """Return the offset at `time`, which is EARLIEST or LATEST. Raises Unavailable and Rejected."""
        wanted = ListOffsetsPartition(partition_index=self._partition, timestamp=i64(time))
        answer = await self._connection.ask(
            ListOffsetsRequest(
                replica_id=BrokerId(-1),
                isolation_level=i8(0),
                topics=(ListOffsetsTopic(name=self._topic, partitions=(wanted,)),),
            )
        )
        (found,) = answer.topics[0].partitions
        self._check(found.error_code)
        return int(found.offset)

    async def fetch(self, wait_s: float) -> tuple[int, int]:
        """Return the numbers of records and bytes received, both 0 after the wait. Raises Unavailable and Rejected."""
        wanted = FetchPartition(
            partition=self._partition, fetch_offset=i64(self.offset), partition_max_bytes=i32(_FETCH_BYTES)
        )
        answer = await self._connection.ask(
            FetchRequest(
                replica_id=BrokerId(-1),
                max_wait=i32Timedelta.parse(timedelta(seconds=wait_s)),
                min_bytes=i32(1),
                max_bytes=i32(_FETCH_BYTES),
                isolation_level=i8(0),
                session_id=i32(0),
                session_epoch=i32(-1),
                topics=(FetchTopic(topic=self._topic, partitions=(wanted,)),),
                forgotten_topics_data=(),
                rack_id="",
            )
        )
        self._check(answer.error_code)
        (found,) = answer.responses[0].partitions
        self._check(found.error_code)
        data = _whole_batches(found.records or b"")
        return sum(self._take(data, batch) for batch in walk(data)), len(data)

    def _take(self, data: memoryview, batch: BatchHeader) -> int:
        """Return how many records of the batch are new to this reader."""
        if not crc_matches(data, batch):
            raise Rejected(f"the batch at offset {batch.base_offset} does not match its checksum")
        fresh = min(batch.count, batch.next_offset - self.offset)
        self.offset = max(self.offset, batch.next_offset)
        return max(fresh, 0)

    def _check(self, code: ErrorCode) -> None:
        if code is not ErrorCode.none:
            raise refusal(str(self), code)


def _whole_batches(data: bytes) -> memoryview:
    """Drop a truncated last batch, which Kafka brokers may send; the next fetch returns it in full."""
    end = 0
    while end + _BATCH_PREFIX.size <= len(data):
        following = end + _BATCH_PREFIX.size + _BATCH_PREFIX.unpack_from(data, end)[1]
        if following > len(data):
            break
        end = following
    return memoryview(data)[:end]
