"""The storage map: files of the log, repacked files and parts, with the topics in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mainstem.api.server import PartRow, RepackedRow, StorageMap, StoredRange, Tier, WalObject
from mainstem.errors import LogDamaged
from mainstem.ledger.repacked_objects import RepackRound
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.log.objects.stored_objects import ObjectContents
from mainstem.log.read.extents import Rows

STORAGE_OBJECTS_SHOWN = 200
STORAGE_REPACKED_SHOWN = 50  # repacked files; each needs a read of its index
STORAGE_PARTS_SHOWN = 500
STORAGE_RANGES_SHOWN = 50


class StorageMaps:
    def __init__(self, log: Log, store_url: str) -> None:
        self._log = log
        self._store_url = store_url  # of parts and repacked files, without secrets

    async def map(self, allowed: Callable[[str], bool], topic: Topic | None = None) -> StorageMap:
        """Everything that is stored, or everything of one topic."""
        log = self._log
        streams = None if topic is None else set(topic.streams)
        held = log.stored_objects(spans=True).objects[::-1]
        if streams is not None:
            held = [one for one in held if _mentions(one, streams)]
        objects = [_object(log, one, allowed, streams) for one in held[:STORAGE_OBJECTS_SHOWN]]
        files = _repacked_files(log, streams)
        shown = files[:STORAGE_REPACKED_SHOWN]
        repacked = [await _repacked(log, number, made, allowed, streams) for number, made in shown]
        parts = sorted(
            _parts(log, allowed, streams), key=lambda part: (-part.generation, part.topic, -part.end)
        )
        return StorageMap(
            objects,
            len(held),
            parts[:STORAGE_PARTS_SHOWN],
            len(parts),
            len(log.ledger.generations.garbage()),
            self._store_url,
            [row for row in repacked if row is not None],
            len(files),
        )


def _mentions(one: ObjectContents, streams: set[int]) -> bool:
    return one.spans is not None and not streams.isdisjoint(one.spans["stream"].tolist())


def _object(
    log: Log, one: ObjectContents, allowed: Callable[[str], bool], streams: set[int] | None
) -> WalObject:
    ranges = [] if one.spans is None else _ranges(log, one.spans, allowed, streams)
    return WalObject(
        one.number,
        one.size_bytes,
        one.sealed,
        one.commits,
        ranges[:STORAGE_RANGES_SHOWN],
        len(ranges),
        _tier(log, one),
    )


def _ranges(
    log: Log, spans: Rows, allowed: Callable[[str], bool], streams: set[int] | None
) -> list[StoredRange]:
    """The contents of an object, the largest range first."""
    columns = [spans[name].tolist() for name in ("bytes", "stream", "base", "end")]
    ranges: list[StoredRange] = []
    for size, stream, base, end in sorted(zip(*columns, strict=True), reverse=True):
        topic = log.ledger.topics.of_stream(stream)
        if topic is None or not allowed(topic.name) or (streams is not None and stream not in streams):
            continue
        start, frontier = (
            log.streams.of(stream).start(stream),
            log.ledger.generations.frontier(stream),
        )
        live = end > max(start, frontier)
        ranges.append(StoredRange(topic.name, topic.streams.index(stream), base, end, size, live))
    return ranges


def _repacked_files(log: Log, streams: set[int] | None) -> list[tuple[int, RepackRound]]:
    """Repacked files, newest first; with `streams`, only those that may hold their records."""
    found: set[tuple[int, int]] = set()
    rounds = log.ledger.repacked.rounds
    for at, made in enumerate(rounds):
        everything = range(made.number, made.number + len(made.files))
        numbers = [everything] if streams is None else [made.covering(stream, 0) for stream in streams]
        found |= {(at, number) for some in numbers for number in some}
    return [(number, rounds[at]) for at, number in sorted(found, reverse=True)]


async def _repacked(
    log: Log, number: int, made: RepackRound, allowed: Callable[[str], bool], streams: set[int] | None
) -> RepackedRow | None:
    """None if it has been replaced, or holds no records of the topic."""
    file = made.files[number - made.number]
    facts = (file.key, file.bytes, made.level, made.first, made.end)
    try:
        extents = await log.repacked_extents(number)
    except LogDamaged:
        return RepackedRow(*facts, streams=0, ranges=[], ranges_total=0, damaged=True)
    if extents is None:
        return None
    spans = extents.spans[extents.spans["bytes"] > 0]  # empty spans only mark where a stream continues
    ranges = _ranges(log, spans, allowed, streams)
    if streams is not None and not ranges:
        return None
    return RepackedRow(*facts, len(spans), ranges[:STORAGE_RANGES_SHOWN], len(ranges))


def _tier(log: Log, one: ObjectContents) -> Tier:
    if one.cold or log.shared:
        return "store"
    return "disk" if log.ledger.tiers.stored(one.number) is None else "both"


def _parts(log: Log, allowed: Callable[[str], bool], streams: set[int] | None) -> Iterator[PartRow]:
    ledger = log.ledger
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
