"""Old snapshots leave a topic's table, and files that no snapshot names any more are deleted.

The data files are not a table's to delete: they are the log's. A table owns its metadata, its manifests and, of the
table of errors, its rows. What a commit that lost or a publisher that was killed wrote is found by listing them.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata

from mainstem import limits
from mainstem.lake.iceberg.store_io import StoreIO
from mainstem.ledger.table_commands import TableKind


def expired(metadata: TableMetadata, now_ms: int, *, coming: int = 0) -> list[int]:
    """Snapshots to let go of: too old, or too many with those that are `coming`. Never the current one."""
    current = metadata.current_snapshot_id
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    others = [each for each in metadata.snapshots if each.snapshot_id not in named]
    others.sort(key=lambda snapshot: (snapshot.sequence_number or 0, snapshot.timestamp_ms))
    room = max(0, limits.TABLE_SNAPSHOTS_KEPT - coming - (current is not None))
    crowded = others[: max(0, len(others) - room)]
    old = [each for each in others if each.timestamp_ms < now_ms - limits.TABLE_SNAPSHOT_AGE_MS]
    return [each.snapshot_id for each in others if each in crowded or each in old]


def removal(snapshot_ids: list[int]) -> list[dict[str, Any]]:
    """The update that lets go of them."""
    return [{"action": "remove-snapshots", "snapshot-ids": snapshot_ids}] if snapshot_ids else []


def sweep(metadata: TableMetadata, location: str, kind: TableKind, files: StoreIO, before_ms: int) -> int:
    """Delete files of the table's own folder that nothing names and that are older. Returns how many.

    `metadata` must be the current one, at `location`. What is young may belong to a commit under way."""
    named = _referenced_files(metadata, location, kind, files)
    deleted = 0
    for found in files.listed(f"{metadata.location}/"):
        if files.location(found.key) not in named and found.modified_ms < before_ms:
            files.delete(files.location(found.key))
            deleted += 1
    return deleted


def _referenced_files(metadata: TableMetadata, location: str, kind: TableKind, files: StoreIO) -> set[str]:
    """Every file of the table's own that the metadata leads to."""
    named = {location, *(entry.metadata_file for entry in metadata.metadata_log)}
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        named.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(files)}
    if kind == "errors":  # its rows are its own; records are the log's
        for manifest in manifests.values():
            entries = manifest.fetch_manifest_entry(files, discard_deleted=True)
            named |= {entry.data_file.file_path for entry in entries}
    return named | manifests.keys()
