"""Record batches in their stored format, as the server sends them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mainstem.client.transport import ServerResponse
from mainstem.errors import InvalidInput, ServerFault

if TYPE_CHECKING:
    import pyarrow as pa

    from mainstem.records.decoding import StoredRecord

_HEADERS = ("mainstem-next-offset", "mainstem-start-offset", "mainstem-end-offset")


@contextmanager
def whole_package() -> Iterator[None]:
    """Around imports of packages that may not be installed. Raises InvalidInput."""
    try:
        yield
    except ModuleNotFoundError as missing:
        name = str(missing.name).partition(".")[0]
        source = "pyarrow" if name == "pyarrow" else "mainstem"
        raise InvalidInput(f"this needs {name!r}, which is not installed: pip install {source}") from None


@dataclass(frozen=True, slots=True)
class BatchPage:
    """Whole batches. The first may begin before `offset`; `records` and `table` omit those records."""

    data: bytes
    offset: int  # the requested offset
    next_offset: int  # where the next read continues
    start: int  # start offset of the partition
    end: int  # the offset that the next record will have

    @property
    def at_end(self) -> bool:
        return self.next_offset >= self.end or self.next_offset <= self.offset

    def records(self) -> Iterator[StoredRecord]:
        """The records, one at a time. Raises InvalidBatch, TooLarge: see `decodable`."""
        with whole_package():
            from mainstem.records.decoding import decode_records

        return decode_records(self.data, self.offset)

    def decodable(self) -> BatchPage:
        """The page up to the first batch that cannot be decoded. Raises RecordsLost if that is the first one."""
        with whole_package():
            from mainstem.records.undecodable import decodable

        batches, reached = decodable([memoryview(self.data)], self.offset)
        return replace(self, data=b"".join(batches), next_offset=reached)

    def table(self) -> pa.Table:
        """The records as columns, which is much faster for many records."""
        with whole_package():
            import pyarrow.compute as pc

            from mainstem.records.arrow import decode_slices, record_schema

        if not self.data:
            return record_schema().empty_table()
        table = decode_slices([self.data])
        return table.filter(pc.greater_equal(table["offset"], self.offset))


def page_of(answer: ServerResponse, offset: int) -> BatchPage:
    """Raises ServerFault if the response is not a page of batches."""
    try:
        next_offset, start, end = (int(answer.headers[name]) for name in _HEADERS)
    except (KeyError, ValueError):
        raise ServerFault("the server's response is not a page of batches") from None
    return BatchPage(answer.body, offset, next_offset, start, end)
