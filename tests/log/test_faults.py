"""A full or failing disk: what callers get, what readers still get, and what a restart finds."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from mainstem.broker.broker import Broker
from mainstem.errors import Closed, MainstemError, NoSpace, ReadOnly, RecordsLost
from mainstem.ledger.config import TopicConfig
from tests.support.commitlogs import GatedCommitLog
from tests.support.history import scan
from tests.support.machine import Machine
from tests.support.tiers import TieredMachine
from tests.support.waiting import settle, until


async def _opened(machine: Machine, **config: object) -> tuple[Broker, GatedCommitLog]:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(**config))  # type: ignore[arg-type]
    assert machine.port is not None
    return broker, machine.port


@pytest.mark.parametrize("durability", ["fsync", "disk"])
async def test_a_full_disk_refuses_writes_and_serves_reads(machine: Machine, durability: str) -> None:
    broker, _ = await _opened(machine, durability=durability)
    await broker.append_values("t", [b"0"])
    await broker.log.sync()
    machine.files.no_space_after(40)
    for _ in range(3):
        with pytest.raises(NoSpace):
            await broker.append_values("t", [b"refused" * 20])
    with pytest.raises(NoSpace):
        await broker.create_topic("u")
    assert broker.partition("t").end == 1
    assert [record.value for record in await broker.read("t", 0)] == [b"0"]
    machine.files.space_returns()
    assert (await broker.append_values("t", [b"1"])).base_offset == 1
    await machine.kill()
    assert await scan(await machine.open(), "t") == ({0: b"0", 1: b"1"}, [])


async def test_every_caller_of_a_commit_group_that_did_not_fit_gets_an_error(machine: Machine) -> None:
    broker, port = await _opened(machine)
    port.append_gate.clear()
    tasks = [asyncio.ensure_future(broker.append_values("t", [b"x" * 50])) for _ in range(10)]
    await settle()
    machine.files.no_space_after(100)
    port.append_gate.set()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(one, NoSpace) for one in done)
    machine.files.space_returns()
    assert (await broker.append_values("t", [b"first"])).base_offset == 0


async def test_a_full_disk_never_exposes_a_partial_write(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    acked: dict[int, bytes] = {}
    for room in range(0, 9000, 150):
        machine.files.no_space_after(room)
        try:
            while True:
                value = b"%d.%d" % (room, len(acked)) + b"." * 90
                acked[(await broker.append_values("t", [value])).base_offset] = value
        except NoSpace:
            machine.files.space_returns()
        assert broker.partition("t").end == len(acked)
    assert await scan(broker, "t") == (acked, [])
    await machine.lose_power("lost")
    assert await scan(await machine.open(), "t") == (acked, [])


async def test_a_relaxed_topic_recovers_from_a_ceiling_that_could_not_be_written(machine: Machine) -> None:
    broker, port = await _opened(machine, durability="disk")
    port.append_errors += [NoSpace("full")]
    with pytest.raises(NoSpace):
        await broker.append_values("t", [b"refused"])
    port.append_gate.clear()
    first = asyncio.ensure_future(broker.append_values("t", [b"0"]))
    await until(lambda: len(port.appends) > 0)
    port.append_gate.set()
    port.append_errors.clear()
    assert (await first).base_offset == 0
    for number in range(1, 5):
        assert (await asyncio.wait_for(broker.append_values("t", [b"x"]), 30)).base_offset == number


async def test_a_close_on_a_full_disk_says_so_and_the_next_start_finds_everything(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    for number in range(10):
        await broker.append_values("t", [b"%d" % number])
    machine.files.no_space_after(10)
    with pytest.raises(NoSpace):
        await machine.close()
    machine.files.space_returns()
    broker = await machine.open()
    assert len((await scan(broker, "t"))[0]) == 10


@pytest.mark.parametrize("room", range(100, 3000, 200))
async def test_the_next_start_works_after_the_disk_fills_up_during_a_close(
    machine: Machine, room: int
) -> None:
    """Halt, seal and checkpoint each need space: any of them may be the one that finds none."""
    broker, _ = await _opened(machine)
    for number in range(10):
        await broker.append_values("t", [b"%d" % number])
    machine.files.no_space_after(room)
    with contextlib.suppress(NoSpace):
        await machine.close()
    machine.files.space_returns()
    broker = await machine.open()
    assert len((await scan(broker, "t"))[0]) == 10
    broker = await machine.restart()
    assert len((await scan(broker, "t"))[0]) == 10


async def test_offsets_read_before_a_failed_fsync_are_not_reused_on_the_same_boot(
    machine: Machine,
) -> None:
    broker, _ = await _opened(machine, durability="disk")
    await broker.append_values("t", [b"0"])
    await broker.log.sync()
    seen = (await broker.append_values("t", [b"seen"])).base_offset
    assert [record.value for record in await broker.read("t", seen)] == [b"seen"]
    machine.files.fail_next_fdatasync()
    with pytest.raises(ReadOnly):
        await broker.log.sync()
    await machine.drop_pages()
    broker = await machine.open()
    assert (await broker.append_values("t", [b"later"])).base_offset > seen
    with pytest.raises(RecordsLost) as loss:
        await broker.read("t", seen)
    assert loss.value.start == seen
    end = broker.partition("t").end
    await machine.kill()
    assert (await machine.open()).partition("t").end == end  # it jumps once, not at every start


async def test_a_failed_fsync_makes_the_broker_read_only_and_fails_waiting_writes(
    machine: Machine,
) -> None:
    broker, port = await _opened(machine)
    await broker.append_values("t", [b"0"])
    await broker.log.sync()
    await port.hold_syncs()
    waiting = [asyncio.ensure_future(broker.append_values("t", [b"%d" % number])) for number in (1, 2)]
    command = asyncio.ensure_future(broker.create_topic("u"))
    await until(lambda: broker.log.ledger.streams.end[0] == 3)
    machine.files.fail_next_fdatasync()
    port.sync_gate.set()
    for task in (*waiting, command):
        with pytest.raises(ReadOnly):
            await task
    for _ in range(2):
        with pytest.raises(ReadOnly):
            await broker.append_values("t", [b"x"])
        with pytest.raises(ReadOnly):
            await broker.create_topic("v")
        with pytest.raises(ReadOnly):
            await broker.log.sync()
    assert isinstance(broker.log.refusal, ReadOnly)
    assert broker.partition("t").end == 1
    assert [record.value for record in await broker.read("t", 0)] == [b"0"]


async def test_a_failed_fsync_is_never_retried(machine: Machine) -> None:
    broker, port = await _opened(machine)
    machine.files.fail_next_fdatasync()
    with pytest.raises(ReadOnly):
        await broker.append_values("t", [b"0"])
    calls = machine.files.calls
    for _ in range(5):
        with pytest.raises(ReadOnly):
            await broker.append_values("t", [b"0"])
    await settle()
    assert machine.files.calls == calls
    assert port.synced < port.end


async def test_a_restart_after_a_failed_fsync_finds_all_that_was_acked(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    for number in range(5):
        await broker.append_values("t", [b"%d" % number])
    machine.files.fail_next_fdatasync()
    with pytest.raises(ReadOnly):
        await broker.append_values("t", [b"unknown"])
    await machine.lose_power("lost")
    broker = await machine.open()
    values, lost = await scan(broker, "t")
    assert lost == []
    assert [values[number] for number in range(5)] == [b"%d" % number for number in range(5)]
    assert (await broker.append_values("t", [b"next"])).base_offset >= 5


async def test_a_read_only_broker_closes(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    machine.files.fail_next_fdatasync()
    with pytest.raises(ReadOnly):
        await broker.append_values("t", [b"0"])
    await machine.close()
    await machine.open()


async def test_an_unknown_failure_of_a_write_publishes_nothing_and_stops_writing(machine: Machine) -> None:
    broker, port = await _opened(machine, durability="disk")
    await broker.append_values("t", [b"0"])
    port.append_errors.append(OSError("something else"))
    with pytest.raises(OSError, match="something else"):
        await broker.append_values("t", [b"1"])
    with pytest.raises(ReadOnly, match="something else"):
        await broker.append_values("t", [b"2"])
    assert [record.value for record in await broker.read("t", 0)] == [b"0"]


async def test_callers_that_wait_when_the_broker_closes_are_answered_or_refused(machine: Machine) -> None:
    broker, port = await _opened(machine)
    port.append_gate.clear()
    tasks = [asyncio.ensure_future(broker.append_values("t", [b"%d" % number])) for number in range(5)]
    await settle()
    closing = asyncio.ensure_future(machine.close())
    await settle()
    late = [asyncio.ensure_future(broker.append_values("t", [b"late"])) for _ in range(3)]
    await settle()
    port.append_gate.set()
    await closing
    assert [one.base_offset for one in await asyncio.gather(*tasks)] == [0, 1, 2, 3, 4]
    for refused in await asyncio.gather(*late, return_exceptions=True):
        assert isinstance(refused, MainstemError)
    with pytest.raises(Closed):
        await broker.append_values("t", [b"after"])
    broker = await machine.open()
    assert len((await scan(broker, "t"))[0]) == 5


async def test_a_start_that_fails_leaves_nothing_running(machine: Machine) -> None:
    await _opened(machine)
    await machine.kill()
    machine.files.fail_next_fdatasync()
    before = len(asyncio.all_tasks())
    with pytest.raises(OSError, match="input/output"):
        await machine.open()
    assert len(asyncio.all_tasks()) == before
    machine.files.space_returns()
    await machine.open()


async def test_a_start_on_a_full_disk_serves_reads_and_writes_once_there_is_space(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    await broker.append_values("t", [b"0"])
    await machine.kill()
    machine.files.no_space_after(0)
    broker = await machine.open()
    assert [record.value for record in await broker.read("t", 0)] == [b"0"]
    with pytest.raises(NoSpace):
        await broker.append_values("t", [b"refused"])
    with pytest.raises(NoSpace):
        await broker.create_topic("u")
    machine.files.space_returns()
    await until(lambda: broker.log.refusal is None)
    assert (await broker.append_values("t", [b"1"])).base_offset == 1
    await machine.kill()
    assert await scan(await machine.open(), "t") == ({0: b"0", 1: b"1"}, [])


def _shortage(broker: Broker) -> type:
    return type(broker.log.unwritable)


async def test_a_full_disk_shows_until_a_write_of_the_refused_size_succeeds(machine: Machine) -> None:
    broker, _ = await _opened(machine)
    await broker.append_values("t", [b"0"])
    assert _shortage(broker) is type(None)
    machine.files.no_space_after(0)
    with pytest.raises(NoSpace):
        await broker.append_values("t", [b"1" * 1000])
    assert _shortage(broker) is NoSpace
    assert broker.log.refusal is None  # writes are tried on
    machine.files.space_returns()
    await broker.append_values("t", [b"small"])
    assert _shortage(broker) is NoSpace
    await broker.append_values("t", [b"1" * 1000])
    assert _shortage(broker) is type(None)


async def test_a_full_disk_is_probed_until_there_is_space_even_if_nobody_writes() -> None:
    machine = TieredMachine()  # its port has the files of the machine, and nothing between
    broker = await machine.open()
    await broker.create_topic("t")
    machine.files.no_space_after(0)
    with pytest.raises(NoSpace):
        await broker.append_values("t", [b"1" * 1000])
    assert _shortage(broker) is NoSpace
    machine.files.space_returns()
    await until(lambda: broker.log.unwritable is None)
    await machine.close()


async def test_a_start_on_a_full_disk_after_a_power_loss_reuses_no_offset(machine: Machine) -> None:
    broker, _ = await _opened(machine, durability="disk")
    await broker.append_values("t", [b"seen"])
    await machine.lose_power("lost")
    machine.files.no_space_after(0)
    broker = await machine.open()
    await machine.kill()  # before there was space
    machine.files.space_returns()
    broker = await machine.open()
    assert (await broker.append_values("t", [b"later"])).base_offset > 0
