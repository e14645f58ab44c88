"""Message ids stay what they were, whatever becomes of the files that hold the records."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random

import cramjam
import lz4.block
import zstandard

from mainstem.api.lake import PlanRequest
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.storage.migrations import migrate
from mainstem.broker.subscriptions.entries import MessageEntry, MessageEntryReader
from mainstem.doors.pulsar.kernels import use_kernels
from mainstem.doors.pulsar.messages import MessageMetadata, SingleMessageMetadata
from mainstem.doors.pulsar.records import BuiltBatch, batch_of, encoded, parse_sends
from mainstem.doors.pulsar.topic_names import ledger_of
from mainstem.doors.pulsar.wire import payload_frame, simple_frame
from mainstem.ledger.config import TopicConfig
from mainstem.log.objects.backup import restore
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.write.append import promise
from mainstem.ports.commitlog.shared.open import SharedPlace
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.records.compiled import pulsar_preloaded
from mainstem.tables.parts.materialise import materialise
from tests.support.cluster import brokers_here

_NOW = RepackOptions(
    on=False, after_objects=1, least_bytes=0, bytes_per_s=0, merged_rounds=2, file_bytes=8_000, grace_s=0.0
)
_TOPIC = "t"
_LZ4, _ZLIB, _ZSTD, _SNAPPY = range(1, 5)
_CODECS = (0, 0, _LZ4, _ZLIB, _ZSTD, _SNAPPY)

Shown = tuple[int, int, list[bytes]]  # ledger, entry, its metadata and messages


def _compressed(codec: int, content: bytes) -> bytes:
    """One block, as Pulsar's clients write it."""
    if codec == _LZ4:
        packed: bytes = lz4.block.compress(content, store_size=False)
        return packed
    if codec == _ZLIB:
        return zlib.compress(content)
    if codec == _ZSTD:
        return zstandard.compress(content)
    return bytes(cramjam.snappy.compress_raw(content))


async def _fill(broker: Broker, batches: int = 90) -> None:
    """Entries of every kind that Pulsar's clients make, among batches of other doors."""
    chosen = Random(4)
    for number in range(batches):
        topic = broker.streams.get(_TOPIC)
        assert topic is not None
        key = b"k%d" % chosen.randrange(8)
        match chosen.choice(("alone", "batch", "other", "sealed", "chunk", "together")):
            case "alone":
                metadata = MessageMetadata(
                    producer_name=b"p", sequence_id=number, publish_time=1, partition_key=key
                )
                built = batch_of(metadata, memoryview(b"v%d" % number))
            case "batch":
                count = chosen.choice((1, 2, 5, 40))
                metadata = MessageMetadata(
                    producer_name=b"p", sequence_id=number, publish_time=1, num_messages_in_batch=count
                )
                framed = b""
                for index in range(count):
                    payload = b"b%d-%d" % (number, index)
                    single = SingleMessageMetadata(
                        payload_size=len(payload), sequence_id=number + index, partition_key=key
                    ).SerializeToString()
                    framed += struct.pack(">I", len(single)) + single + payload
                codec = chosen.choice(_CODECS)
                if codec:
                    metadata.compression, metadata.uncompressed_size = codec, len(framed)
                built = batch_of(metadata, memoryview(_compressed(codec, framed) if codec else framed))
            case "sealed":  # what only clients can read
                metadata = MessageMetadata(
                    producer_name=b"p",
                    sequence_id=number,
                    publish_time=1,
                    num_messages_in_batch=3,
                    compression=1,
                )
                metadata.partition_key = key
                metadata.encryption_keys.add(key=b"key", value=b"encrypted")
                built = batch_of(metadata, memoryview(chosen.randbytes(30)))
            case "chunk":
                metadata = MessageMetadata(
                    producer_name=b"p", sequence_id=number, publish_time=1, partition_key=key
                )
                metadata.num_chunks_from_msg, metadata.chunk_id = 3, chosen.randrange(3)
                metadata.uuid, metadata.total_chunk_msg_size = b"u%d" % number, 900
                built = batch_of(metadata, memoryview(chosen.randbytes(30)))
            case "together":  # SENDs that one batch holds
                sends = b""
                for index in range(chosen.randint(2, 20)):
                    metadata = MessageMetadata(
                        producer_name=b"p", sequence_id=number + index, publish_time=1, partition_key=key
                    )
                    command = simple_frame("send", producer_id=1, sequence_id=number + index)[8:]
                    sends += payload_frame(command, metadata.SerializeToString(), b"s%d-%d" % (number, index))
                run = await asyncio.to_thread(parse_sends, memoryview(sends), 4_096)
                assert run is not None
                built = BuiltBatch(run.batch, run.messages, batched=False)
            case _:
                values = [b"o%d-%d" % (number, index) for index in range(chosen.randint(1, 4))]
                await broker.append_values(_TOPIC, values, keys=[key] * len(values), timestamps_ms=1)
                continue
        done = promise()
        broker.appends.batches(topic, 0, built.batch, done)
        await done


async def _ids(broker: Broker) -> list[Shown]:
    """Every entry as clients get it, read in order and from each offset."""
    topic = broker.streams.get(_TOPIC)
    assert topic is not None
    stream, ledger = topic.streams[0], ledger_of(topic)
    reader = MessageEntryReader(broker.streams, stream)
    first, end = broker.streams.bounds(stream)
    shown: list[Shown] = []
    at = first
    while at < end:
        entries, at = await reader.read(at, 4_000)
        shown += [(ledger, one.base, _messages(one)) for one in entries]
    for _, base, messages in shown:
        entry = await reader.at(base)
        assert entry is not None
        assert (entry.base, _messages(entry)) == (base, messages)
    return shown


def _messages(entry: MessageEntry) -> list[bytes]:
    """The metadata of an entry, and each of its messages. Whatever the order of their fields is."""
    encoded_metadata, payload = encoded(entry)
    metadata = MessageMetadata.FromString(encoded_metadata)
    found = [metadata.SerializeToString()]
    at = len(payload) if metadata.encryption_keys else 0
    while metadata.HasField("num_messages_in_batch") and at < len(payload):
        end = at + 4 + int.from_bytes(payload[at : at + 4], "big")
        single = SingleMessageMetadata.FromString(bytes(payload[at + 4 : end]))
        at = end + single.payload_size
        if not single.compacted_out:
            found.append(single.SerializeToString() + bytes(payload[end:at]))
    return found if len(found) > 1 else [*found, bytes(payload)]


@asynccontextmanager
async def _opened(directory: Path) -> AsyncIterator[Broker]:
    broker = await Broker.open(BrokerOptions(directory, segment_bytes=8_192, repack=_NOW))
    try:
        yield broker
    finally:
        await broker.close()


async def _repack(broker: Broker) -> int:
    assert broker.log.repacker is not None
    steps = 0
    while await broker.log.repacker.step():
        steps += 1
    return steps


@contextmanager
def _unseen(total: int) -> Iterator[object]:
    yield lambda done: None


async def test_ids_stay_through_restart_repacking_tables_backup_migration_and_other_brokers(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    async with _opened(data) as broker:
        await broker.create_topic(_TOPIC, config=TopicConfig(table=True))
        await _fill(broker)
        ids = await _ids(broker)
        assert len({shown[:2] for shown in ids}) == len(ids)
        await asyncio.to_thread(pulsar_preloaded.load, use_kernels)
        assert await _ids(broker) == ids  # by native code
    async with _opened(data) as broker:
        assert await _ids(broker) == ids
        assert await _repack(broker)
        assert await _ids(broker) == ids
        for task in (await broker.lake.plan(PlanRequest("test"))).tasks:
            await broker.lake.publish(await asyncio.to_thread(materialise, task))
        stream = broker.streams.of(_TOPIC, 0)
        moved = broker.log.ledger.generations.frontier(stream)
        assert moved > 0
        assert await _ids(broker) == ids
        await broker.backups.run(str(tmp_path / "backup"))
    async with _opened(data) as broker:  # nothing is in memory any more
        assert await _ids(broker) == ids
    await restore(LocalObjectStore(tmp_path / "backup"), tmp_path / "restored")
    async with _opened(tmp_path / "restored") as broker:
        assert await _ids(broker) == ids
    place = SharedPlace((tmp_path / "bucket").as_uri())
    await migrate(data, place, objects="", showing=_unseen, dry_run=False)  # type: ignore[arg-type]
    async with brokers_here(tmp_path, "one", "two") as (one, two):
        assert await _ids(one) == ids
        await two.barrier()
        assert await _ids(two) == ids


async def test_compaction_leaves_the_ids_of_what_stays(tmp_path: Path) -> None:
    config = TopicConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, segment_ms=1)
    async with _opened(tmp_path / "data") as broker:
        await broker.create_topic(_TOPIC, config=config)
        await _fill(broker)
        before = {entry: (ledger, messages) for ledger, entry, messages in await _ids(broker)}
        for _ in range(40):  # what is compacted is in complete files
            await broker.append_values(_TOPIC, [b"x" * 900], keys=[b"last"])
    async with _opened(tmp_path / "data") as broker:
        assert await _repack(broker)
        after = await _ids(broker)
        kept = [shown for shown in after if shown[1] in before]
        assert 0 < len(kept) < len(before)
        for ledger, entry, messages in kept:
            written = before[entry]
            assert ledger == written[0]
            assert set(messages[1:]) <= set(written[1])
        assert all(shown[1] > max(before) for shown in after if shown not in kept)
