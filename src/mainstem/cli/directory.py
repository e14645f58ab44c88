"""Access to a data directory without a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from mainstem.cli.records import InputRecord
from mainstem.cli.store import PartitionLine, ReadRecord, TopicDetails, TopicLine
from mainstem.config import Config
from mainstem.errors import DirectoryUnusable

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker

T = TypeVar("T")

_AT_ONCE_RECORDS = 1024


def with_directory(
    config: Config, work: Callable[[DirectoryStore], Awaitable[T]], *, create: bool = False
) -> T:
    """Open the log, run `work`, close the log. Without `create` the directory must exist."""
    if not create and not config.data_dir.is_dir():
        raise DirectoryUnusable(f"no log at {config.data_dir}: set --data-dir to its directory")
    # Imported here, so that help and usage errors are fast.
    import asyncio

    import uvloop

    from mainstem import events

    events.configure("text", "warning")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_with_directory(config, work))


async def _with_directory(config: Config, work: Callable[[DirectoryStore], Awaitable[T]]) -> T:
    from mainstem.broker.broker import Broker
    from mainstem.broker.options import broker_options

    broker = await Broker.open(broker_options(config))
    try:
        return await work(DirectoryStore(broker))
    finally:
        await broker.close()


class DirectoryStore:
    """A log that this process has open."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def create(self, name: str, partitions: int, settings: Mapping[str, str], exist_ok: bool) -> None:
        from mainstem.broker.topics.configs import parse

        config = parse(settings, self._broker.namespaces.default_config(name))
        await self._broker.create_topic(name, partitions=partitions, config=config, exist_ok=exist_ok)

    async def topics(self, prefix: str) -> list[TopicLine]:
        return [(await self.describe(info.name)).line for info in self._broker.topics(prefix)]

    async def describe(self, name: str) -> TopicDetails:
        from mainstem.broker.topics import configs

        info = self._broker.topic(name)
        states = [self._broker.partition(name, number) for number in range(info.partitions)]
        lines = [
            PartitionLine(
                state.partition, state.start, state.end, state.records, state.bytes, state.max_timestamp_ms
            )
            for state in states
        ]
        return TopicDetails(name, info.topic_id.hex(), lines, configs.describe(info.config))

    async def alter(self, name: str, settings: Mapping[str, str], partitions: int | None) -> None:
        from mainstem.broker.topics.configs import parse

        config = parse(settings, self._broker.topic(name).config)
        if partitions is not None:
            await self._broker.add_partitions(name, partitions)
        if settings:
            await self._broker.alter_topic(name, config)

    async def delete(self, name: str) -> None:
        await self._broker.delete_topic(name)

    async def append(self, name: str, partition: int, records: Sequence[InputRecord]) -> None:
        dated = [record.timestamp_ms for record in records]
        now = self._broker.clock.now_ms() if any(time is not None for time in dated) else None
        await self._broker.append_values(
            name,
            [record.value for record in records],
            keys=[record.key for record in records],
            headers=[record.headers for record in records] if any(r.headers for r in records) else None,
            timestamps_ms=None if now is None else [now if time is None else time for time in dated],
            partition=partition,
        )

    async def read(self, name: str, partition: int, offset: int) -> tuple[Sequence[ReadRecord], int]:
        from mainstem.client.reader import read_on

        records = await read_on(self._broker, name, offset, partition=partition, max_records=_AT_ONCE_RECORDS)
        return records, records[-1].offset + 1 if records else offset

    async def offset_at(self, name: str, partition: int, timestamp_ms: int) -> int:
        return await self._broker.offset_at(name, timestamp_ms, partition)

    async def committed(self, group: str, name: str) -> Mapping[int, int]:
        found = {
            number: self._broker.committed(group, name, number)
            for number in range(self._broker.topic(name).partitions)
        }
        return {number: offset for number, offset in found.items() if offset is not None}

    async def commit(self, group: str, name: str, partition: int, offset: int) -> None:
        await self._broker.commit_offset(group, name, offset, partition)
