"""Bringing a table home: its metadata, of every snapshot, written anew with the places where its files are by now.

Iceberg names files by where they are, so a store that was copied, restored or moved has tables that name the old place.
Keys are the same in both places. What is written has names of its own: until the ledger takes the new metadata the old
one stands, and what nobody names afterwards is swept like all that a table leaves behind.

Imported when it is needed: PyIceberg is large, and may not be there.
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

from mainstem.broker import table_metadata
from mainstem.errors import InvalidInput
from mainstem.ports.objectstore.port import ObjectStore

_FORMAT_MAX = 2  # of what PyIceberg writes manifests
_FILE_PATH = 1  # of a data file, among its fields
_MANIFEST_PATH, _MANIFEST_LENGTH = 0, 1  # of a manifest, likewise
_COMPRESSION: Any = "gzip"


class Relocation:
    """Of one table, from locations that begin with `old` to such that begin with `new`, each ending in a slash."""

    def __init__(self, store: ObjectStore, old: str, new: str, prefix: str) -> None:
        self._store = store
        self._old = old
        self._new = new
        self._prefix = prefix  # of the names of files that are written
        self._manifests: dict[str, ManifestFile] = {}  # by old location: most are in many snapshots
        self.named: set[str] = set()  # old locations of the files of rows, once it was run

    async def run(self, content: bytes) -> TableMetadata:
        """New metadata from the old one's JSON. Raises InvalidInput, NotFound."""
        metadata = await asyncio.to_thread(table_metadata.parsed, content)
        if metadata.format_version > _FORMAT_MAX:
            raise InvalidInput(f"a table of format {metadata.format_version} cannot be brought here")
        raw = msgspec.json.decode(content)
        for snapshot in raw.get("snapshots", ()):
            await self._relist(metadata, snapshot)
        return await asyncio.to_thread(table_metadata.parsed, msgspec.json.encode(self._moved(raw)))

    def _moved(self, value: Any) -> Any:
        """With every location that it holds."""
        if isinstance(value, str):
            return self._place(value)
        if isinstance(value, list):
            return [self._moved(one) for one in value]
        if isinstance(value, dict):
            return {name: self._moved(one) for name, one in value.items()}
        return value

    def _place(self, location: str) -> str:
        """Where a file is by now."""
        inside = location.removeprefix(self._old)
        return location if inside == location else self._new + inside

    def _place_rows(self, location: str) -> str:
        self.named.add(location)
        return self._place(location)

    def _target(self, location: str) -> str:
        """Where what stands for a file of the table's own is written."""
        folder, _, name = self._place(location).rpartition("/")
        return f"{folder}/{self._prefix}-{name}"

    async def _relist(self, metadata: TableMetadata, snapshot: dict[str, Any]) -> None:
        """Write the manifests of a snapshot, as far as they are not written yet, and its list of them."""
        location = snapshot.get("manifest-list")
        if not isinstance(location, str):
            raise InvalidInput("a table with snapshots of the first format cannot be brought here")
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
    """The same entries, whose files are where `place` says."""
    if manifest.content != ManifestContent.DATA:
        raise InvalidInput("a table with files of deleted rows cannot be brought here")
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
    """A file of PyIceberg's, in memory."""

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
    """Bytes that become a file's content when it is closed."""

    def __init__(self, file: _MemoryFile) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            self._file.content = self.getvalue()
        super().close()


class _SingleFileIO(FileIO):
    """One file, whatever is asked for."""

    def __init__(self, file: _MemoryFile) -> None:
        super().__init__()
        self._file = file

    def new_input(self, location: str) -> InputFile:
        return self._file

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError
