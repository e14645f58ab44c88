"""A data directory at rest: where its parts lie, to be damaged one by one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import invariant
from mainstem.log.read.extents import SealedExtents
from mainstem.log.verification.scan import FoundFrame, scan_frames
from mainstem.ports.commitlog.local import identity, segments
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.layout import CHECKPOINTS, WAL
from mainstem.ports.commitlog.local.segments import HEADER_BYTES, Footer
from mainstem.ports.files import OsFiles


@dataclass(frozen=True)
class StoredLog:
    directory: Path

    @property
    def log(self) -> LogId:
        found = identity.read_format(OsFiles(), self.directory)
        invariant(found is not None, "the FORMAT file is whole")
        return found or LogId(bytes(16))

    @property
    def segments(self) -> list[int]:
        return sorted(
            filter(None, (segments.number_of(path.name) for path in (self.directory / WAL).iterdir()))
        )

    @property
    def checkpoints(self) -> list[Path]:
        return sorted((self.directory / CHECKPOINTS).iterdir())

    def wal(self, number: int) -> Path:
        return segments.segment_path(self.directory / WAL, number)

    def footer(self, number: int) -> Footer:
        file = OsFiles().open(self.wal(number))
        try:
            found = segments.read_footer(file, self.log, number)
        finally:
            file.close()
        invariant(found is not None, "the segment is sealed")
        return found or Footer(0, 0, 0, 0, 0)

    def is_sealed(self, number: int) -> bool:
        file = OsFiles().open(self.wal(number))
        try:
            return segments.read_footer(file, self.log, number) is not None
        finally:
            file.close()

    def index(self, number: int) -> SealedExtents:
        file = OsFiles().open(self.wal(number))
        try:
            found = segments.read_index_at(file, self.footer(number).index_a, self.log, number)
        finally:
            file.close()
        invariant(found is not None, "the index is whole")
        return SealedExtents.decode(number, found[0] if found else b"")

    def frames(self, number: int) -> list[FoundFrame]:
        """Every whole frame of a segment."""
        file = OsFiles().open(self.wal(number))
        try:
            limit = self.footer(number).index_a if self.is_sealed(number) else file.size()
            found = scan_frames(file, self.log.low, at=HEADER_BYTES, limit=limit)
            return [one for one in found if isinstance(one, FoundFrame)]
        finally:
            file.close()

    def flip(self, path: Path, at: int) -> None:
        """Flip one bit of a file."""
        content = bytearray(path.read_bytes())
        content[at] ^= 0x10
        path.write_bytes(content)

    def digest(self) -> dict[str, str]:
        """A hash of every file, and its time of change."""
        return {
            str(path.relative_to(self.directory)): f"{path.stat().st_mtime_ns} "
            + hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.directory.rglob("*"))
            if path.is_file()
        }


def options(directory: Path, segment_bytes: int = 8192) -> BrokerOptions:
    return BrokerOptions(data_dir=directory, segment_bytes=segment_bytes)


async def write_records(broker: Broker, rounds: int) -> None:
    """Topics `orders` (2 partitions) and `users`: some records a round, no two alike."""
    await broker.create_topic("orders", partitions=2, exist_ok=True)
    await broker.create_topic("users", exist_ok=True)
    for number in range(rounds):
        values = [f"order {number}.{part} ".encode() * 6 for part in range(3)]
        await broker.append_values("orders", values, partition=number % 2)
        if number % 3 == 0:
            await broker.append_values("users", [f"user {number} ".encode() * 8], keys=[b"k"])
