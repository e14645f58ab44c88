"""Shares against a model that keeps one row a record: who has it, how often it was handed out, whether it is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import (
    InvalidInput,
    LimitReached,
    MainstemError,
    RecordNotHeld,
    ShareNotFound,
    StreamNotFound,
)
from mainstem.ledger.brokers import Boot
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.entry import Entry
from mainstem.ledger.group_settings import ALL_GROUPS, GROUP_SETTINGS_MAX, AlterGroupSettings
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.shares import (
    AcquireShare,
    DeleteShare,
    OpenShare,
    SettleShare,
    ShareAcquired,
    ShareSettled,
    Verdict,
)
from mainstem.ledger.streams import DeleteRecords, Trim
from mainstem.ledger.topics import CreateTopic, DeleteTopic

from .writer import run, slice_row

_TOPIC = bytes(16)
_LOCK_MS = 1000
_MOST = 3  # deliveries
_ROOM = 8  # records in flight


class _Log:
    """A ledger with one stream, one part an entry."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.now = 1
        self._commits = 0
        self.ledger.apply(Entry(1, 0, 0, 1, [Boot(1, "boot", False)]))
        self(CreateTopic("t", _TOPIC, 1, TopicConfig()))

    def __call__(self, part: Any) -> Any:
        self._commits += 1
        (outcome,) = self.ledger.apply(
            Entry.decode(Entry(1, self.epoch, self._commits, self.now, [part]).encode())
        )
        return outcome

    @property
    def epoch(self) -> int:
        return 1

    def append(self, count: int) -> None:
        self(run(slice_row(0, count)))

    def acquire(
        self, member: str, limit: int = 100, first: int = 0, end: int | None = None, group: str = "g"
    ) -> Any:
        end = int(self.ledger.streams.end[0]) if end is None else end
        return self(AcquireShare(group, 0, member, 1, limit, first, end, _LOCK_MS, _MOST, _ROOM))

    def settle(self, member: str, *ranges: tuple[int, int, Verdict], group: str = "g") -> Any:
        rows = tuple((first, end, int(kind)) for first, end, kind in ranges)
        return self(SettleShare(group, 0, member, rows, _LOCK_MS, _MOST))

    def share(self) -> Any:
        return self.ledger.shares.get("g", 0)


@pytest.fixture
def log() -> _Log:
    log = _Log()
    log.append(20)
    assert log(OpenShare("g", ((0, 0),))).shares == 1
    return log


def _runs(outcome: Any) -> list[tuple[int, int, int]]:
    assert isinstance(outcome, ShareAcquired), outcome
    return list(outcome.runs)


def test_each_record_is_one_members_and_accepted_ones_are_gone(log: _Log) -> None:
    assert _runs(log.acquire("a", 3)) == [(0, 3, 1)]
    assert _runs(log.acquire("b", 3)) == [(3, 6, 1)]
    assert isinstance(log.settle("a", (0, 2, Verdict.ACCEPT)), ShareSettled)
    assert isinstance(log.settle("a", (1, 3, Verdict.ACCEPT)), RecordNotHeld)  # 1 is settled: nothing changes
    assert isinstance(log.settle("b", (2, 3, Verdict.ACCEPT)), RecordNotHeld)  # another has it
    assert log.share().start == 2
    log.settle("b", (4, 5, Verdict.ACCEPT), (5, 6, Verdict.RELEASE))
    assert log.share().start == 2
    assert _runs(log.acquire("c", 2)) == [(5, 6, 2), (6, 7, 1)]
    log.settle("a", (2, 3, Verdict.REJECT))
    assert log.share().start == 3


def test_a_group_knows_nothing_of_another(log: _Log) -> None:
    log(OpenShare("h", ((0, 5),)))
    log.settle("a", *[(first, end, Verdict.ACCEPT) for first, end, _ in _runs(log.acquire("a", 4))])
    assert _runs(log.acquire("a", 2, group="h")) == [(5, 7, 1)]
    assert isinstance(log.acquire("a", group="other"), ShareNotFound)
    assert isinstance(log.settle("a", group="other"), ShareNotFound)


def test_locks_run_out_by_ledger_time_and_renewing_puts_that_off(log: _Log) -> None:
    log.acquire("a", 2)
    log.now += _LOCK_MS
    assert log.settle("a", (1, 2, Verdict.RENEW)).counts[Verdict.RENEW] == 1
    log.now += 1
    assert _runs(log.acquire("b", 1)) == [(0, 1, 2)]
    assert isinstance(log.settle("a", (0, 1, Verdict.ACCEPT)), RecordNotHeld)
    assert isinstance(log.settle("a", (1, 2, Verdict.ACCEPT)), ShareSettled)


def test_a_record_handed_out_too_often_is_given_up(log: _Log) -> None:
    for delivery in range(1, _MOST):
        assert _runs(log.acquire("a", 1)) == [(0, 1, delivery)]
        log.settle("a", (0, 1, Verdict.RELEASE))
    assert _runs(log.acquire("a", 1)) == [(0, 1, _MOST)]
    assert log.settle("a", (0, 1, Verdict.RELEASE)).archived == 1
    assert log.share().start == 1
    for _ in range(_MOST):
        _runs(log.acquire("a", 1))
        log.now += _LOCK_MS + 1
    outcome = log.acquire("a", 1)
    assert (_runs(outcome), outcome.archived) == ([(2, 3, 1)], 1)
    assert log.share().archived == 2


def test_only_what_was_read_is_handed_out(log: _Log) -> None:
    log.acquire("a", 6)
    log.settle("a", (1, 2, Verdict.RELEASE), (4, 5, Verdict.RELEASE))
    assert _runs(log.acquire("b", 2, first=4)) == [(4, 5, 2), (6, 7, 1)]
    assert _runs(log.acquire("b", first=0, end=3)) == [(1, 2, 2)]
    assert _runs(log.acquire("b", first=12)) == []  # those between were never handed out


def test_no_more_than_so_many_are_in_flight(log: _Log) -> None:
    assert _runs(log.acquire("a")) == [(0, _ROOM, 1)]
    assert _runs(log.acquire("b")) == []
    log.settle("a", (3, 5, Verdict.ACCEPT), (7, 8, Verdict.RELEASE))
    assert _runs(log.acquire("b")) == [(7, 8, 2), (8, 10, 1)]


def test_records_that_leave_the_stream_leave_the_share(log: _Log) -> None:
    log.acquire("a", 6)
    log(DeleteRecords(0, ((2, 4), (8, 10)), 0))
    log.settle("a", (0, 6, Verdict.RELEASE))
    assert _runs(log.acquire("b")) == [(0, 2, 2), (4, 6, 2), (6, 8, 1)]
    assert _runs(log.acquire("b")) == [(10, 12, 1)]
    log(Trim(0, 11, "delete"))
    assert isinstance(log.settle("b", (0, 2, Verdict.ACCEPT)), RecordNotHeld)
    assert log.share().start == 11
    assert isinstance(log.settle("b", (11, 12, Verdict.ACCEPT)), ShareSettled)
    assert log.share().start == 12


def test_gaps_are_taken_as_said_and_bounded(log: _Log) -> None:
    log(DeleteRecords(0, ((2, 4),), 0))
    assert _runs(log.acquire("a", 4)) == [(0, 2, 1), (4, 6, 1)]
    log.settle("a", (0, 2, Verdict.ACCEPT), (2, 4, Verdict.GAP), (4, 6, Verdict.GAP))
    assert log.share().start == 6
    assert isinstance(log.settle("a", (0, 1 << 62, Verdict.GAP)), RecordNotHeld)
    assert isinstance(log.settle("a", (5, 5, Verdict.GAP)), RecordNotHeld)
    assert isinstance(log(SettleShare("g", 0, "a", ((6, 7, 9),))), InvalidInput)


def test_commands_that_make_no_sense_are_refused(log: _Log) -> None:
    assert isinstance(log(OpenShare("", ((0, 0),))), InvalidInput)
    assert isinstance(log(OpenShare("g", ((0, -1),))), InvalidInput)
    assert isinstance(log(OpenShare("g", ((9, 0),))), StreamNotFound)
    assert isinstance(log.acquire("a", 0), InvalidInput)
    assert isinstance(log.acquire("a", end=21), InvalidInput)
    assert isinstance(log.acquire("a", first=9, end=8), InvalidInput)
    assert isinstance(log.acquire("a", first=-1), InvalidInput)
    assert isinstance(log(AcquireShare("g", 0, "a", 1, 1, 0, 20, 1, _MOST, _ROOM)), InvalidInput)
    assert isinstance(log(AcquireShare("g", 0, "a", 1, 1, 0, 20, _LOCK_MS, 0, _ROOM)), InvalidInput)
    too_many = tuple((f"name{number}", "v") for number in range(GROUP_SETTINGS_MAX + 1))
    assert isinstance(log(AlterGroupSettings("g", too_many)), LimitReached)


def test_a_share_opens_once_moves_when_told_and_goes_with_its_topic(log: _Log) -> None:
    empty = Ledger().shares.digest
    log.acquire("a", 3)
    assert log(OpenShare("g", ((0, 9),))).shares == 0
    assert log(OpenShare("g", ((0, 9),), reset=True)).shares == 1
    assert _runs(log.acquire("a", 1)) == [(9, 10, 1)]
    assert log(DeleteShare("g")).shares == 1
    assert log(DeleteShare("g")).shares == 0
    assert log.ledger.shares.digest == empty
    log(OpenShare("g", ((0, 0),)))
    log(DeleteTopic(_TOPIC))
    assert not log.ledger.shares.has("g")


def test_settings_of_groups_are_kept(log: _Log) -> None:
    before = log.ledger.digest()
    log(AlterGroupSettings("g", (("a", "1"), ("b", "2"))))
    log(AlterGroupSettings("g", (("b", "3"),), ("a",)))
    again = Ledger.decode(log.ledger.encode())
    assert again.group_settings.get("g") == {"b": "3"}
    assert again.digest() == log.ledger.digest() != before
    log(AlterGroupSettings("g", (), ("b",)))
    assert log.ledger.digest() == before
    assert log.ledger.group_settings.groups() == []


def test_defaults_of_all_groups_hold_where_a_group_has_no_setting(log: _Log) -> None:
    log(AlterGroupSettings(ALL_GROUPS, (("a", "1"), ("b", "2"))))
    log(AlterGroupSettings("g", (("b", "3"),)))
    settings = log.ledger.group_settings
    assert settings.effective("g") == {"a": "1", "b": "3"}
    assert settings.effective("other") == {"a": "1", "b": "2"}
    assert settings.groups() == ["g"]


# Against a model


@dataclass
class _Row:
    deliveries: int = 0
    holder: str = ""
    deadline: int = 0
    done: bool = False


class _Model:
    def __init__(self, records: int) -> None:
        self.rows = [_Row() for _ in range(records)]
        self.accepted: list[int] = []

    def expire(self, now: int) -> None:
        for row in self.rows:
            if row.holder and row.deadline < now:
                row.holder = ""

    def acquire(self, member: str, limit: int, first: int, end: int, now: int) -> list[int]:
        self.expire(now)
        taken: list[int] = []
        released = [row for row in self.rows if row.deliveries and not row.holder and not row.done]
        room = max(_ROOM - len(released) - sum(bool(row.holder) for row in self.rows), 0)
        if any(not row.deliveries for row in self.rows[:first]):
            room = 0
        for fresh in (False, True):
            for offset, row in enumerate(self.rows[first:end], first):
                if row.done or row.holder or (row.deliveries == 0) != fresh or len(taken) >= limit:
                    continue
                if row.deliveries >= _MOST:
                    row.done = True
                    continue
                if fresh and room <= 0:
                    break
                room -= fresh
                row.deliveries += 1
                row.holder, row.deadline = member, now + _LOCK_MS
                taken.append(offset)
        return sorted(taken)

    def settle(self, member: str, first: int, end: int, kind: Verdict, now: int) -> bool:
        self.expire(now)
        rows = self.rows[first:end]
        if any(row.holder != member for row in rows):
            return False
        for offset, row in enumerate(rows, first):
            if kind is Verdict.RENEW:
                row.deadline = now + _LOCK_MS
                continue
            row.holder = ""
            row.done = kind in (Verdict.ACCEPT, Verdict.REJECT) or row.deliveries >= _MOST
            if kind is Verdict.ACCEPT:
                self.accepted.append(offset)
        return True

    @property
    def start(self) -> int:
        return next((at for at, row in enumerate(self.rows) if not row.done), len(self.rows))


_STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("acquire"),
            st.sampled_from("ab"),
            st.integers(1, 6),
            st.integers(0, 12),
            st.integers(0, 24),
        ),
        st.tuples(
            st.just("settle"),
            st.sampled_from("ab"),
            st.integers(0, 23),
            st.integers(1, 4),
            st.sampled_from([Verdict.ACCEPT, Verdict.RELEASE, Verdict.REJECT, Verdict.RENEW]),
        ),
        st.tuples(st.just("wait"), st.sampled_from([1, 400, _LOCK_MS + 1])),
        st.tuples(st.just("checkpoint")),
    ),
    max_size=60,
)


@settings(max_examples=80, deadline=None)
@given(_STEPS)
def test_every_record_is_held_once_accepted_once_and_never_handed_out_after(
    steps: list[tuple[Any, ...]],
) -> None:
    log = _Log()
    log.append(24)
    log(OpenShare("g", ((0, 0),)))
    model = _Model(24)
    for step in steps:
        match step:
            case ("acquire", member, limit, first, length):
                end = min(first + length, 24)
                got = [
                    at
                    for first, last, _ in _runs(log.acquire(member, limit, first, end))
                    for at in range(first, last)
                ]
                assert got == model.acquire(member, limit, first, end, log.now)
            case ("settle", member, first, length, kind):
                end = min(first + length, 24)
                outcome = log.settle(member, (first, end, kind))
                assert isinstance(outcome, MainstemError) != model.settle(member, first, end, kind, log.now)
            case ("wait", ms):
                log.now += ms
            case _:
                log.ledger = Ledger.decode(log.ledger.encode())
        share = log.share()
        if step[0] in ("acquire", "settle"):
            assert share.start == model.start
            assert share.leases.leased == sum(bool(row.holder) for row in model.rows)
    assert len(model.accepted) == len(set(model.accepted))
