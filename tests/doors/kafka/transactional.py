"""A hand-made transactional producer: one request at a time, in any version."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from mainstem.records.building import build_batch

from .messages import make
from .requests import produce
from .wire import Wire

TIME_MS = 1_700_000_000_000

INIT, ADD_PARTITIONS, ADD_OFFSETS, END, WRITE_MARKERS, OFFSETS = 22, 24, 25, 26, 27, 28
PRODUCERS, DESCRIBE, LIST = 61, 65, 66


def milliseconds(ms: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=ms))


class Client:
    def __init__(self, wire: Wire, id: str | None = "tx") -> None:
        self.wire = wire
        self.id = id
        self.producer, self.epoch = -1, -1

    async def ask(self, key: int, version: int, **values: Any) -> Any:
        values = {
            "transactional_id": self.id,
            "producer_id": self.producer,
            "producer_epoch": self.epoch,
        } | values
        values |= {
            f"v3_and_below_{name}": value
            for name, value in values.items()
            if name in ("transactional_id", "producer_id", "producer_epoch", "topics")
        }
        return await self.wire.ask(make(load_request_schema(key, version), values))

    async def init(self, version: int = 5, timeout_ms: int = 60_000, **values: Any) -> ErrorCode:
        values = {"producer_id": -1, "producer_epoch": -1} | values
        answer = await self.ask(INIT, version, transaction_timeout=milliseconds(timeout_ms), **values)
        if answer.error_code is ErrorCode.none:
            self.producer, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code

    async def add(self, *partitions: int, topic: str = "t", version: int = 3) -> list[ErrorCode]:
        topics = ({"name": topic, "partitions": partitions},)
        answer = await self.ask(ADD_PARTITIONS, version, topics=topics)
        [result] = answer.results_by_topic_v3_and_below
        return [one.partition_error_code for one in result.results_by_partition]

    async def add_group(self, group: str = "g", version: int = 4) -> ErrorCode:
        return (await self.ask(ADD_OFFSETS, version, group_id=group)).error_code

    async def offsets(
        self, offset: int, version: int = 4, topic: str = "t", partition: int = 0, **values: Any
    ) -> ErrorCode:
        row = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": 0,
            "committed_metadata": "m",
        }
        values = {"group_id": "g"} | values
        topics = ({"name": topic, "partitions": (row,)},)
        answer = await self.ask(OFFSETS, version, topics=topics, **values)
        return answer.topics[0].partitions[0].error_code

    async def end(self, committed: bool, version: int = 4) -> ErrorCode:
        return (await self.ask(END, version, committed=committed)).error_code

    async def finish(self, committed: bool) -> tuple[ErrorCode, int, int]:
        """End with version 2 of transactions, and continue with the returned producer and epoch."""
        answer = await self.ask(END, 5, committed=committed)
        if answer.error_code is ErrorCode.none:
            self.producer, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code, answer.producer_id, answer.producer_epoch

    async def produce(
        self, topic: str | uuid.UUID, sequence: int, value: bytes, *, version: int = 12, partition: int = 0
    ) -> tuple[ErrorCode, int]:
        """One batch: the code, and the offset."""
        request = produce(
            version,
            topic,
            self.batch(sequence, value),
            partitions=[partition],
            transactional_id=self.id,
        )
        [part] = (await self.wire.ask(request)).responses[0].partition_responses
        return part.error_code, part.base_offset

    def copy(self) -> Client:
        """The same producer, as one that misses what comes next."""
        other = Client(self.wire, self.id)
        other.producer, other.epoch = self.producer, self.epoch
        return other

    def batch(self, sequence: int, *values: bytes) -> bytearray:
        return build_batch(
            values,
            timestamps_ms=TIME_MS,
            producer=self.producer,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
