"""The contents of a repacked file as items, including damaged ranges. Each item is one JSON object.

| kind     | meaning                                                                     |
|----------|-----------------------------------------------------------------------------|
| repacked | the file: which log files it replaces, and whether it is intact             |
| extent   | consecutive offsets of one stream, with its damaged batches                 |
| damage   | unreadable bytes                                                            |
| index    | the streams and offsets of the file; an empty span is where a stream continues |
"""

from __future__ import annotations

from collections.abc import Iterator

from crc32c import crc32c

from mainstem.cli.contents import CommitFilter, Item, decoded
from mainstem.log.objects.repack import layout
from mainstem.log.read.extents import SealedExtents
from mainstem.ports.files import File, read_up_to


def repacked_items(file: File, wanted: CommitFilter) -> Iterator[Item]:
    """The items of a repacked file."""
    size = file.size()
    copies = layout.index_copies(
        lambda start, length: bytes(read_up_to(file, start, length)), size, str(file.path)
    )
    found = next((copy for copy in copies if copy is not None), None)
    top: Item = {"kind": "repacked", "file": str(file.path), "bytes": size}
    if found is None:
        yield top
        yield {"kind": "damage", "start": 0, "end": size, "what": "both copies of its index are damaged"}
        return
    origin, index = found
    yield top | {"log": f"{origin.log:016x}", "first": origin.first, "end": origin.end}
    yield from _extents(file, index, wanted)
    yield {
        "kind": "index",
        "start": layout.HEAD.size,
        "end": size - layout.HEAD.size,
        "first_copy": "damaged" if copies[0] is None else "whole",
        "second_copy": "damaged" if copies[1] is None else "whole",
        "extents": len(index.rows),
        "spans": [
            {"stream": stream, "start": base, "end": end, "bytes": held, "max_timestamp_ms": time}
            for stream, _, base, end, held, time in index.spans.tolist()
        ],
    }


def _extents(file: File, index: SealedExtents, wanted: CommitFilter) -> Iterator[Item]:
    for stream, count, base, start, length, crc, time in index.rows[: wanted.limit].tolist():
        data = memoryview(read_up_to(file, start, length))
        item: Item = {
            "kind": "extent",
            "stream": stream,
            "offset": base,
            "count": count,
            "start": start,
            "end": start + length,
            "max_timestamp_ms": time,
            "crc": "ok" if crc32c(data) == crc else "bad",
        }
        if wanted.records and item["crc"] == "ok":
            item |= decoded(data, base)
        yield item
