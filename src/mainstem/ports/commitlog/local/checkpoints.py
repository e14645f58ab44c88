"""Checkpoint files: `checkpoints/<20 digits position>.ckpt`. Version 1, little-endian.

| field    | type | meaning                                      |
|----------|------|----------------------------------------------|
| magic    | s8   | `MNSTMCKP`                                   |
| version  | u4   | 1                                            |
| flags    | u4   | bit 0: the state is compressed with zstd     |
| position | u8   | the state holds every commit before this     |
| length   | u8   | bytes of the state as stored                 |
| size     | u8   | bytes of the state                           |
| reserved | s16  | 0                                            |
| body     | u4   | CRC32C of the state as stored                |
| crc      | u4   | CRC32C of the 60 bytes before                |
| state    |      | `length` bytes, up to the end of the file    |
"""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import zstandard
from crc32c import crc32c

from mainstem.errors import NewerVersion
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.files import File, Files, read_up_to, write_whole

HEADER = struct.Struct("<8sIIQQQ16sII")
MAGIC = b"MNSTMCKP"
VERSION = 1
COMPRESSED = 1
SUFFIX = ".ckpt"
_DIGITS = 20
_COMPRESSED_FROM_BYTES = 4096  # below this, compression saves too little
_LEVEL = 1  # the state is mostly arrays: higher levels gain little


class LocalCheckpoints:
    """The checkpoints of one log."""

    def __init__(self, files: Files, directory: Path, keep: int) -> None:
        self._files = files
        self._directory = directory
        self._keep = keep

    def save(self, checkpoint: Checkpoint) -> None:
        """Store durably, then delete all but the newest few."""
        write_whole(self._files, self.path(checkpoint.position), _pack(checkpoint))
        for position in self.positions()[: -self._keep]:
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(self.path(position))

    def load(self) -> Checkpoint | None:
        """The newest intact one. Raises NewerVersion."""
        for position in reversed(self.positions()):
            found = self.read(position)
            if found is not None:
                return found
        return None

    def newest_position(self) -> int:
        """The highest position that has a checkpoint file, 0 if none: everything before it was durable."""
        return max(self.positions(), default=0)

    def positions(self) -> list[int]:
        """The positions of all checkpoint files, intact or not, in rising order."""
        found = []
        try:
            names = self._files.listdir(self._directory)
        except FileNotFoundError:  # a directory that was restored, and not opened yet
            names = []
        for name in names:
            stem = name.removesuffix(SUFFIX)
            if stem != name and len(stem) == _DIGITS and stem.isascii() and stem.isdigit():
                found.append(int(stem))
        return sorted(found)

    def read(self, position: int) -> Checkpoint | None:
        """The checkpoint of that position if it is intact. Raises NewerVersion."""
        try:
            file = self._files.open(self.path(position))
        except FileNotFoundError:  # deleted since it was listed
            return None
        try:
            found = read_checkpoint(file)
        finally:
            file.close()
        return found if found is not None and found.position == position else None

    def path(self, position: int) -> Path:
        return self._directory / f"{position:0{_DIGITS}d}{SUFFIX}"


def read_checkpoint(file: File) -> Checkpoint | None:
    """The checkpoint in a file if it is intact. Raises NewerVersion."""
    header = read_up_to(file, 0, HEADER.size)
    if len(header) < HEADER.size:
        return None
    magic, version, flags, position, length, size, _, body, crc = HEADER.unpack(header)
    if magic != MAGIC or crc32c(memoryview(header)[:-4]) != crc:
        return None
    if version > VERSION:
        raise NewerVersion(f"{file.path} has version {version}: upgrade this Mainstem to read it")
    if length > file.size() - HEADER.size:
        return None
    stored = bytes(read_up_to(file, HEADER.size, length))
    if len(stored) != length or crc32c(stored) != body:
        return None
    if flags & COMPRESSED:
        stored = zstandard.ZstdDecompressor().decompress(stored, max_output_size=size)
    return Checkpoint(position, stored)


def _pack(checkpoint: Checkpoint) -> list[bytes]:
    stored, flags = checkpoint.state, 0
    if len(stored) >= _COMPRESSED_FROM_BYTES:
        packed = zstandard.ZstdCompressor(level=_LEVEL).compress(stored)
        if len(packed) < len(stored):
            stored, flags = packed, COMPRESSED
    header = HEADER.pack(
        MAGIC,
        VERSION,
        flags,
        checkpoint.position,
        len(stored),
        len(checkpoint.state),
        bytes(16),
        crc32c(stored),
        0,
    )[:-4]
    return [header + crc32c(header).to_bytes(4, "little"), stored]
