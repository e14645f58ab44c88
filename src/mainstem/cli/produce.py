"""`mainstem produce`."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace

import click

from mainstem import limits
from mainstem.cli.names import complete_topics
from mainstem.cli.records import InputRecord, from_json
from mainstem.cli.schemas import encoding
from mainstem.cli.store import Store, TopicDetails
from mainstem.cli.target import Target, takes_target
from mainstem.errors import InvalidInput, PartitionNotFound, TooLarge

_CHUNK_BYTES = 256 * limits.KIB
_BATCH_BYTES = 512 * limits.KIB  # of one append, unless the limit of the topic is lower

Parse = Callable[[bytes], InputRecord]


@click.command()
@takes_target()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("values", nargs=-1)
@click.option("-k", "--key", help="Key of every record.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Split each line at TEXT into key and value.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Header of every record. May be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Read lines of JSON, as `consume --json` prints them.")
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    help="Partition. [default: by key, or round-robin without a key]",
)
@click.option(
    "--schema",
    metavar="SUBJECT",
    help="Read values as JSON, and encode them with the latest schema of SUBJECT.",
)
@click.option("--create", is_flag=True, help="Create the topic if it does not exist.")
def produce(
    target: Target,
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    key_delimiter: str | None,
    headers: tuple[str, ...],
    as_json: bool,
    partition: int | None,
    schema: str | None,
    create: bool,
) -> None:
    """Append VALUES to TOPIC, or each line of standard input.

    Lines that arrive together are appended together, as one batch.
    """
    if sum(option is not None for option in (key, key_delimiter)) + as_json > 1:
        raise click.UsageError("--key, --key-delimiter and --json are mutually exclusive")
    if key_delimiter == "":
        raise click.UsageError("--key-delimiter needs at least one character")
    if values and as_json:
        raise click.UsageError("--json reads lines from standard input, so it takes no VALUES")
    pairs = tuple(_header(text) for text in headers)
    plain = from_json if as_json else _parser(key, key_delimiter)
    if schema is not None:
        plain = encoding(target, schema, plain)

    def parse(line: bytes) -> InputRecord:
        record = plain(line)
        return replace(record, headers=(*record.headers, *pairs)) if pairs else record

    async def work(store: Store) -> int:
        if create:
            await store.create(topic, 1, {}, True)
        producer = TopicAppender(store, await store.describe(topic), partition)
        if values:
            await producer.send([parse(value.encode()) for value in values])
        else:
            await _send_lines(producer, parse)
        return producer.sent

    sent = target.run(work, create=create)
    click.echo(f"{sent:,} record{'' if sent == 1 else 's'} appended to {topic}", err=True)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise click.UsageError(f"-H takes NAME=VALUE, not {text!r}")
    return name, value.encode() if equals else None


def _parser(key: str | None, delimiter: str | None) -> Parse:
    whole_key = None if key is None else key.encode()
    if delimiter is None:
        return lambda line: InputRecord(line, whole_key)
    cut = delimiter.encode()

    def parse(line: bytes) -> InputRecord:
        head, found, value = line.partition(cut)
        if not found:
            raise InvalidInput(f"the key delimiter {delimiter!r} is missing")
        return InputRecord(value, head)

    return parse


async def _send_lines(producer: TopicAppender, parse: Parse) -> None:
    number = 0
    with _progress() as progress:
        async for lines, taken in _lines():
            records: list[InputRecord] = []
            for line in lines:
                number += 1
                try:
                    records.append(parse(line))
                except InvalidInput as wrong:
                    await producer.send(records)
                    raise InvalidInput(
                        f"line {number}: {wrong}; the {producer.sent} records before it were appended"
                    ) from None
            await producer.send(records)
            progress(taken, producer.sent)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show progress on a terminal: a bar if the size of the input is known, else the number of records."""
    if not sys.stderr.isatty() or sys.stdin.isatty():
        yield lambda taken, sent: None
        return
    size = os.fstat(sys.stdin.fileno())
    if stat.S_ISREG(size.st_mode) and size.st_size:
        with click.progressbar(length=size.st_size, label="appending", file=sys.stderr) as bar:
            yield lambda taken, sent: bar.update(taken)
        return
    yield lambda taken, sent: click.echo(f"\r{sent:,} records", nl=False, err=True)
    click.echo("\r", nl=False, err=True)


async def _lines() -> AsyncIterator[tuple[list[bytes], int]]:
    """Yield complete lines as they arrive, and the number of bytes read for them."""
    import asyncio

    rest, taken = b"", 0
    while chunk := await asyncio.to_thread(os.read, sys.stdin.fileno(), _CHUNK_BYTES):
        taken += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > limits.RECORD_BYTES_MAX:
            raise TooLarge(f"a line of standard input is over {limits.RECORD_BYTES_MAX} bytes")
        if whole:
            yield whole, taken
            taken = 0
    if rest:
        yield [rest], taken


class TopicAppender:
    """Appends records in batches within the limit of the topic."""

    def __init__(self, store: Store, topic: TopicDetails, partition: int | None) -> None:
        self.sent = 0
        self._store = store
        self._topic = topic.name
        self._partition = partition
        self._partitions = len(topic.partitions)
        self._turn = 0
        self._batch_bytes = min(_BATCH_BYTES, topic.batch_bytes_max)
        if partition is not None and partition >= self._partitions:
            raise PartitionNotFound(topic.name, partition, self._partitions)

    async def send(self, records: Sequence[InputRecord]) -> None:
        """Append records, in order within each partition."""
        self._turn += 1
        by_partition: dict[int, list[InputRecord]] = {}
        for record in records:
            by_partition.setdefault(self._choose(record.key), []).append(record)
        for partition, chosen in by_partition.items():
            await self._send_to(partition, chosen)

    def _choose(self, key: bytes | None) -> int:
        if self._partition is not None:
            return self._partition
        if key is None:
            return self._turn % self._partitions
        from mainstem.records.partitioner import partition_of

        return partition_of(key, self._partitions)

    async def _send_to(self, partition: int, records: list[InputRecord]) -> None:
        first = 0
        while first < len(records):
            last, size = first, 0
            while last < len(records) and (last == first or size + records[last].size <= self._batch_bytes):
                size += records[last].size
                last += 1
            await self._store.append(self._topic, partition, records[first:last])
            self.sent += last - first
            first = last
