"""Which records of a refused Produce are at fault.

| field          | type            |
|----------------|-----------------|
| record_errors  | array           |
| · batch_index  | i4              |
| · message      | nullable string |
"""

from __future__ import annotations

from mainstem.doors.kafka.transport.wire import INT32, NO_TAGS, write_count, write_string
from mainstem.errors import InvalidRecords


def write_record_errors(error: BaseException, message: str, flexible: bool) -> bytes:
    numbers = error.records if isinstance(error, InvalidRecords) else ()
    end = write_string(message, flexible) + (NO_TAGS if flexible else b"")
    return write_count(len(numbers), flexible) + b"".join(INT32.pack(number) + end for number in numbers)
