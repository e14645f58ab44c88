"""The contents of a log or checkpoint file as items, including damaged ranges. Each item is one JSON object.

| kind       | meaning                                                                          |
|------------|----------------------------------------------------------------------------------|
| segment    | a log file: its header                                                           |
| commit     | one commit: its position, its writer, and its parts (appends and commands)       |
| damage     | unreadable bytes                                                                 |
| space      | preallocated zeros                                                               |
| index      | the streams and offsets of a sealed file                                         |
| footer     | the end of a sealed file                                                         |
| checkpoint | a checkpoint file; topic, stream, group and broker items follow                  |
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from crc32c import crc32c

from mainstem.errors import InvalidInput, LedgerDiverged, LogDamaged
from mainstem.ledger.entry import SLICE_KEYED, AppendRun, Entry
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.section import Command
from mainstem.log.read.extents import SealedExtents
from mainstem.log.verification.problems import stream_name
from mainstem.log.verification.scan import FoundFrame, FrameGap, scan_frames
from mainstem.log.verification.slices import SliceRow, slice_fault, slice_rows
from mainstem.ports.commitlog.local import frames, identity, segments
from mainstem.ports.commitlog.local.checkpoints import read_checkpoint
from mainstem.ports.commitlog.local.frames import HEAD, HEAD_MAGIC
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.segments import FOOTER_BYTES, HEADER_BYTES, Footer, SegmentHeader
from mainstem.ports.files import File, OsFiles, read_up_to
from mainstem.records.decoding import StoredRecord, decode_records
from mainstem.records.header import stamp

Item = dict[str, Any]

_ZEROS_STEP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CommitFilter:
    """Which commits to show, and how much of them."""

    from_position: int = 0
    limit: int | None = None  # commits, or streams of a checkpoint
    records: bool = False


class SegmentContents:
    """The items of a log file. The file may be a renamed copy or a fragment."""

    def __init__(self, file: File, wanted: CommitFilter) -> None:
        self._file = file
        self._wanted = wanted
        self._size = file.size()
        self._header = segments.read_header(file)
        self._log = _log_of(file, self._header)
        named = segments.number_of(file.path.name)
        self._number = named or (self._header.number if self._header else 0)
        self._footer = segments.read_footer(file, self._log, self._number)
        self._index = self._read_index()
        self._bases = self._offsets()

    def items(self) -> Iterator[Item]:
        yield self._segment()
        # A fragment that recovery cut off starts with a frame.
        whole = (
            self._header is not None or frames.read_leading(self._file, 0, self._size, self._log.low) is None
        )
        start = HEADER_BYTES if whole else 0
        limit = self._footer.index_a if self._footer else self._size
        shown = 0
        for found in scan_frames(self._file, self._log.low, at=start, limit=limit):
            if isinstance(found, FrameGap):
                yield from self._gap(found)
            elif found.frame.position >= self._wanted.from_position:
                if shown == self._wanted.limit:
                    break
                shown += 1
                yield self._commit(found)
        if self._footer is not None:
            yield self._described_index(self._footer)
            yield {
                "kind": "footer",
                "start": self._size - FOOTER_BYTES,
                "end": self._size,
                "first": self._footer.first,
                "end_position": self._footer.end,
            }

    def _segment(self) -> Item:
        header = self._header
        return {
            "kind": "segment",
            "file": str(self._file.path),
            "bytes": self._size,
            "number": self._number,
            "log": self._log.whole.hex(),
            "header": "whole" if header else "damaged",
            "first": header.first if header and header.first != segments.UNUSED else None,
            "sealed": self._footer is not None,
        }

    def _gap(self, gap: FrameGap) -> Iterator[Item]:
        end = gap.end
        if gap.next_position is None and self._footer is None:
            end = _zeros_from(self._file, gap.start, gap.end)
        if end > gap.start:
            yield {
                "kind": "damage",
                "start": gap.start,
                "end": end,
                "position": gap.position,
                "next_position": gap.next_position,
                "what": "no whole commit",
            }
        if end < gap.end:
            yield {"kind": "space", "start": end, "end": gap.end}

    def _commit(self, found: FoundFrame) -> Item:
        frame = found.frame
        payload = read_up_to(self._file, frame.payload_start, frame.payload_length)
        item: Item = {
            "kind": "commit",
            "start": frame.start,
            "end": frame.end,
            "position": frame.position,
            "synced": frame.synced,
            "first_copy": "whole" if found.leading_whole else "damaged",
            "second_copy": "whole" if found.trailing_whole else "damaged",
            "payload_start": frame.payload_start,
            "payload_bytes": frame.payload_length,
            "payload": "whole" if crc32c(payload) == frame.payload_crc else "damaged",
        }
        try:
            entry = Entry.decode(found.entry)
        except LogDamaged as error:
            return item | {"fault": str(error)}
        item |= {
            "time_ms": entry.time_ms,
            "broker": entry.broker,
            "broker_epoch": entry.broker_epoch,
            "commit_id": entry.commit_id,
        }
        if entry.digest is not None:
            item["digest"] = {"position": entry.digest[0], "digest": f"{entry.digest[1]:016x}"}
        item["parts"] = list(self._parts(entry, frame.payload_start, memoryview(payload)))
        return item

    def _parts(self, entry: Entry, start: int, payload: memoryview) -> Iterator[Item]:
        origin = start
        for part in entry.parts:
            if not isinstance(part, AppendRun):
                yield described_command(part)
                continue
            for row in slice_rows(part, start):
                yield self._slice(row, payload[row.start - origin : row.start - origin + row.length])
                start += row.length

    def _slice(self, row: SliceRow, data: memoryview) -> Item:
        base = self._bases.get(row.start)
        fault = slice_fault(data, row)
        item: Item = {
            "kind": "append",
            "stream": row.stream,
            "offset": base,
            "count": row.count,
            "batches": row.batches,
            "start": row.start,
            "bytes": row.length,
            "size": row.size,
            "max_timestamp_ms": row.max_timestamp,
            "crc": "ok" if fault is None else "bad",
        }
        if fault is not None:
            item["fault"] = fault
        if row.flags & SLICE_KEYED:
            item["keyed"] = True
        elif row.producer >= 0:
            item["producer"] = row.producer
            item["producer_epoch"] = row.producer_epoch
            item["base_sequence"] = row.base_sequence
        if self._wanted.records and fault is None:
            item |= decoded(data, base or 0)
        return item

    def _read_index(self) -> SealedExtents | None:
        footer = self._footer
        for at in (footer.index_a, footer.index_b) if footer else ():
            found = segments.read_index_at(self._file, at, self._log, self._number)
            if found is not None:
                return SealedExtents.decode(self._number, found[0])
        return None

    def _offsets(self) -> dict[int, int]:
        """Map the start byte of each slice to its first offset, from the index."""
        if self._index is None:
            return {}
        rows = self._index.rows
        return dict(zip(rows["start"].tolist(), rows["base"].tolist(), strict=True))

    def _described_index(self, footer: Footer) -> Item:
        copies = [
            segments.read_index_at(self._file, at, self._log, self._number) is not None
            for at in (footer.index_a, footer.index_b)
        ]
        spans = [] if self._index is None else self._index.spans.tolist()
        return {
            "kind": "index",
            "start": footer.index_a,
            "end": self._size - FOOTER_BYTES,
            "first_copy": "whole" if copies[0] else "damaged",
            "second_copy": "whole" if copies[1] else "damaged",
            "extents": 0 if self._index is None else len(self._index.rows),
            "spans": [
                {"stream": stream, "start": base, "end": end, "bytes": size, "max_timestamp_ms": time}
                for stream, _, base, end, size, time in spans
            ],
        }


def decoded(data: memoryview, base: int) -> Item:
    """Return the records of the batches, or why they cannot be decoded."""
    stamp(data, base, 0)
    try:
        return {"records": [_record(record) for record in decode_records(data)]}
    except InvalidInput as error:
        return {"fault": f"cannot be decoded ({error})"}


def checkpoint_items(file: File, wanted: CommitFilter) -> Iterator[Item]:
    """The items of a checkpoint file."""
    top: Item = {"kind": "checkpoint", "file": str(file.path), "bytes": file.size()}
    checkpoint = read_checkpoint(file)
    if checkpoint is None:
        yield top
        yield {
            "kind": "damage",
            "start": 0,
            "end": file.size(),
            "what": "the file does not match its checksum",
        }
        return
    top |= {"position": checkpoint.position, "state_bytes": len(checkpoint.state)}
    try:
        ledger = Ledger.decode(checkpoint.state)
    except (LogDamaged, LedgerDiverged) as error:
        yield top
        yield {"kind": "damage", "start": 0, "end": file.size(), "what": str(error)}
        return
    yield top | {"time_ms": ledger.time_ms, "digest": f"{ledger.digest():016x}"}
    for topic in ledger.topics:
        yield {
            "kind": "topic",
            "name": topic.name,
            "namespace": topic.namespace,
            "id": topic.topic_id.hex(),
            "partitions": len(topic.streams),
            "created_ms": topic.created_ms,
            "config": msgspec.to_builtins(topic.config),
        }
    yield from _streams(ledger, wanted.limit)
    yield from _others(ledger)


def _streams(ledger: Ledger, limit: int | None) -> Iterator[Item]:
    streams = ledger.streams
    for stream in range(streams.count if limit is None else min(limit, streams.count)):
        item: Item = {
            "kind": "stream",
            "stream": stream,
            "partition": stream_name(stream, ledger),
            "start": streams.start(stream),
            "end": int(streams.end[stream]),
            "records": int(streams.records[stream]),
            "size": int(streams.bytes[stream]),
            "max_timestamp_ms": int(streams.max_timestamp[stream]),
        }
        holes = list(streams.holes(stream))
        if holes:
            item["holes"] = [
                {"start": start, "end": end, "reason": reason or "deleted"} for start, end, reason in holes
            ]
        yield item


def _others(ledger: Ledger) -> Iterator[Item]:
    for group in ledger.cursors.groups():
        cursors = ledger.cursors.of_group(group)
        yield {
            "kind": "group",
            "name": group,
            "offsets": [
                {"stream": stream, "partition": stream_name(stream, ledger), "offset": cursor.offset}
                for stream, cursor in cursors.items()
            ],
        }
    for member in ledger.brokers:
        yield {
            "kind": "broker",
            "broker": member.broker,
            "epoch": member.epoch,
            "node": member.node,
            "halted": member.halted,
            "last_commit_id": member.last_commit_id,
        }


def described_command(command: Command) -> Item:
    """Return the name and fields of a command, with ids as hex."""
    fields = {name: _plain(getattr(command, name)) for name in command.__struct_fields__}
    return {"kind": "command", "command": type(command).__name__, "fields": fields}


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else msgspec.to_builtins(value)


def _record(record: StoredRecord) -> Item:
    item: Item = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
    item |= _text("key", record.key) | _text("value", record.value)
    if record.headers:
        item["headers"] = [{"key": key} | _text("value", value) for key, value in record.headers]
    return item


def _text(name: str, data: bytes | None) -> Item:
    """Return text, or base64 for bytes that are not UTF-8, as `consume --json` does."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _log_of(file: File, header: SegmentHeader | None) -> LogId:
    """Find the id of the log from the file's header, its directory, or the first bytes that look like a frame."""
    if header is not None:
        return LogId(header.log)
    found = identity.read_format(OsFiles(), Path(file.path).absolute().parent.parent)
    if found is not None:
        return found
    for at in (HEADER_BYTES, 0):
        raw = read_up_to(file, at, HEAD.size)
        if len(raw) == HEAD.size and HEAD.unpack(raw)[0] == HEAD_MAGIC:
            return LogId(HEAD.unpack(raw)[8].to_bytes(8, "little") + bytes(8))
    return LogId(bytes(16))


def _zeros_from(file: File, start: int, end: int) -> int:
    """Return where the zeros that end at `end` begin."""
    while end > start:
        window = read_up_to(file, max(start, end - _ZEROS_STEP_BYTES), min(_ZEROS_STEP_BYTES, end - start))
        kept = len(window.rstrip(b"\0"))
        if kept:
            return end - len(window) + kept
        end -= len(window) or end - start
    return start
