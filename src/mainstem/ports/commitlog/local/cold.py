"""Cold objects: sealed WAL files that are in an object store, with a note on this disk. Version 1, little-endian.

The store holds the bytes of a file in parts of `STORE_OBJECT_BYTES_MAX`, as
`tiers/<log id>/<20 digits number>-<token>/<part>`. `tiers/<log id>/owner` exists as long as the store holds anything of
the log.

A note, `cold/<20 digits number>.cold`, keeps the file's index on this disk, so that starts and look-ups need
no request to the store. A damaged or missing note is rebuilt from the file in the store.

| field    | type | meaning                                                |
|----------|------|--------------------------------------------------------|
| magic    | s8   | `MNSTMCLD`                                             |
| version  | u4   | 1                                                      |
| crc      | u4   | CRC32C of all that follows                             |
| log      | u8   | low 64 bits of the log id                              |
| number   | u8   | of the segment                                         |
| first    | u8   | position of its first commit                           |
| end      | u8   | one past its last                                      |
| size     | u8   | bytes of the file                                      |
| token    | s16  | a part of its keys                                     |
| index    |      | up to the end of the note                              |
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from mainstem import events
from mainstem.errors import LogDamaged, NewerVersion, NotFound, ObjectMissing, StoreRefused, Unavailable
from mainstem.metrics import Metric
from mainstem.ports.commitlog.local import segments
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.layout import COLD, TEMPORARY_SUFFIX
from mainstem.ports.commitlog.port import LogObject, Piece
from mainstem.ports.commitlog.shared.bucket.parts import Parts
from mainstem.ports.files import Files, make_directories, read_up_to, write_temporary
from mainstem.ports.loop_thread import LoopThread
from mainstem.ports.objectstore.cache import CachedObjectStore
from mainstem.ports.objectstore.port import ObjectStore

HEAD = struct.Struct("<8sIIQQQQQ16s")
MAGIC = b"MNSTMCLD"
VERSION = 1
SUFFIX = ".cold"
TIERS = "tiers"
_COVERED = 16  # the crc covers what comes after it
_RESTORE = "restore its parts from the store's versions"
_log = events.named("tiers")


@dataclass(frozen=True, slots=True)
class ColdObject:
    number: int
    first: int
    end: int
    size_bytes: int
    token: bytes

    def described(self) -> LogObject:
        return LogObject(self.number, self.first, self.end, self.size_bytes, sealed=True, cold=True)


class ColdObjects:
    """The cold objects of one log: notes on this disk, bytes in a store. Any thread may read."""

    def __init__(self, files: Files, directory: Path, log: LogId, store: ObjectStore) -> None:
        self._files = files
        self._folder = directory / COLD
        self._log = log
        self._store = store
        self._parts = Parts(store)
        self._blocking = LoopThread("the log is closed", name="mainstem-cold", left_over_wait_s=0)
        self._known: dict[int, ColdObject] = {}
        self.missing: set[int] = set()  # objects that the store lacked when they were last read
        self._survey()

    def __contains__(self, number: int) -> bool:
        return number in self._known

    def described(self) -> list[LogObject]:
        return [cold.described() for cold in self._known.copy().values()]

    def key(self, number: int, token: bytes, part: int) -> str:
        return f"{tier_folder(self._log, number, token)}/{part}"

    @property
    def owner_key(self) -> str:
        return owner_key(self._log)

    def note_paths(self) -> list[Path]:
        return [self._path(number) for number in sorted(self._known)]

    def metrics(self) -> list[Metric]:
        """The metrics of the cache, if there is one."""
        return self._store.metrics() if isinstance(self._store, CachedObjectStore) else []

    # Reading. All of this blocks: call it on a thread.

    def read(self, number: int, start: int, length: int) -> bytearray:
        """Raises ObjectMissing if the store has lost it, FileNotFoundError if it was dropped, Unavailable."""
        cold = self._found(number)
        try:
            content = bytearray(self._blocking.call(self._ranged(cold, start, length)))
            self.missing.discard(number)
            return content
        except NotFound as error:
            if number not in self._known:
                raise FileNotFoundError(f"object {number} was dropped") from error
            self.missing.add(number)
            raise ObjectMissing(f"the object store has lost object {number}: {error}") from error
        except StoreRefused as error:  # the same read succeeds once the operator has fixed it
            raise Unavailable(str(error)) from error

    def index(self, number: int) -> bytes:
        """From the note, otherwise from the store. Raises LogDamaged, ObjectMissing or Unavailable."""
        cold = self._found(number)
        noted = read_note(self._files, self._path(number), self._log, number)
        if noted is not None and noted[0] == cold:
            return noted[1]
        return self.fetch(number, cold.token, cold.size_bytes)

    def fetch(self, number: int, token: bytes, size_bytes: int) -> bytes:
        """Rebuild the note from the store. Returns the index."""
        try:
            cold, index = self._blocking.call(self._from_store(number, token, size_bytes))
        except NotFound as error:
            raise ObjectMissing(f"the object store has lost object {number}: {error}") from error
        self.add(cold, index)
        return index

    async def distrust(self, number: int, start: int, length: int) -> None:
        """Read these bytes from the store next time."""
        if isinstance(self._store, CachedObjectStore):
            for piece in self.pieces(number, [(start, length)]):
                await self._store.forget(piece.key)

    async def forget(self, number: int, token: bytes, part: int) -> None:
        """Remove a part that the store no longer has from the cache."""
        if isinstance(self._store, CachedObjectStore):
            await self._store.forget(self.key(number, token, part))

    def pieces(self, number: int, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """The parts in the store that hold these ranges. Does not block."""
        cold = self._found(number)
        found = {
            Piece(first, size, self.key(number, cold.token, part), 0)
            for start, length in ranges
            for part, first, size in self._parts.covering(cold.size_bytes, start, length)
        }
        return sorted(found)

    # Changes

    def add(self, cold: ColdObject, index: bytes) -> None:
        """Write the object's note durably. Blocks."""
        make_directories(self._files, self._folder)
        path = self._path(cold.number)
        staged = path.with_suffix(TEMPORARY_SUFFIX)
        if self._files.exists(staged):
            self._files.unlink(staged)
        write_temporary(self._files, staged, [self._packed(cold, index)])
        self._files.rename(staged, path)
        self._files.fsync_dir(self._folder)
        self._known[cold.number] = cold

    def remove(self, number: int) -> None:
        """Forget the object. Idempotent. Blocks."""
        self._known.pop(number, None)
        self.missing.discard(number)
        if self._files.exists(self._path(number)):
            self._files.unlink(self._path(number))
            self._files.fsync_dir(self._folder)

    def close(self) -> None:
        self._blocking.close()

    # Inside

    def _survey(self) -> None:
        names = self._files.listdir(self._folder) if self._files.exists(self._folder) else []
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX):
                self._files.unlink(self._folder / name)
        for cold, _ in read_notes(self._files, self._folder, self._log):
            self._known[cold.number] = cold

    def _found(self, number: int) -> ColdObject:
        cold = self._known.get(number)
        if cold is None:
            raise FileNotFoundError(f"object {number} was dropped or never existed")
        return cold

    async def _ranged(self, cold: ColdObject, start: int, length: int) -> bytes:
        length = max(0, min(length, cold.size_bytes - start))
        return await self._parts.read(lambda part: self.key(cold.number, cold.token, part), start, length)

    async def _from_store(self, number: int, token: bytes, size_bytes: int) -> tuple[ColdObject, bytes]:
        described = ColdObject(number, 0, 0, size_bytes, token)
        footer_at = size_bytes - segments.FOOTER_BYTES
        raw = await self._ranged(described, footer_at, segments.FOOTER_BYTES)
        footer = segments.unpack_footer(raw, size_bytes, self._log, number)
        if footer is None:
            raise LogDamaged(f"the footer of object {number} is damaged in the object store: {_RESTORE}")
        tail = await self._ranged(described, footer.index_a, footer_at - footer.index_a)
        for at in (0, footer.index_b - footer.index_a):
            found = segments.unpack_index(tail[at:], self._log, number)
            if found is not None:
                return ColdObject(number, footer.first, footer.end, size_bytes, token), found[0]
        raise LogDamaged(f"the index of object {number} is damaged in the object store: {_RESTORE}")

    def _packed(self, cold: ColdObject, index: bytes) -> bytes:
        facts = (self._log.low, cold.number, cold.first, cold.end, cold.size_bytes, cold.token)
        body = HEAD.pack(MAGIC, VERSION, 0, *facts)[_COVERED:] + index
        return HEAD.pack(MAGIC, VERSION, crc32c(body), *facts) + index

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:020d}{SUFFIX}"


def tier_folder(log: LogId, number: int, token: bytes) -> str:
    """The prefix of the keys of an object's parts."""
    return f"{TIERS}/{log.whole.hex()}/{number:020d}-{token.hex()}"


def owner_key(log: LogId) -> str:
    """The key that says that a store holds objects of the log."""
    return f"{TIERS}/{log.whole.hex()}/owner"


def note_numbers(files: Files, folder: Path) -> list[int]:
    """The numbers of all notes in the folder, intact or not."""
    names = files.listdir(folder) if files.exists(folder) else []
    stems = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())


def read_notes(files: Files, folder: Path, log: LogId) -> Iterator[tuple[ColdObject, bytes]]:
    """Every intact note, by number. Raises NewerVersion."""
    for number in note_numbers(files, folder):
        noted = read_note(files, folder / f"{number:020d}{SUFFIX}", log, number)
        if noted is None:
            _log.warning("cold note damaged", folder=str(folder), number=number)
        else:
            yield noted


def read_note(files: Files, path: Path, log: LogId, number: int) -> tuple[ColdObject, bytes] | None:
    """The note's object and index, if the note is intact. Raises NewerVersion."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        raw = bytes(read_up_to(file, 0, file.size()))
    finally:
        file.close()
    if len(raw) < HEAD.size:
        return None
    magic, version, crc, low, noted, first, end, size, token = HEAD.unpack_from(raw)
    if magic != MAGIC or crc32c(memoryview(raw)[_COVERED:]) != crc:
        return None
    if version > VERSION:
        raise NewerVersion(f"{path} has version {version}: upgrade this Mainstem to read it")
    if low != log.low or noted != number:
        return None
    return ColdObject(number, first, end, size, token), raw[HEAD.size :]
