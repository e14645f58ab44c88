from __future__ import annotations

import asyncio
import struct
import sys
from pathlib import Path

import psutil
import pytest

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import OlderVersion, StorageError
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.streams import DeleteRecords
from mainstem.log.objects.checkpoints import ChildCheckpointer
from mainstem.log.recovery import recover
from mainstem.ports.commitlog.local.checkpoints import LocalCheckpoints
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.files import OsFiles
from tests.support.batches import produced
from tests.support.history import scan
from tests.support.machine import DIRECTORY, Machine
from tests.support.waiting import finished, until


async def _work(broker: Broker, *, waiting: bool = False) -> None:
    """A bit of everything that the state holds. `waiting`: a checkpoint is made at the end of every object."""
    await broker.create_topic("t", partitions=2)
    await broker.create_topic("relaxed", config=TopicConfig(durability="disk"))
    await broker.create_topic("capped", config=TopicConfig(cap_records=7))
    await broker.create_topic("aging", config=TopicConfig(ttl_ms=1000))
    await broker.create_topic("gone")
    for number in range(30):
        await broker.append_values("t", [b"%d" % number + b"." * 100], partition=number % 2)
        await broker.append("relaxed", produced(9, number, b"p%d" % number))
        await broker.append_values("capped", [b"c"])
        await broker.append_values("aging", [b"a"])
        await broker.append_values("gone", [b"g"])
        if waiting:
            await finished(broker)
    await broker.delete_topic("gone")
    await broker.trim("t", 3)
    await broker.log.propose(DeleteRecords(broker.topic("t").streams[1], ((5, 7),)))
    await broker.commit_offset("group", "t", 4)
    await broker.take("t", "takers", limit=3)


async def test_a_child_process_makes_the_checkpoint_the_broker_would_have_made(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path, segment_bytes=4096, checkpoint_every_bytes=1 << 40))
    await _work(broker)
    await broker.close()
    for path in (tmp_path / "checkpoints").iterdir():
        path.unlink()
    port = await LocalCommitLog.open(tmp_path)
    live = (await recover(port)).ledger
    await port.close()
    checkpoints = ChildCheckpointer(tmp_path)
    checkpoints.reached(live)
    assert await checkpoints.save() == live.position
    port = await LocalCommitLog.open(tmp_path)
    stored = port.load_checkpoint()
    await port.close()
    assert stored is not None
    assert stored.position == live.position
    made = Ledger.decode(stored.state)
    assert made.digest() == live.digest()
    assert made.encode() == live.encode()


async def test_the_child_continues_from_the_last_checkpoint_beside_a_running_broker(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path, segment_bytes=4096, checkpoint_every_bytes=1 << 14))
    await _work(broker)
    for _ in range(3):
        before = _newest(tmp_path)
        while _newest(tmp_path) == before:
            await broker.append_values("t", [b"." * 200] * 10)
            await asyncio.sleep(0)
    before_stop = await _everything(broker)
    await broker.close()
    broker = await Broker.open(BrokerOptions(tmp_path, segment_bytes=4096))
    assert await _everything(broker) == before_stop
    await broker.close()


def _newest(directory: Path) -> int:
    names = [path.stem for path in (directory / "checkpoints").glob("*.ckpt")]
    return max(map(int, names), default=0)


async def test_a_child_that_fails_says_why_and_leaves_no_file(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path, segment_bytes=4096))
    await broker.close()
    before = sorted((tmp_path / "checkpoints").iterdir())
    checkpoints = ChildCheckpointer(tmp_path)
    ledger = Ledger()
    ledger.position = 10_000
    checkpoints.reached(ledger)
    with pytest.raises(StorageError, match="10000"):
        await checkpoints.save()
    assert sorted((tmp_path / "checkpoints").iterdir()) == before


async def test_a_killed_child_leaves_a_directory_that_opens(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path, segment_bytes=4096))
    await _work(broker)
    await broker.close()
    position = _newest(tmp_path)
    for path in (tmp_path / "checkpoints").iterdir():
        path.unlink()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mainstem.log.objects.checkpointer", str(tmp_path), str(position)
    )
    child.kill()
    await child.wait()
    (tmp_path / "checkpoints" / f"{position:020d}.ckpt.tmp").write_bytes(b"half")
    broker = await Broker.open(BrokerOptions(tmp_path, segment_bytes=4096))
    assert len((await scan(broker, "relaxed"))[0]) == 30
    await broker.close()
    assert not list((tmp_path / "checkpoints").glob("*.tmp"))


async def test_a_child_that_nobody_waits_for_is_killed(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path, segment_bytes=4096))
    await _work(broker)
    await broker.close()
    checkpoints = ChildCheckpointer(tmp_path)
    saving = asyncio.ensure_future(checkpoints.save())
    await asyncio.sleep(0)
    (child,) = (
        one for one in psutil.Process().children() if "mainstem.log.objects.checkpointer" in one.cmdline()
    )
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert not child.is_running()


async def test_a_restart_replays_only_what_follows_the_checkpoint(machine: Machine) -> None:
    broker = await machine.open()
    await _work(broker, waiting=True)
    await finished(broker)
    await machine.kill()
    port = await machine.open_port()
    recovered = await recover(port)
    replayed = port.end - recovered.checkpoint_position
    assert recovered.checkpoint_position > 0
    assert replayed < port.end / 2
    newest = max(object.first_position for object in port.objects())
    behind = [object for object in port.objects() if object.end_position > recovered.checkpoint_position]
    assert recovered.checkpoint_position <= newest
    assert len(behind) <= 3
    await port.close()


async def test_a_clean_stop_leaves_nothing_to_replay(machine: Machine) -> None:
    broker = await machine.open()
    await _work(broker)
    await machine.close()
    port = await machine.open_port()
    recovered = await recover(port)
    digest = recovered.ledger.digest()
    assert recovered.checkpoint_position == port.end == recovered.ledger.position
    await port.close()
    port = await machine.open_port()
    assert (await recover(port)).ledger.digest() == digest
    await port.close()


async def test_a_damaged_newest_checkpoint_falls_back_to_the_older_one(machine: Machine) -> None:
    broker = await machine.open()
    await _work(broker, waiting=True)
    before = await _everything(broker)
    await machine.close()
    folder = DIRECTORY / "checkpoints"
    names = machine.files.listdir(folder)
    assert len(names) == 2
    machine.files.flip_bit(folder / names[-1], 100, 3)
    broker = await machine.open()
    assert await _everything(broker) == before


async def test_the_older_checkpoint_still_works_after_everything_was_truncated_and_collected(
    machine: Machine,
) -> None:
    """The older checkpoint may need more than the newest: both must work."""
    broker = await machine.open()
    await broker.create_topic("t")
    assert machine.port is not None
    for _ in range(6):
        for _ in range(20):
            await broker.append_values("t", [b"." * 200])
            await finished(broker)
        await broker.trim("t", broker.partition("t").end - 2)
    port = machine.port
    await until(lambda: port.objects()[0].number > 3)
    await broker.commit_offset("g", "t", 7)
    before = await _everything(broker)
    await machine.close()
    folder = DIRECTORY / "checkpoints"
    machine.files.flip_bit(folder / machine.files.listdir(folder)[-1], 100, 3)
    broker = await machine.open()
    assert await _everything(broker) == before
    assert broker.committed("g", "t") == 7


async def _everything(broker: Broker) -> dict[str, object]:
    return {info.name: (info, await scan(broker, info.name)) for info in broker.topics()}


async def test_commands_alone_make_a_checkpoint_due(machine: Machine) -> None:
    """Else a broker that only commits offsets would replay all of them."""
    broker = await machine.open()
    await broker.create_topic("t")
    for number in range(400):
        await broker.commit_offset("g", "t", number, metadata="m" * 50)
    await finished(broker)
    await machine.kill()
    port = await machine.open_port()
    assert (await recover(port)).checkpoint_position > 0
    await port.close()


async def test_work_before_a_crash_counts_towards_the_next_checkpoint() -> None:
    machine = Machine(checkpoint_every_bytes=20_000)
    broker = await machine.open()
    await broker.create_topic("t")
    for _ in range(8):
        for _ in range(12):
            await broker.append_values("t", [b"." * 300])  # less than one checkpoint interval in each run
        log = broker.log
        await until(lambda: log.background.idle)  # noqa: B023
        await machine.kill()
        broker = await machine.open()
    await machine.kill()
    port = await machine.open_port()
    assert (await recover(port)).checkpoint_position > 0
    await port.close()


def _with_an_older_checkpoint(directory: Path) -> None:
    """Only development builds wrote version 1."""
    stored = LocalCheckpoints(OsFiles(), directory / "checkpoints", limits.CHECKPOINTS_KEPT)
    for position in stored.positions():
        found = stored.read(position)
        assert found is not None
        state = bytearray(found.state)
        struct.pack_into("<I", state, 8, 1)
        stored.save(Checkpoint(position, bytes(state)))


async def test_a_checkpoint_of_an_older_version_is_replaced_by_a_replay_of_the_log(tmp_path: Path) -> None:
    options = BrokerOptions(tmp_path, segment_bytes=4096)
    broker = await Broker.open(options)
    await _work(broker)
    before = broker.log.ledger.digests()
    await broker.close()
    _with_an_older_checkpoint(tmp_path)
    broker = await Broker.open(options)
    after = broker.log.ledger.digests()
    assert [name for name in before if name != "brokers" and before[name] != after[name]] == []
    await broker.close()


async def test_an_older_checkpoint_of_a_log_that_lost_its_start_is_refused_with_a_way_out(
    tmp_path: Path,
) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path, segment_bytes=4096))
    await _work(broker)
    await broker.close()
    _with_an_older_checkpoint(tmp_path)
    min((tmp_path / "wal").iterdir()).unlink()
    with pytest.raises(OlderVersion, match="open the log with the build that wrote it"):
        await Broker.open(BrokerOptions(tmp_path, segment_bytes=4096))
