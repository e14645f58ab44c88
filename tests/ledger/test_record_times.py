"""Records with times of their own: the ledger gives them in the entry that appends the records."""

from __future__ import annotations

import pytest

from mainstem import limits
from mainstem.errors import InvalidInput, LimitReached, NotAQueue, Rejected
from mainstem.ledger import record_times
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.record_times import ExpireRecords, RecordsExpired, RecordsTimed, TimeRecords
from mainstem.ledger.topics import DeleteTopic

from .writer import Writer, run, slice_row


def _write(writer: Writer, count: int, *rows: tuple[int, int, int, int], stream: int = 0) -> object:
    return writer.apply(run(slice_row(stream, count)), TimeRecords(stream, rows))[1]


def test_records_are_deleted_once_their_own_time_is_over(writer: Writer) -> None:
    topic = writer.create()
    assert _write(writer, 4, (1, 3, 0, 100)) == RecordsTimed(0, False)
    assert _write(writer, 1, (0, 1, 0, 50)) == RecordsTimed(4, False)
    written_ms = writer.ledger.time_ms
    times = writer.ledger.record_times
    assert not times.due(0, written_ms + 50)
    assert times.due_streams(written_ms + 51) == [0]
    writer.time_ms = written_ms + 60
    assert writer.do(ExpireRecords(0)) == RecordsExpired(1)
    assert writer.do(ExpireRecords(0)) == RecordsExpired(0)
    loaded = Ledger.decode(writer.ledger.encode())
    assert loaded.digest() == writer.ledger.digest()
    assert loaded.record_times.due(0, written_ms + 101)
    writer.time_ms = written_ms + 200
    assert writer.do(ExpireRecords(0)) == RecordsExpired(2)
    assert list(writer.ledger.streams.holes(0).live(0, 5)) == [(0, 1), (3, 4)]
    assert not times.due(0, limits.OFFSET_MAX)
    _write(writer, 1, (0, 1, 0, 1))
    writer.do(DeleteTopic(topic.topic_id))
    assert times.due_streams(limits.OFFSET_MAX) == []


@pytest.mark.parametrize(
    "row", [(1, 1, 0, 5), (-1, 1, 0, 5), (0, 1, -1, 0), (0, 1, 0, limits.NACK_DELAY_MS_MAX + 1)]
)
def test_invalid_times_refuse_the_append(writer: Writer, row: tuple[int, int, int, int]) -> None:
    writer.create(type="queue")
    assert isinstance(_write(writer, 1, row), InvalidInput)
    assert writer.state(0)[1] == 0


def test_only_a_queue_takes_a_delay(writer: Writer) -> None:
    writer.create()
    assert isinstance(_write(writer, 1, (0, 1, 5, 0)), NotAQueue)
    assert writer.state(0)[1] == 0


def test_the_times_belong_to_one_append(writer: Writer) -> None:
    writer.create(type="queue")
    assert isinstance(writer.do(TimeRecords(0, ((0, 1, 5, 0),))), InvalidInput)
    assert isinstance(_write(writer, 1, (0, 1, 0, 5), stream=7), Rejected)
    assert writer.ledger.record_times.due_streams(limits.OFFSET_MAX) == []


def test_the_number_of_records_with_times_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer()  # its log is not replayed: the limits hold only here
    monkeypatch.setattr(record_times, "EXPIRIES_MAX", 2)
    monkeypatch.setattr(record_times, "DELAYED_JOBS_MAX", 3)
    writer.create(type="queue")
    assert isinstance(_write(writer, 5, (0, 2, 9, 9), (3, 4, 9, 9)), RecordsTimed)
    assert isinstance(_write(writer, 1, (0, 1, 0, 9)), LimitReached)
    assert isinstance(_write(writer, 1, (0, 1, 9, 0)), LimitReached)
    assert writer.state(0)[1] == 5
