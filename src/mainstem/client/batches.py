"""Record batches as they are stored, off the wire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mainstem.client.transport import ServerResponse
from mainstem.errors import ServerFault

if TYPE_CHECKING:
    import pyarrow as pa

    from mainstem.records.decoding import StoredRecord

_HEADERS = ("mainstem-next-offset", "mainstem-start-offset", "mainstem-end-offset")


@dataclass(frozen=True, slots=True)
class BatchPage:
    """Whole batches; the first may begin before `offset`, what stands there is left out of records and table."""

    data: bytes
    offset: int  # where it was asked to begin
    next_offset: int  # where to read on
    start: int  # first offset still there
    end: int  # the offset that the next record will have

    @property
    def at_end(self) -> bool:
        return self.next_offset >= self.end or self.next_offset <= self.offset

    def records(self) -> Iterator[StoredRecord]:
        """One by one. Raises InvalidBatch, TooLarge: see `decodable`."""
        from mainstem.records.decoding import decode_records

        return decode_records(self.data, self.offset)

    def decodable(self) -> BatchPage:
        """The page up to the first batch that cannot be decoded. Raises RecordsLost if that is the first one."""
        from mainstem.records.undecodable import decodable

        batches, reached = decodable([memoryview(self.data)], self.offset)
        return replace(self, data=b"".join(batches), next_offset=reached)

    def table(self) -> pa.Table:
        """As columns, which is much faster for many."""
        import pyarrow.compute as pc

        from mainstem.records.arrow import decode_slices, record_schema

        if not self.data:
            return record_schema().empty_table()
        table = decode_slices([self.data])
        return table.filter(pc.greater_equal(table["offset"], self.offset))


def page_of(answer: ServerResponse, offset: int) -> BatchPage:
    """Raises ServerFault for an answer that is no page of batches."""
    try:
        next_offset, start, end = (int(answer.headers[name]) for name in _HEADERS)
    except (KeyError, ValueError):
        raise ServerFault("the server's answer is no page of batches") from None
    return BatchPage(answer.body, offset, next_offset, start, end)
