"""Snapshots of a topic's table: manifests written anew, merged and carried over, and the updates that commit them.

PyIceberg's producers cannot say REPLACE, and try again by themselves what lost a race. This one writes files that
nobody names yet, and leaves it to the caller's one commit whether anybody ever will.
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

from mainstem import limits
from mainstem.lake.iceberg.data_files import place
from mainstem.lake.iceberg.store_io import StoreIO
from mainstem.ledger.table_commands import TableKind

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
    """What a snapshot changes about the one before."""

    operation: Operation
    added: list[DataFile] = field(default_factory=list)
    emptied: list[OffsetRange] = field(default_factory=list)  # whatever files the table has there go
    offsets: dict[int, int] = field(default_factory=dict)  # partition → next offset, afterwards


class Snapshots:
    """Writes snapshots of one table, as it stands at one metadata."""

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
        """Write manifests and their list. Returns what must hold, and the updates that make it the current one."""
        carried, removed = self._carry_manifests(draft.emptied)
        manifests = ([self._added(draft.added)] if draft.added else []) + carried
        manifests = self._merged(manifests)
        location = self._list(manifests)
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

    def requirements(self) -> list[dict[str, Any]]:
        parent = self._parent.snapshot_id if self._parent else None
        return [
            {"type": "assert-table-uuid", "uuid": str(self._metadata.table_uuid)},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent},
        ]

    # Manifests

    def _carry_manifests(self, emptied: Sequence[OffsetRange]) -> tuple[list[ManifestFile], list[DataFile]]:
        """The parent's manifests, without files of the emptied ranges; and those files."""
        if self._parent is None:
            return [], []
        manifests = [each for each in self._parent.manifests(self._files) if _holds_files(each)]
        if not emptied:
            return manifests, []
        carried, removed = [], []
        for manifest in manifests:
            entries = manifest.fetch_manifest_entry(self._files, discard_deleted=True)
            gone: list[ManifestEntry] = []
            left: list[ManifestEntry] = []
            for entry in entries:
                (gone if self._lies_in(entry.data_file, emptied) else left).append(entry)
            if not gone:
                carried.append(manifest)
                continue
            removed += [entry.data_file for entry in gone]
            carried.append(self._written(_changed(gone, ManifestEntryStatus.DELETED, self.snapshot_id), left))
        return carried, removed

    def _lies_in(self, file: DataFile, ranges: Sequence[OffsetRange]) -> bool:
        partition, first, last = place(file, self._kind)
        return any(each.partition == partition and each.start <= first and last < each.end for each in ranges)

    def _added(self, files: Sequence[DataFile]) -> ManifestFile:
        return self._written(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self.snapshot_id,
                sequence_number=None,
                file_sequence_number=None,
                data_file=file,
            )
            for file in files
        )

    def _merged(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Join manifests of like size once there are many of them: every snapshot lists them all."""
        tiers: dict[int, list[ManifestFile]] = {}
        for manifest in manifests:
            if manifest.added_snapshot_id != self.snapshot_id:
                tiers.setdefault(_tier(manifest), []).append(manifest)
        joined: list[ManifestFile] = []
        gone: set[str] = set()
        for crowd in tiers.values():
            if len(crowd) >= limits.TABLE_MANIFESTS_PER_TIER:
                entries = [
                    entry
                    for manifest in crowd
                    for entry in manifest.fetch_manifest_entry(self._files, discard_deleted=True)
                ]
                joined.append(self._written([], entries))
                gone |= {manifest.manifest_path for manifest in crowd}
        return [manifest for manifest in manifests if manifest.manifest_path not in gone] + joined

    def _written(
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

    def _list(self, manifests: list[ManifestFile]) -> str:
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


def _holds_files(manifest: ManifestFile) -> bool:
    return bool(manifest.added_files_count) or bool(manifest.existing_files_count)


def _tier(manifest: ManifestFile) -> int:
    """Manifests of one tier hold about as many files."""
    files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
    tier = 0
    while files > limits.TABLE_MANIFESTS_PER_TIER:
        files //= limits.TABLE_MANIFESTS_PER_TIER
        tier += 1
    return tier


def _changed(
    entries: Sequence[ManifestEntry], status: ManifestEntryStatus, snapshot_id: int
) -> Iterator[ManifestEntry]:
    for entry in entries:
        yield ManifestEntry.from_args(
            status=status,
            snapshot_id=snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )


def _summary(draft: SnapshotDraft, removed: Sequence[DataFile], parent: Snapshot | None) -> dict[str, str]:
    """As Iceberg counts, and how far the table is."""
    before = dict(parent.summary.additional_properties) if parent and parent.summary else {}
    counts: dict[str, int] = {}
    for added_name, removed_name, total_name, of in (
        ("added-data-files", "deleted-data-files", "total-data-files", lambda file: 1),
        ("added-records", "deleted-records", "total-records", lambda file: file.record_count),
        ("added-files-size", "removed-files-size", "total-files-size", lambda file: file.file_size_in_bytes),
    ):
        added, gone = sum(map(of, draft.added)), sum(map(of, removed))
        total = int(before.get(total_name, "0")) + added - gone
        counts |= {added_name: added, removed_name: gone, total_name: total}
    named = {name: str(count) for name, count in counts.items() if count or name.startswith("total-")}
    zeroes = dict.fromkeys(("total-delete-files", "total-position-deletes", "total-equality-deletes"), "0")
    offsets = msgspec.json.encode({str(at): end for at, end in sorted(draft.offsets.items())}).decode()
    return {"operation": draft.operation, **named, **zeroes, "mainstem.offsets": offsets}
