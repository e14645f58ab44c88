"""Which objects hold what: files of the log with the topics in them, and the parts that replaced them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

from mainstem import limits
from mainstem.ledger.topics import Topic
from mainstem.log.holdings import HeldObject

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker


class HeldRange(msgspec.Struct, frozen=True):
    """Offsets [base, end) of a partition."""

    topic: str
    partition: int
    base: int
    end: int
    bytes: int
    live: bool  # whether readers are still served from here


Tier = Literal["disk", "both", "store"]


class WalObject(msgspec.Struct, frozen=True):
    number: int
    bytes: int
    sealed: bool
    commits: int
    ranges: list[HeldRange]  # the largest ones
    ranges_total: int
    tier: Tier = "disk"  # where its bytes are


class PartRow(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    base: int
    end: int
    generation: int
    records: int
    bytes: int
    files: list[str]


class StorageMap(msgspec.Struct, frozen=True):
    """Objects and parts, newest first, up to a number of each."""

    objects: list[WalObject]
    objects_total: int
    parts: list[PartRow]
    parts_total: int
    garbage: int
    store: str


def storage_map(broker: Broker, allowed: Callable[[str], bool], topic: Topic | None = None) -> StorageMap:
    """All that is stored, or all that is stored of one topic."""
    streams = None if topic is None else set(topic.streams)
    held = broker.log.holdings(spans=True).objects[::-1]
    if streams is not None:
        held = [one for one in held if _mentions(one, streams)]
    objects = [_object(broker, one, allowed, streams) for one in held[: limits.STORAGE_OBJECTS_SHOWN]]
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
    )


def _mentions(one: HeldObject, streams: set[int]) -> bool:
    return one.spans is not None and not streams.isdisjoint(one.spans["stream"].tolist())


def _object(
    broker: Broker, one: HeldObject, allowed: Callable[[str], bool], streams: set[int] | None
) -> WalObject:
    ranges: list[HeldRange] = []
    if one.spans is not None:
        rows = sorted(
            zip(
                one.spans["bytes"].tolist(),
                one.spans["stream"].tolist(),
                one.spans["base"].tolist(),
                one.spans["end"].tolist(),
                strict=True,
            ),
            reverse=True,
        )
        for size, stream, base, end in rows:
            topic = broker.log.ledger.topics.of_stream(stream)
            if topic is None or not allowed(topic.name) or (streams is not None and stream not in streams):
                continue
            start, frontier = broker.log.start(stream), broker.log.ledger.generations.frontier(stream)
            live = end > max(start, frontier)
            ranges.append(HeldRange(topic.name, topic.streams.index(stream), base, end, size, live))
    return WalObject(
        one.number,
        one.size_bytes,
        one.sealed,
        one.commits,
        ranges[: limits.STORAGE_RANGES_SHOWN],
        len(ranges),
        _tier(broker, one),
    )


def _tier(broker: Broker, one: HeldObject) -> Tier:
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
