"""The FORMAT file of a data directory: JSON with the format version, the log id and a checksum."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec
from crc32c import crc32c

from mainstem.errors import NewerVersion
from mainstem.ports.commitlog.local.layout import FORMAT
from mainstem.ports.files import Files, read_up_to, write_whole

VERSION = 1
_BYTES_MAX = 4096
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class LogId:
    """Random, and in every frame, so that bytes of another log are never mistaken for this one's."""

    whole: bytes  # 16 bytes

    @property
    def low(self) -> int:
        return int.from_bytes(self.whole[:8], "little")

    @classmethod
    def new(cls) -> LogId:
        return cls(os.urandom(_ID_BYTES))


class _Format(msgspec.Struct):
    version: int
    log: str = ""
    crc: int = 0  # CRC32C of "<version> <log>"


def write_format(files: Files, directory: Path, log: LogId) -> None:
    """Durably and atomically."""
    text = log.whole.hex()
    body = msgspec.json.encode(_Format(VERSION, text, _crc(VERSION, text)))
    write_whole(files, directory / FORMAT, [body + b"\n"])


def read_format(files: Files, directory: Path) -> LogId | None:
    """The log id; None if the file is missing or damaged. Raises NewerVersion."""
    path = directory / FORMAT
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        raw = bytes(read_up_to(file, 0, _BYTES_MAX))
    finally:
        file.close()
    try:
        found = msgspec.json.decode(raw, type=_Format)
        log = bytes.fromhex(found.log)
    except (msgspec.DecodeError, ValueError):
        return None
    if found.version > VERSION:
        raise NewerVersion(f"{path} has version {found.version}: upgrade this Mainstem to open {directory}")
    if len(log) != _ID_BYTES or found.crc != _crc(found.version, found.log):
        return None
    return LogId(log)


def _crc(version: int, log: str) -> int:
    return int(crc32c(f"{version} {log}".encode()))
