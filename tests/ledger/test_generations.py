from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mainstem.api.lake import DataFile, Part, PartName
from mainstem.errors import InvalidInput, StalePlan, StreamNotFound
from mainstem.ledger.generations import ForgetObjects, PartsSwapped, RetireParts, SwapParts
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.streams import DeleteRecords, MarkLost, Trim
from mainstem.ledger.tasks import ReleaseTask, TakeTask
from mainstem.ledger.topics import DeleteTopic

from .writer import Writer

TOKEN = 77
PREFIX = f"parts/{b't'.ljust(16, bytes(1)).hex()}/0/"


def part(base: int, end: int, generation: int = 1, records: int | None = None, *, name: str = "") -> Part:
    """A part with one file of all its records."""
    records = end - base if records is None else records
    if not records:
        return Part(base, end, generation, (), 0)
    key = f"{PREFIX}{base}-{end}-{generation}{name}"
    return Part(base, end, generation, (DataFile(key, 0, base, end, records, 100 * records, end),), records)


def lake(records: int = 100) -> Writer:
    writer = Writer()
    writer.create("t")
    if records:
        writer.append(0, records)
    take(writer)
    return writer


def take(writer: Writer, token: int = TOKEN, *, reach: int = 0, compacts_before_ms: int = 0) -> None:
    writer.do(TakeTask("parts/0", "test", token, 10_000, reach, compacts_before_ms))


def swap(writer: Writer, parts: Sequence[Part], sources: Sequence[PartName] = (), token: int = TOKEN) -> Any:
    return writer.do(SwapParts(0, token, tuple(sources), tuple(parts)))


def names(writer: Writer) -> list[PartName]:
    return [(one.base, one.end, one.generation) for one in writer.ledger.generations.parts(0)]


def test_parts_of_the_log_move_the_frontier() -> None:
    writer = lake()
    generations = writer.ledger.generations
    assert generations.frontier(0) == 0
    assert generations.part_at(0, 0) is None
    assert swap(writer, [part(0, 30), part(30, 60)]) == PartsSwapped(0, 60, repeated=False)
    assert swap(writer, [part(60, 100)]) == PartsSwapped(0, 100, repeated=False)
    assert names(writer) == [(0, 30, 1), (30, 60, 1), (60, 100, 1)]
    assert generations.part_at(0, 29) == part(0, 30)
    assert generations.part_at(0, 30) == part(30, 60)
    assert generations.part_at(0, 100) is None
    assert generations.parts(0, 29, 31) == [part(0, 30), part(30, 60)]
    assert generations.parts(0, 30, 60) == [part(30, 60)]


def test_a_swap_needs_the_lease() -> None:
    writer = lake()
    assert isinstance(swap(writer, [part(0, 30)], token=1), StalePlan)
    writer.do(ReleaseTask("parts/0", TOKEN))
    assert isinstance(swap(writer, [part(0, 30)]), StalePlan)
    take(writer, 5)
    assert isinstance(swap(writer, [part(0, 30)]), StalePlan)
    assert names(writer) == []


def test_the_same_swap_again_is_done_even_after_the_lease() -> None:
    writer = lake()
    swap(writer, [part(0, 30), part(30, 60)])
    writer.do(ReleaseTask("parts/0", TOKEN))
    before = writer.ledger.digest()
    assert swap(writer, [part(0, 30), part(30, 60)]) == PartsSwapped(0, 60, repeated=True)
    assert swap(writer, [part(30, 60)]) == PartsSwapped(0, 60, repeated=True)
    assert isinstance(swap(writer, [part(0, 30, name="other")]), StalePlan)
    assert writer.ledger.digest() == before


def test_a_swap_that_reaches_what_was_planned_ends_the_lease() -> None:
    writer = lake()
    writer.do(ReleaseTask("parts/0", TOKEN))
    take(writer, reach=60)
    swap(writer, [part(0, 30)])
    assert writer.ledger.tasks.holds("parts/0", TOKEN)
    swap(writer, [part(30, 60)])
    assert not writer.ledger.tasks.holds("parts/0", TOKEN)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [part(10, 30)],
        [part(0, 30), part(40, 50)],
        [part(0, 30), part(20, 50)],
        [part(0, 101)],
        [part(0, 30, 2)],
        [part(0, 30, 1, 29)],
        [part(0, 30), part(30, 60, 1, 0)],
        [Part(0, 30, 1, part(0, 30).files, 31)],
        [Part(0, 30, 1, part(0, 30).files * 2, 60)],
        [Part(0, 30, 1, (DataFile("elsewhere/x", 0, 0, 30, 30, 9, 1),), 30)],
        [Part(0, 30, 1, (DataFile(PREFIX + "x", 0, 0, 31, 30, 9, 1),), 30)],
        [Part(0, 30, 1, (DataFile(PREFIX + "x", 0, 5, 30, 30, 9, 1),), 30)],
        [Part(0, 30, 1, (DataFile(PREFIX + "x" * 2000, 0, 0, 30, 30, 9, 1),), 30)],
        [Part(30, 30, 1, (), 0)],
        [Part(-1, 30, 1, (), 0)],
    ],
)
def test_parts_that_do_not_tile_the_range_or_lack_records_are_refused(parts: list[Part]) -> None:
    writer = lake()
    before = writer.ledger.digest()
    assert isinstance(swap(writer, parts), InvalidInput | StalePlan)
    assert writer.ledger.digest() == before
    assert names(writer) == []


def test_only_what_the_parts_were_made_of_is_replaced() -> None:
    writer = lake()
    swap(writer, [part(0, 30), part(30, 60), part(60, 90)])
    merged = [part(0, 60, 2)]
    assert isinstance(swap(writer, merged, [(0, 30, 1)]), StalePlan)
    assert isinstance(swap(writer, merged, [(0, 30, 1), (30, 60, 2)]), StalePlan)
    assert isinstance(swap(writer, merged, [(0, 30, 1), (60, 90, 1)]), StalePlan)
    assert isinstance(swap(writer, [part(0, 60, 3)], [(0, 30, 1), (30, 60, 1)]), StalePlan)
    assert swap(writer, merged, [(0, 30, 1), (30, 60, 1)]) == PartsSwapped(0, 90, repeated=False)
    assert names(writer) == [(0, 60, 2), (60, 90, 1)]
    garbage = writer.ledger.generations.garbage()
    assert [one.key for one in garbage] == [f"{PREFIX}0-30-1", f"{PREFIX}30-60-1"]
    assert {one.topic_id for one in garbage} == {b"t".ljust(16, b"\0")}
    assert all(one.position == writer.ledger.position - 1 for one in garbage)


def test_a_file_serves_one_part_only_and_never_again_once_it_is_garbage() -> None:
    writer = lake()
    swap(writer, [part(0, 30), part(30, 60)])
    file = part(0, 30).files[0]
    assert isinstance(
        swap(writer, [Part(60, 90, 1, (DataFile(file.key, 0, 60, 90, 30, 9, 1),), 30)]), StalePlan
    )
    swap(writer, [part(0, 30, 2)], [(0, 30, 1)])
    assert isinstance(swap(writer, [Part(0, 30, 3, (file,), 30)], [(0, 30, 2)]), StalePlan)
    # A swap may keep a file of what it replaces.
    kept = part(0, 30, 2).files[0]
    both = Part(0, 60, 3, (kept, DataFile(f"{PREFIX}new", 0, 30, 60, 30, 9, 1)), 60)
    assert isinstance(swap(writer, [both], [(0, 30, 2), (30, 60, 1)]), PartsSwapped)
    assert not any(one.key == kept.key for one in writer.ledger.generations.garbage())


def test_holes_need_not_be_in_the_files() -> None:
    writer = lake()
    writer.do(DeleteRecords(0, ((5, 10),)))
    writer.do(MarkLost(0, 20, 25))
    assert isinstance(swap(writer, [part(0, 30, 1, 19)]), InvalidInput)
    assert isinstance(swap(writer, [part(0, 30, 1, 20)]), PartsSwapped)
    assert writer.ledger.generations.stale(0) == []


def test_nothing_past_the_stable_end_becomes_a_part() -> None:
    writer = lake(records=10)
    assert isinstance(swap(writer, [part(0, 11)]), StalePlan)
    assert isinstance(swap(writer, [part(0, 10)]), PartsSwapped)


def test_deletes_make_the_parts_that_hold_the_records_stale() -> None:
    writer = lake()
    swap(writer, [part(0, 30), part(30, 60)])
    writer.do(DeleteRecords(0, ((40, 42),)))
    assert writer.ledger.generations.stale(0) == [part(30, 60)]
    writer.do(DeleteRecords(0, ((70, 71),)))  # the log's own
    assert writer.ledger.generations.stale(0) == [part(30, 60)]
    # The delete came under this very lease: whether its holder knew shows in the count.
    assert isinstance(swap(writer, [part(30, 60, 2, 29)], [(30, 60, 1)]), PartsSwapped)
    assert len(writer.ledger.generations.stale(0)) == 1
    assert isinstance(swap(writer, [part(30, 60, 3, 28)], [(30, 60, 2)]), PartsSwapped)
    assert writer.ledger.generations.stale(0) == []


def test_a_trim_on_request_makes_the_part_it_cuts_stale_and_retention_does_not() -> None:
    writer = lake()
    swap(writer, [part(0, 30), part(30, 60)])
    writer.do(Trim(0, 10, "ttl"))
    assert writer.ledger.generations.stale(0) == []
    writer.do(Trim(0, 30, "delete"))
    assert writer.ledger.generations.stale(0) == []
    writer.do(Trim(0, 31, "delete"))
    assert writer.ledger.generations.stale(0) == [part(30, 60)]


def test_parts_below_the_start_are_retired_unless_somebody_works_on_them() -> None:
    writer = lake()
    swap(writer, [part(0, 30), part(30, 60), part(60, 90)])
    writer.do(Trim(0, 65, "ttl"))
    assert writer.ledger.generations.retirable() == []
    assert writer.do(RetireParts((0, 5))).parts == 0
    writer.do(ReleaseTask("parts/0", TOKEN))
    assert writer.ledger.generations.retirable() == [0]
    assert writer.do(RetireParts((0,))).parts == 2
    assert names(writer) == [(60, 90, 1)]
    assert writer.ledger.generations.frontier(0) == 90
    assert writer.do(RetireParts((0,))).parts == 0
    assert len(writer.ledger.generations.garbage()) == 2


def test_a_start_past_all_parts_is_where_the_next_begin() -> None:
    writer = lake()
    swap(writer, [part(0, 30)])
    writer.do(Trim(0, 50, "ttl"))
    assert writer.ledger.generations.frontier(0) == 50
    assert isinstance(swap(writer, [part(60, 70)]), StalePlan)
    assert isinstance(swap(writer, [part(50, 70)]), PartsSwapped)
    assert names(writer) == [(50, 70, 1)]
    assert [one.key for one in writer.ledger.generations.garbage()] == [f"{PREFIX}0-30-1"]


def test_a_start_that_moved_during_the_first_task_does_no_harm() -> None:
    writer = lake()
    writer.do(Trim(0, 20, "ttl"))
    assert isinstance(swap(writer, [part(0, 30)]), PartsSwapped)
    assert names(writer) == [(0, 30, 1)]


def test_compaction_takes_records_off_the_counts_and_they_come_off_only_once() -> None:
    writer = lake()
    streams = writer.ledger.streams
    swap(writer, [part(0, 50), part(50, 100)])
    writer.do(ReleaseTask("parts/0", TOKEN))
    take(writer, 9, compacts_before_ms=60)
    done = swap(writer, [part(0, 50, 2, 10), part(50, 100, 2, 40)], [(0, 50, 1), (50, 100, 1)], token=9)
    assert isinstance(done, PartsSwapped)
    assert streams.records[0] == 50
    assert writer.ledger.generations.absent(0) == 50
    # Files reach times up to their end: the second holds records the compaction had to leave alone.
    assert [one.base for one in writer.ledger.generations.dirty(0)] == [50]
    writer.do(ReleaseTask("parts/0", 9))
    take(writer, 10)
    assert isinstance(swap(writer, [part(0, 100, 3, 49)], [(0, 50, 2), (50, 100, 2)], token=10), InvalidInput)
    assert isinstance(swap(writer, [part(0, 100, 3, 50)], [(0, 50, 2), (50, 100, 2)], token=10), PartsSwapped)
    assert streams.records[0] == 50
    writer.do(Trim(0, 50, "ttl"))
    assert streams.records[0] == 25
    writer.do(Trim(0, 100, "ttl"))
    assert (streams.records[0], streams.bytes[0]) == (0, 0)
    assert writer.ledger.generations.absent(0) == 0


def test_a_topic_that_counts_single_records_is_not_compacted() -> None:
    writer = Writer()
    writer.create("t", cap_records=1_000)
    writer.append_sizes(0, *[5] * 20)
    take(writer)
    swap(writer, [part(0, 20)])
    take(writer, compacts_before_ms=99)
    assert isinstance(swap(writer, [part(0, 20, 2, 3)], [(0, 20, 1)]), StalePlan)


def test_a_deleted_topic_leaves_garbage_until_it_is_forgotten() -> None:
    writer = lake()
    swap(writer, [part(0, 30), part(30, 60, 1, 30)])
    topic = writer.ledger.topics.get("t")
    assert topic is not None
    writer.do(DeleteTopic(topic.topic_id))
    generations = writer.ledger.generations
    assert generations.parts(0) == []
    assert len(writer.ledger.tasks) == 0
    assert isinstance(swap(writer, [part(60, 90)]), StreamNotFound)
    keys = [one.key for one in generations.garbage()]
    assert len(keys) == 2
    assert generations.knows(keys[0])
    assert writer.do(ForgetObjects((keys[0], "parts/never"))).objects == 1
    assert not generations.knows(keys[0])
    assert writer.do(ForgetObjects(tuple(keys))).objects == 1
    assert generations.digest == 0


def test_a_checkpoint_holds_parts_garbage_and_deletes_under_way() -> None:
    writer = lake()
    swap(writer, [part(0, 30), part(30, 60)])
    swap(writer, [part(0, 30, 2)], [(0, 30, 1)])
    writer.do(DeleteRecords(0, ((3, 4), (70, 71))))
    data = writer.ledger.encode()
    restored = Ledger.decode(data)
    assert restored.encode() == data
    assert restored.digest() == writer.ledger.digest()
    assert restored.generations.parts(0) == writer.ledger.generations.parts(0)
    assert restored.generations.stale(0) == [part(0, 30, 2)]
    assert restored.generations.garbage() == writer.ledger.generations.garbage()
    again = Writer.__new__(Writer)
    again.__dict__ |= writer.__dict__ | {"ledger": restored, "log": []}
    for one in (writer, again):
        assert isinstance(swap(one, [part(60, 90)]), PartsSwapped)
        assert one.ledger.generations.stale(0) == [part(0, 30, 2), part(60, 90)]
    assert restored.digest() == writer.ledger.digest()


def test_a_start_that_moves_on_during_a_task_that_began_past_all_parts_does_no_harm() -> None:
    writer = lake()
    swap(writer, [part(0, 30)])
    writer.do(Trim(0, 50, "ttl"))  # and a task is planned from there
    writer.do(Trim(0, 55, "ttl"))
    assert isinstance(swap(writer, [part(50, 70)]), PartsSwapped)
    assert names(writer) == [(50, 70, 1)]
