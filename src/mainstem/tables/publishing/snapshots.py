"""Snapshots of a topic's table: write, merge and carry over manifests, build the updates that commit them, and expire
old ones.

PyIceberg's producers do not support the REPLACE operation, and they retry a commit that lost a race. This module only
writes files; the caller's single commit decides whether a snapshot references them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from mainstem.api.lake import TableKind
from mainstem.tables.file_io import StoreIO
from mainstem.tables.publishing.data_files import OFFSET_IDS, PARTITION_IDS, offset_bounds

TABLE_SNAPSHOTS_KEPT = 100  # of a topic's table: a commit costs more with each
TABLE_SNAPSHOT_AGE_MS = 5 * 24 * 3600 * 1000  # older snapshots expire too, except the current one
TABLE_MANIFESTS_PER_TIER = 32  # this many manifests of similar size are merged into one

Operation = Literal["append", "replace", "delete", "overwrite"]
Updates = list[dict[str, Any]]

_COMPRESSION: Any = "gzip"


@dataclass(frozen=True)
class OffsetRange:
    """Offsets of one partition."""

    partition: int
    start: int
    end: int


@dataclass
class SnapshotDraft:
    """The difference between a new snapshot and its parent."""

    operation: Operation
    added: list[DataFile] = field(default_factory=list)
    emptied: list[OffsetRange] = field(default_factory=list)  # remove the table's files in these ranges
    offsets: dict[int, int] = field(default_factory=dict)  # partition → next offset after this snapshot


class Snapshots:
    """Writes snapshots of one table, based on one version of its metadata."""

    def __init__(self, metadata: TableMetadata, kind: TableKind, files: StoreIO, now_ms: int) -> None:
        self._metadata = metadata
        self._kind: TableKind = kind
        self._files = files
        self._now_ms = now_ms
        self._commit = uuid.uuid4()
        self._numbers = iter(range(1 << 30))
        self.snapshot_id = metadata.new_snapshot_id()
        self._parent = metadata.current_snapshot()

    def draft(self, draft: SnapshotDraft) -> tuple[list[dict[str, Any]], Updates]:
        """Write the manifests and the manifest list. Returns the commit's requirements and updates."""
        carried, removed = self._carry_manifests(draft.emptied)
        manifests = ([self._write_added(draft.added)] if draft.added else []) + carried
        manifests = self._merge_manifests(manifests)
        location = self._write_manifest_list(manifests)
        parent = self._parent
        snapshot = {
            "snapshot-id": self.snapshot_id,
            "sequence-number": self._metadata.next_sequence_number(),
            "timestamp-ms": max(self._now_ms, parent.timestamp_ms if parent else 0),
            "manifest-list": location,
            "summary": _summary(draft, removed, parent),
            "schema-id": self._metadata.current_schema_id,
        }
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent.snapshot_id
        return self.requirements(), [
            {"action": "add-snapshot", "snapshot": snapshot},
            {
                "action": "set-snapshot-ref",
                "ref-name": "main",
                "type": "branch",
                "snapshot-id": self.snapshot_id,
            },
        ]

    def files_in(self, ranges: Sequence[OffsetRange]) -> list[list[DataFile]]:
        """The table's present files in each of the ranges."""
        found: list[list[DataFile]] = [[] for _ in ranges]
        if self._parent is None or not ranges:
            return found
        for manifest in self._parent.manifests(self._files):
            if _holds_files(manifest):
                for entry in manifest.fetch_manifest_entry(self._files, discard_deleted=True):
                    for files, each in zip(found, ranges, strict=True):
                        if self._lies_in(entry.data_file, [each]):
                            files.append(entry.data_file)
        return found

    def requirements(self) -> list[dict[str, Any]]:
        parent = self._parent.snapshot_id if self._parent else None
        return [
            {"type": "assert-table-uuid", "uuid": str(self._metadata.table_uuid)},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent},
        ]

    # Manifests

    def _carry_manifests(self, emptied: Sequence[OffsetRange]) -> tuple[list[ManifestFile], list[DataFile]]:
        """The parent's manifests without the files in the emptied ranges, and those files."""
        if self._parent is None:
            return [], []
        manifests = [each for each in self._parent.manifests(self._files) if _holds_files(each)]
        if not emptied:
            return manifests, []
        carried, removed = [], []
        for manifest in manifests:
            entries = manifest.fetch_manifest_entry(self._files, discard_deleted=True)
            deleted: list[ManifestEntry] = []
            left: list[ManifestEntry] = []
            for entry in entries:
                (deleted if self._lies_in(entry.data_file, emptied) else left).append(entry)
            if not deleted:
                carried.append(manifest)
                continue
            removed += [entry.data_file for entry in deleted]
            changed = _deleted_entries(deleted, self.snapshot_id, self._kind)
            carried.append(self._write_manifest(changed, left))
        return carried, removed

    def _lies_in(self, file: DataFile, ranges: Sequence[OffsetRange]) -> bool:
        partition, first, last = offset_bounds(file, self._kind)
        return any(each.partition == partition and each.start <= first and last < each.end for each in ranges)

    def _write_added(self, files: Sequence[DataFile]) -> ManifestFile:
        return self._write_manifest(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self.snapshot_id,
                sequence_number=None,
                file_sequence_number=None,
                data_file=file,
            )
            for file in files
        )

    def _merge_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Merge manifests of similar size once a tier is full: every snapshot lists all manifests."""
        tiers: dict[int, list[ManifestFile]] = {}
        for manifest in manifests:
            if manifest.added_snapshot_id != self.snapshot_id:
                tiers.setdefault(_tier(manifest), []).append(manifest)
        merged: list[ManifestFile] = []
        replaced: set[str] = set()
        for tier in tiers.values():
            if len(tier) >= TABLE_MANIFESTS_PER_TIER:
                entries = [
                    entry
                    for manifest in tier
                    for entry in manifest.fetch_manifest_entry(self._files, discard_deleted=True)
                ]
                merged.append(self._write_manifest([], entries))
                replaced |= {manifest.manifest_path for manifest in tier}
        return [manifest for manifest in manifests if manifest.manifest_path not in replaced] + merged

    def _write_manifest(
        self,
        entries: Iterator[ManifestEntry] | Sequence[ManifestEntry],
        existing: Sequence[ManifestEntry] = (),
    ) -> ManifestFile:
        metadata = self._metadata
        writer = write_manifest(
            2,
            metadata.spec(),
            metadata.schema(),
            self._files.new_output(self._metadata_path(f"{self._commit}-m{next(self._numbers)}.avro")),
            self.snapshot_id,
            _COMPRESSION,
        )
        with writer:
            for entry in entries:
                writer.add_entry(entry)
            for entry in existing:
                writer.existing(entry)
        return writer.to_manifest_file()

    def _write_manifest_list(self, manifests: list[ManifestFile]) -> str:
        location = self._metadata_path(f"snap-{self.snapshot_id}-0-{self._commit}.avro")
        parent = self._parent.snapshot_id if self._parent else None
        writer = write_manifest_list(
            2,
            self._files.new_output(location),
            self.snapshot_id,
            parent,
            self._metadata.next_sequence_number(),
            _COMPRESSION,
        )
        with writer:
            writer.add_manifests(manifests)
        return location

    def _metadata_path(self, name: str) -> str:
        return f"{self._metadata.location}/metadata/{name}"


def same_rows(old: Sequence[DataFile], new: Sequence[DataFile]) -> bool:
    """Whether new files, written from the records of old ones, have the same rows: as many, with the same columns.

    A file that is older than the declaration of a column has no values in it."""
    if sum(file.record_count for file in old) != sum(file.record_count for file in new):
        return False
    columns = {frozenset(file.value_counts) for file in (*old, *new)}
    return len(columns) <= 1


def _holds_files(manifest: ManifestFile) -> bool:
    return bool(manifest.added_files_count) or bool(manifest.existing_files_count)


def _tier(manifest: ManifestFile) -> int:
    """Manifests of one tier hold a similar number of files."""
    files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    tier = 0
    while files > TABLE_MANIFESTS_PER_TIER:
        files //= TABLE_MANIFESTS_PER_TIER
        tier += 1
    return tier


def _deleted_entries(
    entries: Sequence[ManifestEntry], snapshot_id: int, kind: TableKind
) -> Iterator[ManifestEntry]:
    for entry in entries:
        yield ManifestEntry.from_args(
            status=ManifestEntryStatus.DELETED,
            snapshot_id=snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=_without_values(entry.data_file, kind),
        )


def _without_values(file: DataFile, kind: TableKind) -> DataFile:
    """A file that is gone, with the bounds that identify it only: other bounds are values of its records, which may
    have to be erased."""
    identifying = (PARTITION_IDS[kind], OFFSET_IDS[kind])
    left = DataFile.from_args(
        content=file.content,
        file_path=file.file_path,
        file_format=file.file_format,
        partition=file.partition,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        column_sizes=file.column_sizes,
        value_counts=file.value_counts,
        null_value_counts=file.null_value_counts,
        nan_value_counts=file.nan_value_counts,
        lower_bounds={id: file.lower_bounds[id] for id in identifying},
        upper_bounds={id: file.upper_bounds[id] for id in identifying},
        key_metadata=file.key_metadata,
        split_offsets=file.split_offsets,
        equality_ids=file.equality_ids,
        sort_order_id=file.sort_order_id,
    )
    left.spec_id = file.spec_id
    return left


def _summary(draft: SnapshotDraft, removed: Sequence[DataFile], parent: Snapshot | None) -> dict[str, str]:
    """Iceberg's snapshot summary, plus the offsets up to which the table has all records."""
    before = dict(parent.summary.additional_properties) if parent and parent.summary else {}
    counts: dict[str, int] = {}
    for added_name, removed_name, total_name, of in (
        ("added-data-files", "deleted-data-files", "total-data-files", lambda file: 1),
        ("added-records", "deleted-records", "total-records", lambda file: file.record_count),
        ("added-files-size", "removed-files-size", "total-files-size", lambda file: file.file_size_in_bytes),
    ):
        added, deleted = sum(map(of, draft.added)), sum(map(of, removed))
        total = int(before.get(total_name, "0")) + added - deleted
        counts |= {added_name: added, removed_name: deleted, total_name: total}
    nonzero = {name: str(count) for name, count in counts.items() if count or name.startswith("total-")}
    zeroes = dict.fromkeys(("total-delete-files", "total-position-deletes", "total-equality-deletes"), "0")
    offsets = msgspec.json.encode({str(at): end for at, end in sorted(draft.offsets.items())}).decode()
    return {"operation": draft.operation, **nonzero, **zeroes, "mainstem.offsets": offsets}


# Expiry. The data files belong to the log, so a table does not delete them. A table owns its metadata and manifests; an
# error table also owns its data files. Listing the table's directory finds the files of failed commits and killed
# publishers.


def expired_snapshots(metadata: TableMetadata, now_ms: int, *, coming: int = 0) -> list[int]:
    """Ids of snapshots that are too old, or over the limit with `coming` new ones. Never the current one."""
    current = metadata.current_snapshot_id
    referenced = {ref.snapshot_id for ref in metadata.refs.values()}
    others = [each for each in metadata.snapshots if each.snapshot_id not in referenced]
    others.sort(key=lambda snapshot: (snapshot.sequence_number or 0, snapshot.timestamp_ms))
    limit = max(0, TABLE_SNAPSHOTS_KEPT - coming - (current is not None))
    surplus = others[: max(0, len(others) - limit)]
    old = [each for each in others if each.timestamp_ms < now_ms - TABLE_SNAPSHOT_AGE_MS]
    return [each.snapshot_id for each in others if each in surplus or each in old]


def remove_snapshots(snapshot_ids: list[int]) -> list[dict[str, Any]]:
    """The table update that removes these snapshots."""
    return [{"action": "remove-snapshots", "snapshot-ids": snapshot_ids}] if snapshot_ids else []


def sweep(metadata: TableMetadata, location: str, kind: TableKind, files: StoreIO, before_ms: int) -> int:
    """Delete unreferenced files of the table's directory that are older than `before_ms`. Returns their number.

    `metadata` must be the current one, at `location`. Newer files may belong to a commit in progress."""
    unreferenced = unreferenced_files(metadata, location, kind, files, before_ms)
    for found in unreferenced:
        files.delete(found)
    return len(unreferenced)


def unreferenced_files(
    metadata: TableMetadata, location: str, kind: TableKind, files: StoreIO, before_ms: int
) -> list[str]:
    """The files of the table's directory that the metadata does not reference and that are older than `before_ms`."""
    referenced = referenced_files(metadata, location, kind, files)
    return [
        files.location(found.key)
        for found in files.list_objects(f"{metadata.location}/")
        if files.location(found.key) not in referenced and found.modified_ms < before_ms
    ]


def erasable_snapshots(metadata: TableMetadata, erased: Sequence[int]) -> list[int]:
    """Those of the snapshots that the table has and that no branch or tag needs."""
    referenced = {ref.snapshot_id for ref in metadata.refs.values()}
    present = [each.snapshot_id for each in metadata.snapshots]
    return [id for id in present if id in erased and id not in referenced]


def referenced_files(metadata: TableMetadata, location: str, kind: TableKind, files: StoreIO) -> set[str]:
    """Every file that the table owns and the metadata references."""
    referenced = {location, *(entry.metadata_file for entry in metadata.metadata_log)}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        referenced.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(files)}
    if kind == "errors":  # an error table owns its data files; data files of records belong to the log
        for manifest in manifests.values():
            entries = manifest.fetch_manifest_entry(files, discard_deleted=True)
            referenced |= {entry.data_file.file_path for entry in entries}
    return referenced | manifests.keys()
