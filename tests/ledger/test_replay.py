from __future__ import annotations

import random

import numpy as np
import pytest

from mainstem import limits
from mainstem.errors import InvariantBroken, LogDamaged
from mainstem.ledger.brokers import Boot
from mainstem.ledger.entry import SLICE_TRACKED, Entry
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.producers import AllocateProducer, ExpireProducers, ProducersExpired
from mainstem.ledger.replay import PlainRun, apply_all, merge_plain

from .writer import Writer, run, slice_row


def one_by_one(entries: list[bytes]) -> Ledger:
    ledger = Ledger()
    for entry in entries:
        ledger.apply(Entry.decode(entry))
    return ledger


def joined(entries: list[bytes], chunk: int = 1 << 30) -> Ledger:
    ledger = Ledger()
    for start in range(0, len(entries), chunk):
        apply_all(entries[start : start + chunk], ledger)
    return ledger


def busy_log(length: int, seed: int) -> list[bytes]:
    """Mostly plain entries, of several kinds of stream, producer, time and broker."""
    rng = random.Random(seed)
    writer = Writer()
    other = Writer(writer.ledger, broker=2)
    other.log = writer.log = writer.log + other.log
    writer.create("a", 3)
    writer.create("b", 1, cap_records=5)
    writer.create("c", 1, cap_bytes=50)
    sequence = 0
    for _ in range(length):
        by = other if rng.random() < 0.1 else writer
        by.time_ms += rng.choice([0, 1, 1, 40_000, -3])
        rows = [slice_row(rng.randrange(6), rng.randrange(1, 4)) for _ in range(rng.randrange(0, 3))]
        records = []
        if rng.random() < 0.3:
            rows.append(slice_row(0, 1, producer=1, epoch=0, sequence=sequence))
            sequence += 1
        if rng.random() < 0.1:
            rows.append(slice_row(4, 1, flags=SLICE_TRACKED))
            records.append((9, 9))
        if rng.random() < 0.05:
            by.boot()
        elif rng.random() < 0.05:
            by.do(AllocateProducer())
        by.do(run(*rows, records=records))
        if rng.random() < 0.1:
            writer.log.append(rng.choice(writer.log[-5:]))
    return [entry.encode() for entry in writer.log]


@pytest.mark.parametrize("seed", range(8))
def test_joined_entries_give_the_state_of_single_ones(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DIGEST_EVERY_COMMITS", 64)
    entries = busy_log(300, seed)
    expected = one_by_one(entries)
    assert expected.last_digest is not None
    for chunk in (1 << 30, 7, 100):
        ledger = joined(entries, chunk)
        assert ledger.encode() == expected.encode()
        assert ledger.last_digest == expected.last_digest


def test_outcomes_come_row_by_row_with_the_rows_of_each_entry() -> None:
    writer = Writer()
    writer.create("t", 2)
    ledger = Ledger.decode(writer.ledger.encode())
    done = len(writer.log)
    expected = []
    for rows in ([slice_row(0, 2)], [], [slice_row(1), slice_row(0), slice_row(9)]):
        expected += writer.do(run(*rows)).base.tolist()
    (work,) = merge_plain([entry.encode() for entry in writer.log[done:]], ledger)
    assert isinstance(work, PlainRun)
    assert work.slices.tolist() == [1, 0, 3]
    outcome = ledger.apply_plain(
        work.rows,
        broker=work.broker,
        broker_epoch=work.broker_epoch,
        last_commit_id=work.last_commit_id,
        time_ms=work.time_ms,
        entries=work.entries,
    )
    assert outcome.base.tolist() == expected
    assert ledger.encode() == writer.ledger.encode()


def test_a_long_plain_log_is_joined_into_few_runs() -> None:
    writer = Writer()
    writer.create()
    for _ in range(1_000):
        writer.append(0)
    work = list(merge_plain([entry.encode() for entry in writer.log], Ledger()))
    assert [type(piece) for piece in work] == [Entry, Entry, PlainRun]


def test_commits_repeated_in_the_middle_of_a_run_are_applied_once() -> None:
    writer = Writer()
    writer.create()
    for _ in range(6):
        writer.append(0)
    again = writer.log + writer.log[4:7]
    writer.append(0)
    entries = [entry.encode() for entry in [*again, writer.log[-1]]]
    ledger = joined(entries)
    assert ledger.streams.end[0] == 7
    assert ledger.encode() == one_by_one(entries).encode()


def test_an_entry_that_cannot_be_read_stops_replay_there() -> None:
    writer = Writer()
    writer.create()
    for _ in range(5):
        writer.append(0)
    entries = [entry.encode() for entry in writer.log]
    for broken in (b"", b"\1", entries[4][:-1], b"\0" * 112):
        ledger = Ledger()
        with pytest.raises(LogDamaged):
            apply_all([*entries[:4], broken, *entries[5:]], ledger)
        assert ledger.position == 4


def test_producers_are_timed_by_their_own_entry_however_joined() -> None:
    writer = Writer()
    writer.create()
    for producer in range(3):
        writer.time_ms += limits.PRODUCER_TIME_STEP_MS // 2 + 1
        writer.append(0, producer=producer, epoch=0, sequence=0)
    entries = [entry.encode() for entry in writer.log]
    ledger = joined(entries)
    assert ledger.encode() == writer.ledger.encode()
    expired = ledger.producers.expire(ExpireProducers(limits.PRODUCER_TIME_STEP_MS), ledger)
    assert expired == ProducersExpired(1)


def test_nothing_to_replay_is_nothing() -> None:
    assert list(merge_plain([], Ledger())) == []


def test_plain_entries_joined_across_a_digest_are_a_bug() -> None:
    ledger = Ledger()
    ledger.apply(Entry(1, 0, 1, 1, [Boot(1, "b", False)]))
    rows = run(slice_row(0)).slices
    with pytest.raises(InvariantBroken):
        ledger.apply_plain(
            rows,
            broker=1,
            broker_epoch=1,
            last_commit_id=9_000,
            time_ms=1,
            entries=limits.DIGEST_EVERY_COMMITS,
        )
    with pytest.raises(InvariantBroken):
        ledger.apply_plain(rows, broker=1, broker_epoch=1, last_commit_id=1, time_ms=1, entries=0)


def test_a_long_run_of_many_streams_is_placed_as_single_rows_would_be() -> None:
    rng = np.random.default_rng(3)
    slices = np.zeros(100_000, run(slice_row(0)).slices.dtype)
    slices["stream"] = rng.integers(0, 300, len(slices))
    slices["count"] = rng.integers(0, 9, len(slices))
    slices["size"] = rng.integers(0, 1 << 32, len(slices))
    slices["max_timestamp"] = rng.integers(-5, 1 << 40, len(slices))
    slices["producer"] = -1
    writer = Writer()
    writer.create("t", 300)
    outcome = writer.ledger.apply_plain(
        slices, broker=1, broker_epoch=1, last_commit_id=5, time_ms=1, entries=1
    )
    for stream in (0, 17, 299):
        mine = slices[slices["stream"] == stream]
        counts = mine["count"].astype(np.int64)
        bases = outcome.base[slices["stream"] == stream]
        assert bases.tolist() == (np.cumsum(counts) - counts).tolist()
        assert writer.state(stream) == (0, counts.sum(), counts.sum(), mine["size"].sum(dtype=np.int64))
        assert writer.ledger.streams.max_timestamp[stream] == max(-1, mine["max_timestamp"].max())
    assert not outcome.code.any()
