from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

import pytest
from crc32c import crc32c

from mainstem import limits
from mainstem.broker.append import Appended
from mainstem.broker.broker import Broker
from mainstem.errors import InvalidInput, NotFound, TooLarge
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.cursors import CommitOffsets
from mainstem.ledger.producers import AllocateProducer
from mainstem.ledger.topics import DeleteTopic
from mainstem.ports.commitlog.port import Buffer, Placement
from mainstem.records.building import build_batch
from tests.support.commitlogs import GatedCommitLog
from tests.support.machine import Machine
from tests.support.waiting import settle, until


async def _opened(machine: Machine, **config: object) -> tuple[Broker, GatedCommitLog]:
    """A broker with topic `t`, whose port counts from here on."""
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(**config))  # type: ignore[arg-type]
    assert machine.port is not None
    machine.port.appends.clear()
    return broker, machine.port


@contextlib.asynccontextmanager
async def _held_up(port: GatedCommitLog) -> AsyncIterator[None]:
    """Hold back writes until everything proposed inside is queued."""
    port.append_gate.clear()
    yield
    await settle()
    port.append_gate.set()


def _appends(broker: Broker, count: int, size: int = 10) -> list[asyncio.Task[Appended]]:
    return [
        asyncio.ensure_future(broker.append_values("t", [b"%03d" % number + b"." * size]))
        for number in range(count)
    ]


async def test_appends_during_a_write_share_the_next_commit(machine: Machine) -> None:
    broker, port = await _opened(machine)
    async with _held_up(port):
        first = asyncio.ensure_future(broker.append_values("t", [b"first"]))
        await until(lambda: len(port.appends) == 1)
        rest = _appends(broker, 50)
    assert [one.base_offset for one in await asyncio.gather(first, *rest)] == list(range(51))
    assert port.appends == [1, 50]


async def test_a_single_append_does_not_wait_for_others(machine: Machine) -> None:
    broker, port = await _opened(machine)
    for _ in range(3):
        await broker.append_values("t", [b"x"])
    assert port.appends == [1, 1, 1]


async def test_groups_are_bounded_in_commands(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, port = await _opened(machine)
    monkeypatch.setattr("mainstem.log.write.group.GROUP_COMMIT_COMMANDS_MAX", 10)
    async with _held_up(port):
        tasks = _appends(broker, 35)
    await asyncio.gather(*tasks)
    assert port.appends == [10, 10, 10, 5]


async def test_groups_are_bounded_in_bytes(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, port = await _opened(machine)
    monkeypatch.setattr("mainstem.log.write.group.GROUP_COMMIT_BYTES_MAX", 1500)
    async with _held_up(port):
        tasks = _appends(broker, 20, size=400)
    await asyncio.gather(*tasks)
    assert max(port.appends) == 3  # about 480 bytes each: a fourth would pass the bound
    assert sum(port.appends) == 20


async def test_a_slice_over_the_group_limit_is_committed_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, port = await _opened(machine)
    monkeypatch.setattr("mainstem.log.write.group.GROUP_COMMIT_BYTES_MAX", 1500)
    async with _held_up(port):
        tasks = [
            *_appends(broker, 2, size=400),
            *_appends(broker, 1, size=4000),
            *_appends(broker, 2, size=400),
        ]
    appended = await asyncio.gather(*tasks)
    assert [one.base_offset for one in appended] == list(range(5))
    assert port.appends == [2, 1, 2]


async def test_callers_wait_when_too_much_is_pending(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, port = await _opened(machine)
    monkeypatch.setattr("mainstem.log.write.committer.PENDING_BYTES_MAX", 2000)
    async with _held_up(port):
        tasks = _appends(broker, 40, size=400)
        await settle()
        assert port.appends == [5]  # about 480 bytes each: the fifth reaches the bound
    appended = await asyncio.gather(*tasks)
    assert [one.base_offset for one in appended] == list(range(40))
    assert max(port.appends) <= 5


async def test_a_new_caller_does_not_overtake_waiting_callers(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, port = await _opened(machine)
    monkeypatch.setattr("mainstem.log.write.committer.PENDING_BYTES_MAX", 1000)
    async with _held_up(port):
        tasks = _appends(broker, 12, size=400)
    # One more caller at every turn of the loop: some come just when space was freed for another.
    while not all(task.done() for task in tasks):
        tasks += _appends(broker, 1, size=400) if len(tasks) < 60 else []
        await asyncio.sleep(0)
    appended = await asyncio.gather(*tasks)
    assert [one.base_offset for one in appended] == list(range(len(tasks)))


async def test_cancelling_one_caller_of_a_group_does_not_affect_the_others(machine: Machine) -> None:
    broker, port = await _opened(machine)
    async with _held_up(port):
        tasks = _appends(broker, 5)
        await settle()
        tasks[0].cancel()
        tasks[3].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [getattr(one, "base_offset", None) for one in done] == [None, 1, 2, None, 4]
    assert [record.offset for record in await broker.read("t", 0)] == [0, 1, 2, 3, 4]


async def test_a_caller_cancelled_while_it_waits_writes_nothing_and_blocks_nobody(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, port = await _opened(machine)
    monkeypatch.setattr("mainstem.log.write.committer.PENDING_BYTES_MAX", 400)
    async with _held_up(port):
        tasks = _appends(broker, 8, size=400)
        await settle()
        for cancelled in (1, 2, 5, 7):
            tasks[cancelled].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [getattr(one, "base_offset", None) for one in done] == [0, None, None, 1, 2, None, 3, None]
    values = [(record.value or b"")[:3] for record in await broker.read("t", 0)]
    assert values == [b"000", b"003", b"004", b"006"]


async def test_commands_and_appends_of_one_group_apply_in_the_order_they_came(machine: Machine) -> None:
    broker, port = await _opened(machine)
    info = broker.topic("t")
    async with _held_up(port):
        blocked = asyncio.ensure_future(broker.append_values("t", [b"x"]))
        await until(lambda: len(port.appends) == 1)
        before = asyncio.ensure_future(broker.append_values("t", [b"before"]))
        delete = asyncio.ensure_future(broker.log.propose(DeleteTopic(info.topic_id)))
        after = asyncio.ensure_future(broker.append_values("t", [b"after"]))
    assert (await blocked).base_offset == 0
    assert (await before).base_offset == 1
    await delete
    with pytest.raises(NotFound):
        await after
    assert port.appends == [1, 2]


async def test_sync_returns_during_continuous_appends(machine: Machine) -> None:
    broker, port = await _opened(machine, durability="disk")
    tasks = []
    syncing: asyncio.Task[None] | None = None
    give_up_at = time.monotonic() + 30
    while time.monotonic() < give_up_at and (syncing is None or not syncing.done()):
        tasks += _appends(broker, 1)
        if len(tasks) == 100:
            wanted = port.end
            syncing = asyncio.ensure_future(broker.log.sync())
        await asyncio.sleep(0)
    assert syncing is not None
    assert syncing.done()
    assert port.synced >= wanted
    await asyncio.gather(*tasks)


async def test_a_group_too_large_for_an_entry_is_refused_and_writes_continue(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, _ = await _opened(machine)
    stream = broker.topic("t").streams[0]
    monkeypatch.setattr(limits, "ENTRY_BYTES_MAX", 2000)
    with pytest.raises(TooLarge):
        await broker.log.propose(CommitOffsets("g", tuple((stream, i, "m" * 1000) for i in range(5))))
    assert (await broker.append_values("t", [b"goes on"])).base_offset == 0


async def test_record_rows_count_towards_the_bound_of_a_group(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small compressed batch still brings one row a record: many of them must not fill one entry."""
    broker, port = await _opened(machine, ttl_ms=1_000_000)
    monkeypatch.setattr("mainstem.log.write.group.GROUP_COMMIT_BYTES_MAX", 10_000)
    monkeypatch.setattr(limits, "ENTRY_BYTES_MAX", 40_000)
    small = build_batch([b""] * 500, timestamps_ms=1, codec="zstd")
    assert len(small) < 1000
    async with _held_up(port):
        tasks = [asyncio.ensure_future(broker.append("t", bytearray(small))) for _ in range(40)]
    assert [one.base_offset for one in await asyncio.gather(*tasks)] == list(range(0, 20_000, 500))


async def test_results_of_commands_come_back_to_their_own_callers(machine: Machine) -> None:
    broker, port = await _opened(machine)
    async with _held_up(port):
        tasks = [asyncio.ensure_future(broker.log.propose(AllocateProducer())) for _ in range(20)]
    assert [one.producer for one in await asyncio.gather(*tasks)] == list(range(20))


@pytest.mark.parametrize("metadata", ["\ud800", "fine"])
async def test_a_command_that_cannot_be_stored_fails_alone(machine: Machine, metadata: str) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    offset = 2**70 if metadata == "fine" else 1
    with pytest.raises(InvalidInput):
        await broker.commit_offset("g", "t", offset, metadata=metadata)
    assert (await broker.append_values("t", [b"0"])).base_offset == 0
    assert broker.committed("g", "t") is None


async def test_the_payload_checksum_is_combined_from_the_checksums_of_large_slices(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CRC_JOINED_BYTES_MIN", 1000)
    broker, port = await _opened(machine)
    written: list[tuple[bytes, int | None]] = []
    append = port.inner.append

    async def noted(entry: Buffer, slices: Sequence[Buffer], crc: int | None = None) -> Placement:
        written.append((b"".join(slices), crc))
        return await append(entry, slices, crc)

    monkeypatch.setattr(port.inner, "append", noted)
    async with _held_up(port):
        waiting = [asyncio.ensure_future(broker.append_values("t", [b"small"]))]
        await until(lambda: len(port.appends) == 1)
        waiting += _appends(broker, 3, size=2000)
    await asyncio.gather(*waiting)
    (_, unknown), (payload, crc) = written
    assert unknown is None
    assert len(payload) > 6000
    assert crc == crc32c(payload)
