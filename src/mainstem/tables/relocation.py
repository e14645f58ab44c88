"""Relocation of a table: rewrite the metadata of all its snapshots with the present locations of its files.

Iceberg refers to files by location, so the tables of a copied, restored or moved store refer to the old one. Keys are
the same in both. New files get unique names: the old metadata stays valid until the ledger accepts the new one, and
the sweep deletes what nothing refers to afterwards, as for every table.

Import this module only where it is needed: PyIceberg is large, and may not be installed.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    ManifestContent,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table.metadata import TableMetadata

from mainstem.errors import InvalidInput
from mainstem.ports.objectstore.blocking import BlockingStore
from mainstem.tables import table_metadata
from mainstem.tables.file_io import StoreIO

_FORMAT_MAX = 2  # the manifests that PyIceberg writes
_FILE_PATH = 1  # index of the field in a data file
_MANIFEST_PATH, _MANIFEST_LENGTH = 0, 1  # indexes of the fields in a manifest
_COMPRESSION: Any = "gzip"


class Relocation:
    """Relocates one table: replaces the prefix `old` of locations with `new`. Both end in a slash."""

    def __init__(self, store: BlockingStore, old: str, new: str, prefix: str) -> None:
        self._old = old
        self._new = new
        self._sources = StoreIO(store, old.removesuffix("/"))
        self._targets = StoreIO(store, new.removesuffix("/"))
        self._prefix = prefix  # of the names of new files
        self._manifests: dict[str, ManifestFile] = {}  # by old location: most are in many snapshots
        self.named: set[str] = set()  # old locations of the data files, after `run`

    def run(self, content: bytes) -> TableMetadata:
        """New metadata from the JSON of the old. Blocks: for threads. Raises InvalidInput, NotFound."""
        metadata = table_metadata.parsed(content)
        if metadata.format_version > _FORMAT_MAX:
            raise InvalidInput(f"a table of format version {metadata.format_version} cannot be relocated")
        raw = msgspec.json.decode(content)
        for snapshot in raw.get("snapshots", ()):
            self._rewrite_snapshot(metadata, snapshot)
        return table_metadata.parsed(msgspec.json.encode(self._relocated(raw)))

    def _relocated(self, value: Any) -> Any:
        """The value with every location in it relocated."""
        if isinstance(value, str):
            return self._new_location(value)
        if isinstance(value, list):
            return [self._relocated(one) for one in value]
        if isinstance(value, dict):
            return {name: self._relocated(one) for name, one in value.items()}
        return value

    def _new_location(self, location: str) -> str:
        inside = location.removeprefix(self._old)
        return location if inside == location else self._new + inside

    def _output(self, location: str) -> OutputFile:
        """The replacement of one of the table's own files."""
        folder, _, name = self._new_location(location).rpartition("/")
        return self._targets.new_output(f"{folder}/{self._prefix}-{name}")

    def _rewrite_snapshot(self, metadata: TableMetadata, snapshot: dict[str, Any]) -> None:
        """Write the manifests of a snapshot that are not written yet, and its manifest list."""
        location = snapshot.get("manifest-list")
        if not isinstance(location, str):
            raise InvalidInput("a table with snapshots without a manifest list cannot be relocated")
        manifests = [
            self._rewritten(metadata, manifest)
            for manifest in read_manifest_list(self._sources.new_input(location))
        ]
        output = self._output(location)
        writer = write_manifest_list(
            2,
            output,
            snapshot["snapshot-id"],
            snapshot.get("parent-snapshot-id"),
            snapshot.get("sequence-number", 0),
            _COMPRESSION,
        )
        with writer:
            writer.add_manifests(manifests)
        snapshot["manifest-list"] = output.location

    def _rewritten(self, metadata: TableMetadata, manifest: ManifestFile) -> ManifestFile:
        """The manifest with the present locations of its data files."""
        location = manifest.manifest_path
        if location in self._manifests:
            return self._manifests[location]
        if manifest.content != ManifestContent.DATA:
            raise InvalidInput("a table with delete files cannot be relocated")
        entries = manifest.fetch_manifest_entry(self._sources, discard_deleted=False)
        spec = metadata.specs()[manifest.partition_spec_id]
        output = self._output(location)
        written_by = manifest.added_snapshot_id or 0
        with write_manifest(2, spec, metadata.schema(), output, written_by, _COMPRESSION) as writer:
            for entry in entries:
                self.named.add(entry.data_file.file_path)
                entry.data_file[_FILE_PATH] = self._new_location(entry.data_file.file_path)
                writer.add_entry(entry)
        manifest[_MANIFEST_PATH] = output.location
        manifest[_MANIFEST_LENGTH] = len(output)
        self._manifests[location] = manifest
        return manifest
