"""Relocation of a table: rewrite the metadata of all its snapshots with the present locations of its files.

Iceberg refers to files by location, so the tables of a copied, restored or moved store refer to the old one. Keys are
the same in both. New files get unique names: the old metadata stays valid until the ledger accepts the new one, and
the sweep deletes what nothing refers to afterwards, as for every table.

Import this module only where it is needed: PyIceberg is large, and may not be installed.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import msgspec
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.manifest import (
    ManifestContent,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table.metadata import TableMetadata

from mainstem.errors import InvalidInput
from mainstem.ports.objectstore.port import ObjectStore
from mainstem.tables import table_metadata

_FORMAT_MAX = 2  # the manifests that PyIceberg writes
_FILE_PATH = 1  # index of the field in a data file
_MANIFEST_PATH, _MANIFEST_LENGTH = 0, 1  # indexes of the fields in a manifest
_COMPRESSION: Any = "gzip"


class Relocation:
    """Relocates one table: replaces the prefix `old` of locations with `new`. Both end in a slash."""

    def __init__(self, store: ObjectStore, old: str, new: str, prefix: str) -> None:
        self._store = store
        self._old = old
        self._new = new
        self._prefix = prefix  # of the names of new files
        self._manifests: dict[str, ManifestFile] = {}  # by old location: most are in many snapshots
        self.named: set[str] = set()  # old locations of the data files, after `run`

    async def run(self, content: bytes) -> TableMetadata:
        """New metadata from the JSON of the old. Raises InvalidInput, NotFound."""
        metadata = await asyncio.to_thread(table_metadata.parsed, content)
        if metadata.format_version > _FORMAT_MAX:
            raise InvalidInput(f"a table of format version {metadata.format_version} cannot be relocated")
        raw = msgspec.json.decode(content)
        for snapshot in raw.get("snapshots", ()):
            await self._relist(metadata, snapshot)
        return await asyncio.to_thread(table_metadata.parsed, msgspec.json.encode(self._moved(raw)))

    def _moved(self, value: Any) -> Any:
        """The value with every location in it relocated."""
        if isinstance(value, str):
            return self._place(value)
        if isinstance(value, list):
            return [self._moved(one) for one in value]
        if isinstance(value, dict):
            return {name: self._moved(one) for name, one in value.items()}
        return value

    def _place(self, location: str) -> str:
        """The present location of a file."""
        inside = location.removeprefix(self._old)
        return location if inside == location else self._new + inside

    def _place_rows(self, location: str) -> str:
        self.named.add(location)
        return self._place(location)

    def _target(self, location: str) -> str:
        """Where to write the replacement of one of the table's own files."""
        folder, _, name = self._place(location).rpartition("/")
        return f"{folder}/{self._prefix}-{name}"

    async def _relist(self, metadata: TableMetadata, snapshot: dict[str, Any]) -> None:
        """Write the manifests of a snapshot that are not written yet, and its manifest list."""
        location = snapshot.get("manifest-list")
        if not isinstance(location, str):
            raise InvalidInput("a table with snapshots without a manifest list cannot be relocated")
        source = _MemoryFile(location, await self._get(location))
        manifests = [
            await self._rewrite(metadata, manifest)
            for manifest in await asyncio.to_thread(lambda: list(read_manifest_list(source)))
        ]
        snapshot["manifest-list"] = self._target(location)
        await self._put(await asyncio.to_thread(_manifest_list, snapshot, manifests))

    async def _rewrite(self, metadata: TableMetadata, manifest: ManifestFile) -> ManifestFile:
        location = manifest.manifest_path
        if location not in self._manifests:
            source = _MemoryFile(location, await self._get(location))
            target = _MemoryFile(self._target(location))
            await asyncio.to_thread(_rewritten, metadata, manifest, source, target, self._place_rows)
            await self._put(target)
            manifest[_MANIFEST_PATH] = target.location
            manifest[_MANIFEST_LENGTH] = len(target)
            self._manifests[location] = manifest
        return self._manifests[location]

    async def _get(self, location: str) -> bytes:
        return await self._store.get(location.removeprefix(self._old))

    async def _put(self, file: _MemoryFile) -> None:
        await self._store.put(file.location.removeprefix(self._new), file.content)


def _rewritten(
    metadata: TableMetadata,
    manifest: ManifestFile,
    source: _MemoryFile,
    target: _MemoryFile,
    place: Callable[[str], str],
) -> None:
    """Write the same entries with the file locations that `place` returns."""
    if manifest.content != ManifestContent.DATA:
        raise InvalidInput("a table with delete files cannot be relocated")
    spec = metadata.specs()[manifest.partition_spec_id]
    written_by = manifest.added_snapshot_id or 0
    with write_manifest(2, spec, metadata.schema(), target, written_by, _COMPRESSION) as writer:
        for entry in manifest.fetch_manifest_entry(_SingleFileIO(source), discard_deleted=False):
            entry.data_file[_FILE_PATH] = place(entry.data_file.file_path)
            writer.add_entry(entry)


def _manifest_list(snapshot: dict[str, Any], manifests: list[ManifestFile]) -> _MemoryFile:
    target = _MemoryFile(snapshot["manifest-list"])
    writer = write_manifest_list(
        2,
        target,
        snapshot["snapshot-id"],
        snapshot.get("parent-snapshot-id"),
        snapshot.get("sequence-number", 0),
        _COMPRESSION,
    )
    with writer:
        writer.add_manifests(manifests)
    return target


class _MemoryFile(InputFile, OutputFile):
    """An in-memory file for PyIceberg."""

    def __init__(self, location: str, content: bytes = b"") -> None:
        super().__init__(location)
        self.content = content

    def __len__(self) -> int:
        return len(self.content)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self.content)

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        return _MemoryOutput(self)


class _MemoryOutput(io.BytesIO):
    """A buffer that becomes a file's content on close."""

    def __init__(self, file: _MemoryFile) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            self._file.content = self.getvalue()
        super().close()


class _SingleFileIO(FileIO):
    """Returns one file for every location."""

    def __init__(self, file: _MemoryFile) -> None:
        super().__init__()
        self._file = file

    def new_input(self, location: str) -> InputFile:
        return self._file

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError
