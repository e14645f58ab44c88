from __future__ import annotations

import random

import numpy as np
import pytest

from mainstem import limits
from mainstem.ledger.appends import AppendCode
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.entry import PLAIN, SLICE_KEYED, SLICE_TRACKED, Entry
from mainstem.ledger.idempotency import IdempotencyKeys, key_number, slice_fields
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.replay import apply_all
from mainstem.ledger.topics import AlterTopic, DeleteTopic

from .writer import Writer, run, slice_row


def keyed_row(stream: int, key: str, count: int = 1) -> tuple[int, ...]:
    producer, sequence, epoch = slice_fields(key.encode())
    return slice_row(stream, count, producer=producer, sequence=sequence, epoch=epoch, flags=SLICE_KEYED)


def append(writer: Writer, stream: int, key: str, count: int = 1) -> tuple[int, AppendCode]:
    outcome = writer.do(run(keyed_row(stream, key, count)))
    return int(outcome.base[0]), AppendCode(int(outcome.code[0]))


def test_a_key_gives_the_first_offset_again_while_its_window_lasts() -> None:
    writer = Writer()
    writer.create("t", 2, idempotency_window_ms=100)
    assert append(writer, 0, "k", 3) == (0, AppendCode.OK)
    assert append(writer, 0, "l") == (3, AppendCode.OK)
    assert append(writer, 1, "k") == (0, AppendCode.OK)
    writer.time_ms += 100
    assert append(writer, 0, "k", 9) == (0, AppendCode.DUPLICATE)
    assert writer.ledger.idempotency.count_of(0, key_number(*slice_fields(b"k")), 0) == 3
    writer.time_ms += 1
    assert append(writer, 0, "k") == (4, AppendCode.OK)
    assert append(writer, 0, "k") == (4, AppendCode.DUPLICATE)


def test_ledger_time_decides_and_never_runs_back() -> None:
    writer = Writer()
    writer.create("t", 1, idempotency_window_ms=100)
    append(writer, 0, "k")
    writer.time_ms += 500
    writer.append(0)
    writer.time_ms -= 490
    assert append(writer, 0, "k")[1] == AppendCode.OK


def test_a_changed_window_counts_for_keys_from_before() -> None:
    writer = Writer()
    topic = writer.create("t", 1, idempotency_window_ms=100)
    append(writer, 0, "k")
    writer.do(AlterTopic(topic.topic_id, TopicConfig(idempotency_window_ms=10_000)))
    writer.time_ms += 5_000
    assert append(writer, 0, "k") == (0, AppendCode.DUPLICATE)


def test_a_refused_append_leaves_no_key() -> None:
    writer = Writer()
    writer.create("t", 1, cap_records=2, discard="reject")
    assert append(writer, 0, "k", 3) == (-1, AppendCode.FULL)
    assert append(writer, 0, "k", 2) == (0, AppendCode.OK)
    assert append(writer, 0, "k", 2) == (0, AppendCode.DUPLICATE)


def test_keys_go_with_their_topic() -> None:
    writer = Writer()
    topic = writer.create("t", 2)
    writer.create("u")
    for stream in range(3):
        append(writer, stream, "k")
    before = writer.ledger.digest()
    assert len(writer.ledger.idempotency) == 3
    writer.do(DeleteTopic(topic.topic_id))
    assert len(writer.ledger.idempotency) == 1
    assert writer.ledger.digest() != before
    assert append(writer, 2, "k") == (0, AppendCode.DUPLICATE)


def test_the_oldest_keys_give_way_past_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.ledger.idempotency.IDEMPOTENCY_KEYS_MAX", 10)
    writer = Writer()
    writer.create("t")
    for number in range(100):
        append(writer, 0, str(number))
    assert len(writer.ledger.idempotency) == 10
    assert append(writer, 0, "90") == (90, AppendCode.DUPLICATE)
    assert append(writer, 0, "89")[1] == AppendCode.OK


def test_keys_whose_window_is_over_are_pushed_out_by_new_ones() -> None:
    writer = Writer()
    writer.create("t", 1, idempotency_window_ms=10)
    for number in range(1000):
        writer.time_ms += 1
        append(writer, 0, str(number))
    assert len(writer.ledger.idempotency) < 30


def busy_log(seed: int, length: int = 400) -> list[bytes]:
    rng = random.Random(seed)
    writer = Writer()
    writer.create("a", 3, idempotency_window_ms=2_000)
    writer.create("b", 1, cap_records=5, idempotency_window_ms=50)
    writer.create("c", 1, cap_bytes=90, discard="reject")
    for _ in range(length):
        writer.time_ms += rng.choice([0, 1, 30, 700])
        rows, records = [], []
        for _ in range(rng.randrange(1, 9)):
            stream = rng.randrange(5)
            if rng.random() < 0.4:
                rows.append(keyed_row(stream, str(rng.randrange(30)), rng.randrange(1, 4)))
            elif stream == 4 and rng.random() < 0.5:
                rows.append(slice_row(4, 1, flags=SLICE_TRACKED))
                records.append((9, 9))
            else:
                rows.append(slice_row(stream, rng.randrange(1, 4)))
        writer.do(run(*rows, records=records))
    return [entry.encode() for entry in writer.log]


@pytest.mark.parametrize("seed", range(6))
def test_replay_gives_the_same_state_however_entries_are_joined(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DIGEST_EVERY_COMMITS", 64)
    monkeypatch.setattr("mainstem.ledger.idempotency.IDEMPOTENCY_KEYS_MAX", 40)
    entries = busy_log(seed)
    single = Ledger()
    for entry in entries:
        single.apply(Entry.decode(entry))
    assert len(single.idempotency)
    for chunk in (len(entries), 7):
        joined = Ledger()
        for start in range(0, len(entries), chunk):
            apply_all(entries[start : start + chunk], joined)
        assert joined.encode() == single.encode()
        assert joined.last_digest == single.last_digest
    half = Ledger()
    apply_all(entries[:200], half)
    restored = Ledger.decode(half.encode())
    apply_all(entries[200:], restored)
    assert restored.digest() == single.digest()
    assert restored.encode() == single.encode()


def test_many_rows_and_few_rows_are_placed_alike() -> None:
    rows = [keyed_row(0, str(number % 7)) for number in range(40)]
    together, apart = Writer(), Writer()
    together.create("t")
    apart.create("t")
    outcome = together.do(run(*rows))
    singles = [append(apart, 0, str(number % 7)) for number in range(40)]
    assert list(zip(outcome.base.tolist(), outcome.code.tolist(), strict=True)) == singles
    assert together.ledger.digest() == apart.ledger.digest()


def test_an_entry_with_keys_is_not_joined_to_others() -> None:
    writer = Writer()
    writer.create("t")
    append(writer, 0, "k")
    writer.append(0)
    assert [entry.plain for entry in writer.log[-2:]] == [False, True]
    encoded = writer.log[-2].encode()
    assert not int.from_bytes(encoded[2:4], "little") & PLAIN
    assert Entry.decode(encoded).encode() == encoded


def _reloaded(keys: IdempotencyKeys) -> IdempotencyKeys:
    again = IdempotencyKeys()
    again.load(keys.encode())
    return again


def test_the_digest_follows_every_change() -> None:
    keys = IdempotencyKeys()
    windows = np.full(4, 1 << 40, np.int64)
    assert keys.digest == 0
    seen = {0}
    for number in range(200):
        keys.record(number % 3, number, number, 1, number, windows)
        assert keys.digest not in seen
        seen.add(keys.digest)
    again = _reloaded(keys)
    assert again.digest == keys.digest
    again.forget_streams((0, 1, 2))
    assert (again.digest, len(again)) == (0, 0)
    keys.record(0, 0, 5, 1, 300, windows)  # moves to the end
    assert _reloaded(keys).digest == keys.digest
