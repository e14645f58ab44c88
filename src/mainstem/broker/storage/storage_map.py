"""The storage map: files of the log, repacked files and parts, with the topics in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mainstem import limits
from mainstem.api.server import PartRow, RepackedRow, StorageMap, StoredRange, Tier, WalObject
from mainstem.errors import LogDamaged
from mainstem.ledger.repacked_objects import RepackRound
from mainstem.ledger.topics import Topic
from mainstem.log.objects.stored_objects import ObjectContents
from mainstem.log.read.extents import Rows

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker


async def storage_map(
    broker: Broker, allowed: Callable[[str], bool], topic: Topic | None = None
) -> StorageMap:
    """All stored objects, or those of one topic."""
    streams = None if topic is None else set(topic.streams)
    held = broker.log.stored_objects(spans=True).objects[::-1]
    if streams is not None:
        held = [one for one in held if _mentions(one, streams)]
    objects = [_object(broker, one, allowed, streams) for one in held[: limits.STORAGE_OBJECTS_SHOWN]]
    files = _repacked_files(broker, streams)
    shown = files[: limits.STORAGE_REPACKED_SHOWN]
    repacked = [await _repacked(broker, number, made, allowed, streams) for number, made in shown]
    parts = sorted(
        _parts(broker, allowed, streams), key=lambda part: (-part.generation, part.topic, -part.end)
    )
    return StorageMap(
        objects,
        len(held),
        parts[: limits.STORAGE_PARTS_SHOWN],
        len(parts),
        len(broker.log.ledger.generations.garbage()),
        broker.lake.store_url,
        [row for row in repacked if row is not None],
        len(files),
    )


def _mentions(one: ObjectContents, streams: set[int]) -> bool:
    return one.spans is not None and not streams.isdisjoint(one.spans["stream"].tolist())


def _object(
    broker: Broker, one: ObjectContents, allowed: Callable[[str], bool], streams: set[int] | None
) -> WalObject:
    ranges = [] if one.spans is None else _ranges(broker, one.spans, allowed, streams)
    return WalObject(
        one.number,
        one.size_bytes,
        one.sealed,
        one.commits,
        ranges[: limits.STORAGE_RANGES_SHOWN],
        len(ranges),
        _tier(broker, one),
    )


def _ranges(
    broker: Broker, spans: Rows, allowed: Callable[[str], bool], streams: set[int] | None
) -> list[StoredRange]:
    """The contents of an object, the largest range first."""
    columns = [spans[name].tolist() for name in ("bytes", "stream", "base", "end")]
    ranges: list[StoredRange] = []
    for size, stream, base, end in sorted(zip(*columns, strict=True), reverse=True):
        topic = broker.log.ledger.topics.of_stream(stream)
        if topic is None or not allowed(topic.name) or (streams is not None and stream not in streams):
            continue
        start, frontier = (
            broker.log.streams.of(stream).start(stream),
            broker.log.ledger.generations.frontier(stream),
        )
        live = end > max(start, frontier)
        ranges.append(StoredRange(topic.name, topic.streams.index(stream), base, end, size, live))
    return ranges


def _repacked_files(broker: Broker, streams: set[int] | None) -> list[tuple[int, RepackRound]]:
    """Repacked files, newest first; with `streams`, only those that may hold their records."""
    found: set[tuple[int, int]] = set()
    rounds = broker.log.ledger.repacked.rounds
    for at, made in enumerate(rounds):
        everything = range(made.number, made.number + len(made.files))
        numbers = [everything] if streams is None else [made.covering(stream, 0) for stream in streams]
        found |= {(at, number) for some in numbers for number in some}
    return [(number, rounds[at]) for at, number in sorted(found, reverse=True)]


async def _repacked(
    broker: Broker, number: int, made: RepackRound, allowed: Callable[[str], bool], streams: set[int] | None
) -> RepackedRow | None:
    """None if it was replaced in the meantime, or holds nothing of the topic."""
    file = made.files[number - made.number]
    facts = (file.key, file.bytes, made.level, made.first, made.end)
    try:
        extents = await broker.log.repacked_extents(number)
    except LogDamaged:
        return RepackedRow(*facts, streams=0, ranges=[], ranges_total=0, damaged=True)
    if extents is None:
        return None
    spans = extents.spans[extents.spans["bytes"] > 0]  # empty spans only tell where a stream continues
    ranges = _ranges(broker, spans, allowed, streams)
    if streams is not None and not ranges:
        return None
    return RepackedRow(*facts, len(spans), ranges[: limits.STORAGE_RANGES_SHOWN], len(ranges))


def _tier(broker: Broker, one: ObjectContents) -> Tier:
    if one.cold or broker.log.shared:
        return "store"
    return "disk" if broker.log.ledger.tiers.stored(one.number) is None else "both"


def _parts(broker: Broker, allowed: Callable[[str], bool], streams: set[int] | None) -> Iterator[PartRow]:
    ledger = broker.log.ledger
    for stream in ledger.generations.streams():
        topic = ledger.topics.of_stream(stream)
        if topic is None or not allowed(topic.name) or (streams is not None and stream not in streams):
            continue
        for part in ledger.generations.parts(stream):
            yield PartRow(
                topic.name,
                topic.streams.index(stream),
                part.base,
                part.end,
                part.generation,
                part.records,
                part.bytes,
                [file.key for file in part.files],
            )
