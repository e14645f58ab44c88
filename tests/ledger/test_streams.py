from __future__ import annotations

import pytest

from mainstem.errors import InvalidInput, StreamNotFound
from mainstem.ledger.appends import AppendCode
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.entry import SLICE_TRACKED, Entry
from mainstem.ledger.intervals import SOURCE_TRIM
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.passed_losses import PASSED_LOSSES_MAX
from mainstem.ledger.streams import (
    CeilingsRaised,
    DeleteRecords,
    MarkLost,
    RaiseCeilings,
    RecordsRemoved,
    Trim,
    TrimReason,
)
from mainstem.ledger.topics import AlterTopic

from .writer import Writer, run, slice_row

OK, FULL = AppendCode.OK, AppendCode.FULL

# Written before a trim said whether it keeps losses, and never to be regenerated.
TRIM_WITHOUT_THE_FIELD = (
    "010000000100000004000000000000000100000002000000030000000000000000000000000000000000000000000000"
    "020000000c000000950a0007a664656c65746500"
)


def test_offsets_are_dense_from_zero() -> None:
    writer = Writer()
    writer.create("t", 2)
    assert [writer.append(0, 3), writer.append(1, 2), writer.append(0, 1)] == [(0, OK), (0, OK), (3, OK)]
    assert writer.state(0) == (0, 4, 4, 40)


def test_a_record_cap_keeps_exactly_the_newest() -> None:
    writer = Writer()
    writer.create(cap_records=3)
    for _ in range(6):
        writer.append(0)
    assert writer.state(0) == (3, 6, 3, 30)
    assert writer.ledger.streams.evict_floor[0] == 3


def test_a_slice_larger_than_the_cap_keeps_its_newest_records() -> None:
    writer = Writer()
    writer.create(cap_records=3)
    assert writer.append(0, 10) == (0, OK)
    assert writer.state(0) == (7, 10, 3, 30)


def test_a_record_cap_counts_live_records_only() -> None:
    writer = Writer()
    writer.create(cap_records=4)
    writer.append(0, 4)
    writer.do(DeleteRecords(0, ((1, 3),)))
    writer.append(0, 2)
    assert writer.state(0) == (0, 6, 4, 40)
    writer.append(0)
    # Record 0 was evicted; the deleted ones after it need no floor.
    assert writer.state(0) == (3, 7, 4, 40)
    assert writer.ledger.streams.evict_floor[0] == 1
    assert writer.ledger.streams.delete_floor[0] == 3


def test_a_byte_cap_evicts_by_the_size_of_each_record() -> None:
    writer = Writer()
    writer.create(cap_bytes=100)
    writer.append_sizes(0, 60, 30, 10)
    assert writer.state(0) == (0, 3, 3, 100)
    writer.append_sizes(0, 1)
    assert writer.state(0) == (1, 4, 3, 41)
    writer.append_sizes(0, 59)
    assert writer.state(0) == (1, 5, 4, 100)


def test_a_record_larger_than_the_byte_cap_leaves_nothing() -> None:
    writer = Writer()
    writer.create(cap_bytes=100)
    writer.append_sizes(0, 50)
    writer.append_sizes(0, 101)
    assert writer.state(0) == (2, 2, 0, 0)


def test_a_byte_cap_drops_thousands_at_once() -> None:
    writer = Writer()
    writer.create(cap_bytes=1_000)
    for _ in range(5):
        writer.append_sizes(0, *[1] * 200)
    writer.append_sizes(0, 995)
    assert writer.state(0) == (995, 1001, 6, 1_000)


def test_a_full_stream_that_rejects_takes_nothing_of_the_slice() -> None:
    writer = Writer()
    writer.create(cap_records=3, discard="reject")
    assert writer.append(0, 2) == (0, OK)
    assert writer.append(0, 2) == (-1, FULL)
    assert writer.append(0, 1) == (2, OK)
    assert writer.state(0) == (0, 3, 3, 30)
    writer.do(Trim(0, 2, "delete"))
    assert writer.append(0, 2) == (3, OK)


def test_a_byte_full_stream_that_rejects_takes_what_fits() -> None:
    writer = Writer()
    writer.create(cap_bytes=100, discard="reject")
    assert writer.append_sizes(0, 60, 30) == (0, OK)
    assert writer.append_sizes(0, 11) == (-1, FULL)
    assert writer.append_sizes(0, 10) == (2, OK)
    assert writer.state(0) == (0, 3, 3, 100)


def test_a_tracked_slice_without_record_rows_spreads_its_size() -> None:
    writer = Writer()
    writer.create(ttl_ms=1)
    writer.append(0, 3, size=11, time=77)
    columns = writer.ledger.streams.tracked(0)
    assert columns is not None
    assert columns.sizes.tolist() == [4, 4, 3]
    assert columns.times.tolist() == [77, 77, 77]


def test_record_rows_of_an_untracked_stream_are_passed_over() -> None:
    writer = Writer()
    writer.create("a", 1)
    writer.create("b", 1, ttl_ms=1)
    rows = [slice_row(stream, 2, size=20, flags=SLICE_TRACKED) for stream in (0, 1)]
    writer.do(run(*rows, records=[(1, 1), (2, 2), (3, 3), (4, 4)]))
    assert writer.state(0) == (0, 2, 2, 20)
    assert writer.state(1) == (0, 2, 2, 7)


def test_trims_raise_the_floor_of_their_reason_only() -> None:
    writer = Writer()
    writer.create()
    writer.append(0, 10)
    assert writer.do(Trim(0, 2, "delete", 15)) == RecordsRemoved(2, 2, 15)
    assert writer.do(Trim(0, 4, "cap")) == RecordsRemoved(4, 2, 21)  # the average of what is left
    assert writer.do(Trim(0, 3, "ttl")) == RecordsRemoved(4, 0, 0)
    streams = writer.ledger.streams
    assert (streams.delete_floor[0], streams.evict_floor[0], streams.expiry_floor[0]) == (2, 4, 3)


def test_a_trim_never_passes_the_end_and_never_goes_back() -> None:
    writer = Writer()
    writer.create()
    writer.append(0, 3)
    assert writer.do(Trim(0, 1 << 63, "ttl")) == RecordsRemoved(3, 3, 30)
    assert writer.do(Trim(0, 1, "ttl")) == RecordsRemoved(3, 0, 0)
    assert writer.state(0) == (3, 3, 0, 0)
    assert writer.append(0) == (3, OK)


def test_tracked_streams_know_the_bytes_a_trim_frees() -> None:
    writer = Writer()
    writer.create(type="queue")
    writer.append_sizes(0, 5, 7, 11, 13)
    assert writer.do(Trim(0, 2, "delete", 999)) == RecordsRemoved(2, 2, 12)
    assert writer.do(DeleteRecords(0, ((3, 4),), 999)) == RecordsRemoved(2, 1, 13)
    assert writer.state(0) == (2, 4, 1, 11)


def test_deleting_records_twice_counts_them_once() -> None:
    writer = Writer()
    writer.create()
    writer.append(0, 10)
    assert writer.do(DeleteRecords(0, ((2, 4), (3, 6)))).records == 4
    assert writer.do(DeleteRecords(0, ((2, 6),))) == RecordsRemoved(0, 0, 0)
    assert writer.do(DeleteRecords(0, ((1, 7),))).records == 2
    assert writer.ledger.streams.deleted(0) == [(1, 7)]
    assert writer.state(0) == (0, 10, 4, 40)


def test_deleted_records_at_the_start_move_it_and_are_forgotten() -> None:
    writer = Writer()
    writer.create()
    writer.append(0, 10)
    writer.do(DeleteRecords(0, ((3, 5),)))
    writer.do(DeleteRecords(0, ((0, 3),)))
    assert writer.state(0) == (5, 10, 5, 50)
    assert writer.ledger.streams.deleted(0) == []
    writer.do(DeleteRecords(0, ((6, 99),)))
    assert writer.state(0) == (5, 10, 1, 10)
    writer.do(Trim(0, 6, "delete"))
    assert writer.state(0) == (10, 10, 0, 0)


def test_a_trim_onto_deleted_records_behind_a_loss_passes_over_both() -> None:
    writer = Writer()
    writer.create()
    writer.append(0, 4)
    writer.do(MarkLost(0, 0, 1))
    writer.do(DeleteRecords(0, ((1, 3),)))
    assert writer.state(0)[0] == 0
    writer.do(Trim(0, 1, "delete"))
    assert writer.state(0) == (3, 4, 1, 10)
    assert writer.ledger.streams.lost(0) == []


def test_a_loss_that_a_delete_passes_over_is_remembered_exactly() -> None:
    writer = Writer()
    writer.create()
    writer.append(0, 20)
    passed = writer.ledger.streams.passed
    writer.do(MarkLost(0, 2, 4))
    writer.do(MarkLost(0, 6, 9, SOURCE_TRIM))
    writer.do(MarkLost(0, 12, 14))
    writer.do(Trim(0, 7, "delete", keeps_losses=True))
    assert [*passed.above(0, 0)] == [(2, 4, "damaged"), (6, 7, SOURCE_TRIM)]
    assert writer.ledger.streams.lost(0) == [(7, 9, SOURCE_TRIM), (12, 14, "damaged")]
    writer.do(Trim(0, 11, "delete", keeps_losses=True))
    assert [*passed.above(0, 3)] == [(3, 4, "damaged"), (6, 9, SOURCE_TRIM)]
    assert (passed.reach(0, uncopied=True), passed.reach(0, uncopied=False)) == (9, 4)
    assert (passed.reach(1, uncopied=True), [*passed.above(1, 0)]) == (0, [])
    restored = Ledger.decode(writer.ledger.encode())
    assert [*restored.streams.passed.above(0, 0)] == [*passed.above(0, 0)]
    assert restored.digest() == writer.ledger.digest()


@pytest.mark.parametrize("reason", ["cap", "ttl"])
def test_what_retention_passes_over_is_told_of_by_its_own_floor(reason: TrimReason) -> None:
    writer = Writer()
    writer.create()
    writer.append(0, 10)
    writer.do(MarkLost(0, 2, 6))
    writer.do(Trim(0, 7, "delete", keeps_losses=True))
    digest = writer.ledger.digest()
    writer.do(Trim(0, 4, reason))
    assert [*writer.ledger.streams.passed.above(0, 0)] == [(4, 6, "damaged")]
    writer.do(Trim(0, 9, reason))
    assert [*writer.ledger.streams.passed.above(0, 0)] == []
    assert writer.ledger.digest() != digest


def test_a_delete_from_before_losses_were_kept_forgets_them_as_it_did_then() -> None:
    digests = set()
    for trim in (Trim(0, 7, "delete"), Trim(0, 7, "delete", keeps_losses=True)):
        writer = Writer()
        writer.create()
        writer.append(0, 10)
        writer.do(MarkLost(0, 2, 6))
        writer.do(trim)
        assert len([*writer.ledger.streams.passed.above(0, 0)]) == trim.keeps_losses
        digests.add(writer.ledger.digest())
    assert len(digests) == 2
    old = Entry.decode(bytes.fromhex(TRIM_WITHOUT_THE_FIELD))
    assert old.parts == [Trim(0, 7, "delete")]


def test_of_too_many_passed_losses_the_oldest_are_told_of_as_one() -> None:
    writer = Writer()
    writer.create()
    many = PASSED_LOSSES_MAX
    writer.append(0, 3 * many + 9)
    for at in range(many + 3):
        writer.do(MarkLost(0, 3 * at, 3 * at + 1, SOURCE_TRIM if at != 1 else "damaged"))
    writer.do(Trim(0, 3 * many + 9, "delete", keeps_losses=True))
    kept = [*writer.ledger.streams.passed.above(0, 0)]
    assert len(kept) == many
    assert kept[:2] == [(0, 10, "damaged"), (12, 13, SOURCE_TRIM)]
    assert Ledger.decode(writer.ledger.encode()).digest() == writer.ledger.digest()


def test_lost_records_keep_their_offsets_and_their_first_reason() -> None:
    writer = Writer()
    writer.create()
    writer.append(0, 6)
    assert writer.do(MarkLost(0, 1, 3)).records == 2
    assert writer.do(MarkLost(0, 2, 5, "burnt")).records == 2
    writer.do(DeleteRecords(0, ((0, 2),)))
    assert writer.ledger.streams.lost(0) == [(1, 3, "damaged"), (3, 5, "burnt")]
    assert writer.state(0) == (1, 6, 1, 10)
    assert writer.append(0) == (6, OK)


def test_a_tighter_cap_evicts_at_once() -> None:
    writer = Writer()
    topic = writer.create()
    writer.append(0, 10)
    writer.do(AlterTopic(topic.topic_id, TopicConfig(cap_records=4)))
    assert writer.state(0) == (6, 10, 4, 40)
    writer.do(AlterTopic(topic.topic_id, TopicConfig(cap_records=2, discard="reject")))
    assert writer.state(0) == (6, 10, 4, 40)
    assert writer.append(0) == (-1, FULL)


def test_records_from_before_tracking_count_as_their_average() -> None:
    writer = Writer()
    topic = writer.create()
    writer.append(0, 3, size=60)
    writer.append(0, 1, size=40)
    writer.do(AlterTopic(topic.topic_id, TopicConfig(cap_bytes=100)))
    writer.append_sizes(0, 10)
    assert writer.state(0) == (1, 5, 4, 85)
    writer.append_sizes(0, 60)
    assert writer.state(0) == (3, 6, 3, 95)
    writer.do(DeleteRecords(0, ((3, 4),)))
    assert writer.state(0) == (4, 6, 2, 70)
    writer.append_sizes(0, 31)
    assert writer.state(0) == (5, 7, 2, 91)
    writer.do(AlterTopic(topic.topic_id, TopicConfig()))
    assert writer.ledger.streams.tracked(0) is None
    writer.append(0, 100)
    assert writer.state(0) == (5, 107, 102, 1091)


def test_expired_records_are_found_by_their_own_time() -> None:
    writer = Writer()
    writer.create(ttl_ms=100)
    writer.append_sizes(0, 1, 1, 1, 1, 1, 1, times=[50, 60, 200, 70, 80, 300])
    streams = writer.ledger.streams
    assert streams.expired(0, 100) == [(0, 2), (3, 5)]
    writer.do(DeleteRecords(0, ((4, 5),)))
    writer.do(Trim(0, 1, "ttl"))
    assert streams.expired(0, 100) == [(1, 2), (3, 4)]
    assert streams.expired(0, 10) == []


def test_ceilings_only_rise_and_unknown_streams_are_passed_over() -> None:
    writer = Writer()
    writer.create(durability="memory")
    assert writer.do(RaiseCeilings(((0, 10), (99, 5)))) == CeilingsRaised(1)
    assert writer.do(RaiseCeilings(((0, 9),))) == CeilingsRaised(0)
    assert writer.ledger.streams.ceiling[0] == 10
    for ceiling in (-1, 1 << 63):
        assert isinstance(writer.do(RaiseCeilings(((0, ceiling),))), InvalidInput)


def test_an_unclean_boot_jumps_relaxed_streams_to_their_ceiling() -> None:
    writer = Writer()
    writer.create("m", durability="memory")
    writer.create("s", durability="fsync")
    writer.create("c", durability="disk", cap_bytes=100)
    for stream in range(3):
        writer.append(stream, 5)
    writer.do(RaiseCeilings(((0, 1 << 50), (1, 100), (2, 100))))
    assert writer.boot(jump=False).jumped == ()
    assert writer.boot(jump=True).jumped == ((0, 5, 1 << 50), (2, 5, 100))
    assert writer.state(0) == (0, 1 << 50, 5, 50)
    assert writer.ledger.streams.lost(0) == [(5, 1 << 50, "unclean shutdown")]
    assert writer.append(0) == (1 << 50, OK)
    assert writer.append(1) == (5, OK)
    assert writer.append(2, 6) == (100, OK)
    assert writer.state(2) == (1, 106, 10, 100)


def test_ephemeral_streams_live_by_their_ceiling_alone() -> None:
    writer = Writer()
    writer.create(durability="ephemeral", cap_bytes=10)
    assert writer.append(0) == (-1, AppendCode.NO_STREAM)
    writer.do(RaiseCeilings(((0, 64),)))
    assert writer.boot().jumped == ((0, 0, 64),)
    writer.do(RaiseCeilings(((0, 99),)))
    writer.boot()
    assert writer.state(0) == (0, 99, 0, 0)
    assert writer.ledger.streams.lost(0) == [(0, 99, "ephemeral")]


def test_the_latest_timestamp_is_kept() -> None:
    writer = Writer()
    writer.create()
    assert writer.ledger.streams.max_timestamp[0] == -1
    for time in (5, 9, 7):
        writer.append(0, time=time)
    assert writer.ledger.streams.max_timestamp[0] == 9


@pytest.mark.parametrize(
    "command",
    [
        Trim(0, -1, "delete"),
        Trim(0, 1, "cap", -1),
        DeleteRecords(0, ((3, 3),)),
        DeleteRecords(0, ((0, 1), (-2, 4))),
        DeleteRecords(0, ((0, 1),), -1),
        MarkLost(0, 4, 2),
        MarkLost(0, 0, 1, ""),
    ],
)
def test_removals_that_make_no_sense_change_nothing(command: Trim | DeleteRecords | MarkLost) -> None:
    writer = Writer()
    writer.create()
    writer.append(0, 5)
    before = writer.ledger.digest()
    assert isinstance(writer.do(command), InvalidInput)
    assert writer.ledger.digest() == before


@pytest.mark.parametrize("stream", [-1, 1, 1 << 40])
def test_removals_from_an_unknown_stream_are_refused(stream: int) -> None:
    writer = Writer()
    writer.create()
    for command in (Trim(stream, 1, "cap"), DeleteRecords(stream, ((0, 1),)), MarkLost(stream, 0, 1)):
        assert isinstance(writer.do(command), StreamNotFound)


def test_thousands_of_streams_keep_their_own_state() -> None:
    writer = Writer()
    writer.create("a", 5_000)
    writer.append(4_999, 7)
    writer.create("b", 5_000)
    assert writer.state(4_999) == (0, 7, 7, 70)
    assert writer.append(9_999, 2) == (0, OK)
