"""`mainstem produce`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

import click

from mainstem import limits
from mainstem.cli.directory import with_broker
from mainstem.cli.records import NewRecord, from_json
from mainstem.cli.settings import takes_settings
from mainstem.config import Resolved
from mainstem.errors import InvalidInput, TooLarge

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker

_CHUNK_BYTES = 256 * limits.KIB
_BATCH_BYTES = 512 * limits.KIB  # of one append, unless the topic takes less

Parse = Callable[[bytes], NewRecord]


@click.command()
@takes_settings("data_dir")
@click.argument("topic")
@click.argument("values", nargs=-1)
@click.option("-k", "--key", help="Key of every record.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Lines are KEY, this, VALUE.")
@click.option("--json", "as_json", is_flag=True, help="Lines are JSON, as consume --json prints them.")
@click.option(
    "-p", "--partition", type=click.IntRange(min=0), help="Partition; else by key, or in turn without one."
)
@click.option("--create", is_flag=True, help="Create the topic if there is none.")
def produce(
    resolved: Resolved,
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    key_delimiter: str | None,
    as_json: bool,
    partition: int | None,
    create: bool,
) -> None:
    """Append VALUES to TOPIC, or else each line of standard input.

    Lines that arrive together are appended together, as one batch.
    """
    if sum(option is not None for option in (key, key_delimiter)) + as_json > 1:
        raise click.UsageError("--key, --key-delimiter and --json exclude each other")
    if key_delimiter == "":
        raise click.UsageError("--key-delimiter needs at least one character")
    if values and as_json:
        raise click.UsageError("--json reads lines from standard input, so it takes no VALUES")
    parse = from_json if as_json else _parser(key, key_delimiter)

    async def work(broker: Broker) -> int:
        if create:
            await broker.create_topic(topic, exist_ok=True)
        producer = Producer(broker, topic, partition)
        if values:
            await producer.send([parse(value.encode()) for value in values])
        else:
            await _send_lines(producer, parse)
        return producer.sent

    sent = with_broker(resolved.config, work, create=create)
    click.echo(f"{sent:,} record{'' if sent == 1 else 's'} appended to {topic}", err=True)


def _parser(key: str | None, delimiter: str | None) -> Parse:
    whole_key = None if key is None else key.encode()
    if delimiter is None:
        return lambda line: NewRecord(line, whole_key)
    cut = delimiter.encode()

    def parse(line: bytes) -> NewRecord:
        head, found, value = line.partition(cut)
        if not found:
            raise InvalidInput(f"no key delimiter {delimiter!r} in it")
        return NewRecord(value, head)

    return parse


async def _send_lines(producer: Producer, parse: Parse) -> None:
    number = 0
    shows_progress = sys.stderr.isatty() and not sys.stdin.isatty()
    async for lines in _lines():
        records: list[NewRecord] = []
        for line in lines:
            number += 1
            try:
                records.append(parse(line))
            except InvalidInput as wrong:
                await producer.send(records)
                raise InvalidInput(
                    f"line {number}: {wrong}; the {producer.sent} records before it are appended"
                ) from None
        await producer.send(records)
        if shows_progress:
            click.echo(f"\r{producer.sent:,} records", nl=False, err=True)
    if shows_progress:
        click.echo("\r", nl=False, err=True)


async def _lines() -> AsyncIterator[list[bytes]]:
    """Whole lines as they arrive, without waiting for more than one."""
    import asyncio

    rest = b""
    while chunk := await asyncio.to_thread(os.read, sys.stdin.fileno(), _CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > limits.RECORD_BYTES_MAX:
            raise TooLarge(f"a line of standard input is over {limits.RECORD_BYTES_MAX} bytes")
        if whole:
            yield whole
    if rest:
        yield [rest]


class Producer:
    """Appends records in batches that fit the topic."""

    def __init__(self, broker: Broker, topic: str, partition: int | None) -> None:
        info = broker.topic(topic)
        self.sent = 0
        self._broker = broker
        self._topic = topic
        self._partition = partition
        self._partitions = info.partitions
        self._turn = 0
        self._batch_bytes = min(_BATCH_BYTES, info.config.max_message_bytes)

    async def send(self, records: Sequence[NewRecord]) -> None:
        """In order inside each partition."""
        self._turn += 1
        by_partition: dict[int, list[NewRecord]] = {}
        for record in records:
            by_partition.setdefault(self._choose(record.key), []).append(record)
        for partition, chosen in by_partition.items():
            await self._send_to(partition, chosen)

    def _choose(self, key: bytes | None) -> int:
        if self._partition is not None:
            return self._partition
        if key is None:
            return self._turn % self._partitions
        from mainstem.client.partitioner import partition_of

        return partition_of(key, self._partitions)

    async def _send_to(self, partition: int, records: list[NewRecord]) -> None:
        first = 0
        while first < len(records):
            last, size = first, 0
            while last < len(records) and (last == first or size + records[last].size <= self._batch_bytes):
                size += records[last].size
                last += 1
            await self._append(partition, records[first:last])
            first = last

    async def _append(self, partition: int, batch: list[NewRecord]) -> None:
        dated = [record.timestamp_ms for record in batch]
        now = _now_ms() if any(time is not None for time in dated) else None
        await self._broker.append_values(
            self._topic,
            [record.value for record in batch],
            keys=[record.key for record in batch],
            headers=[record.headers for record in batch] if any(record.headers for record in batch) else None,
            timestamps_ms=None if now is None else [now if time is None else time for time in dated],
            partition=partition,
        )
        self.sent += len(batch)


def _now_ms() -> int:
    from mainstem.ports.clock import SystemClock

    return SystemClock().now_ms()
