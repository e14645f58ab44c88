"""Parts: which Parquet files serve which offsets of a stream, once the log's own bytes need not."""

from __future__ import annotations

import msgspec


class DataFile(msgspec.Struct, frozen=True, array_like=True):
    """One Parquet file: records of one stream and one day, by offset."""

    key: str  # in the object store
    day: int  # of every record's time, in days since 1970-01-01 UTC
    base: int  # first offset in it
    end: int  # one past the last
    records: int
    bytes: int  # of the file
    max_timestamp: int  # ms


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Serves every offset of [base, end): in its files, or gone for good.

    Records whose times lie in several days stand in several files, whose offsets may interleave."""

    base: int
    end: int
    generation: int  # 1 = made of the log; a rewrite or merge is one above the highest it replaces
    files: tuple[DataFile, ...]  # none: every record of the range was deleted or aborted
    records: int  # in its files

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)
