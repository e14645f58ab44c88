"""Expire old snapshots of a topic's table, and delete files that no snapshot references.

The data files belong to the log, so a table does not delete them. A table owns its metadata and its manifests; an error
table also owns its data files. Listing the table's directory finds the files of failed commits and killed publishers.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata

from mainstem import limits
from mainstem.api.lake import TableKind
from mainstem.tables.file_io import StoreIO


def expired_snapshots(metadata: TableMetadata, now_ms: int, *, coming: int = 0) -> list[int]:
    """Ids of snapshots that are too old, or over the limit with `coming` new ones. Never the current one."""
    current = metadata.current_snapshot_id
    referenced = {ref.snapshot_id for ref in metadata.refs.values()}
    others = [each for each in metadata.snapshots if each.snapshot_id not in referenced]
    others.sort(key=lambda snapshot: (snapshot.sequence_number or 0, snapshot.timestamp_ms))
    limit = max(0, limits.TABLE_SNAPSHOTS_KEPT - coming - (current is not None))
    surplus = others[: max(0, len(others) - limit)]
    old = [each for each in others if each.timestamp_ms < now_ms - limits.TABLE_SNAPSHOT_AGE_MS]
    return [each.snapshot_id for each in others if each in surplus or each in old]


def remove_snapshots(snapshot_ids: list[int]) -> list[dict[str, Any]]:
    """The table update that removes these snapshots."""
    return [{"action": "remove-snapshots", "snapshot-ids": snapshot_ids}] if snapshot_ids else []


def sweep(metadata: TableMetadata, location: str, kind: TableKind, files: StoreIO, before_ms: int) -> int:
    """Delete unreferenced files of the table's directory that are older than `before_ms`. Returns their number.

    `metadata` must be the current one, at `location`. Newer files may belong to a commit in progress."""
    referenced = _referenced_files(metadata, location, kind, files)
    deleted = 0
    for found in files.list_objects(f"{metadata.location}/"):
        if files.location(found.key) not in referenced and found.modified_ms < before_ms:
            files.delete(files.location(found.key))
            deleted += 1
    return deleted


def _referenced_files(metadata: TableMetadata, location: str, kind: TableKind, files: StoreIO) -> set[str]:
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
