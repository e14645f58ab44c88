"""Digests that disagree: explained by section and key, and repaired from the log."""

from __future__ import annotations

import logging
import struct
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.storage.repair import repair_log
from mainstem.errors import DirectoryUnusable, LedgerDiverged
from mainstem.ledger import checkpoint
from mainstem.ledger.ledger import Ledger
from mainstem.log.divergence import explain
from mainstem.ports.clock import SystemClock, SystemRandom
from mainstem.ports.commitlog.local.checkpoints import LocalCheckpoints
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.commitlog.shared.open import SharedPlace
from mainstem.ports.files import OsFiles


async def _written(options: BrokerOptions, records: int = 5) -> None:
    broker = await Broker.open(options)
    if "t" not in [info.name for info in broker.topics()]:
        await broker.create_topic("t", partitions=2)
    for number in range(records):
        await broker.append_values("t", [b"%d" % number])
    await broker.commit_offset("group", "t", records)
    await broker.close()


def _stored(directory: Path) -> LocalCheckpoints:
    return LocalCheckpoints(OsFiles(), directory / "checkpoints", limits.CHECKPOINTS_KEPT)


def _tampered(directory: Path, change: bytes | None = None) -> int:
    """Give the newest checkpoint another digest, or this state. Returns its position."""
    stored = _stored(directory)
    newest = stored.load()
    assert newest is not None
    state = bytearray(newest.state)
    state[16] ^= 1
    stored.save(Checkpoint(newest.position, change or bytes(state)))
    return newest.position


async def _repaired(options: BrokerOptions, backup: Path) -> int:
    return (await repair_log(options, SystemClock(), SystemRandom(), backup)).position


async def test_a_wrong_digest_is_explained_and_repaired(tmp_path: Path) -> None:
    options = BrokerOptions(tmp_path / "data")
    await _written(options)
    position = _tampered(options.data_dir)
    with pytest.raises(LedgerDiverged, match="mainstem repair"):
        await Broker.open(options)
    found = await explain(options.data_dir)
    assert found.diverged
    assert [(one.position, one.diverged, one.differences) for one in found.checkpoints] == [
        (position, True, [])
    ]
    before = (options.data_dir / "checkpoints").joinpath(f"{position:020d}.ckpt").read_bytes()
    await _repaired(options, tmp_path / "backup")
    assert (tmp_path / "backup" / "checkpoints" / f"{position:020d}.ckpt").read_bytes() == before
    assert not (await explain(options.data_dir)).diverged
    broker = await Broker.open(options)
    assert broker.committed("group", "t") == 5
    assert [record.value for record in await broker.read("t", 0)] == [b"0", b"1", b"2", b"3", b"4"]
    await broker.close()


async def test_a_state_that_differs_from_the_log_is_named_by_section_and_key(tmp_path: Path) -> None:
    options = BrokerOptions(tmp_path / "data")
    await _written(options)
    newest = _stored(options.data_dir).load()
    assert newest is not None
    ledger = Ledger.decode(newest.state)
    topic = ledger.topics.get("t")
    assert topic is not None
    ledger.topics.put(replace(topic, config=msgspec.structs.replace(topic.config, ttl_ms=7)))
    cursor = ledger.cursors.get("group", topic.streams[0])
    assert cursor is not None
    ledger.cursors.put_checked("group", topic.streams[0], cursor._replace(offset=3))
    state = checkpoint.pack(ledger.state(), Ledger.decode(newest.state).digest())
    _tampered(options.data_dir, state)
    (one,) = (await explain(options.data_dir)).checkpoints
    assert [(row.section, row.key, row.stored, row.replayed) for row in one.differences] == [
        ("topics", "['t'].config.ttl_ms", "7", "0"),
        ("cursors", f"groups.['group'].[1].[{topic.streams[0]}].[1]", "3", "5"),
    ]
    await _repaired(options, tmp_path / "backup")
    broker = await Broker.open(options)
    assert broker.topic("t").config.ttl_ms == 0
    await broker.close()


async def test_a_checkpoint_with_a_digest_that_cannot_be_compared_opens_with_an_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = BrokerOptions(tmp_path / "data")
    await _written(options)
    newest = _stored(options.data_dir).load()
    assert newest is not None
    state = bytearray(newest.state)
    struct.pack_into("<IQ", state, 12, 0, 1)  # as written before digests were functions of values
    _tampered(options.data_dir, bytes(state))
    with caplog.at_level(logging.WARNING, "mainstem.recovery"):
        broker = await Broker.open(options)
    assert any(line.startswith("digests not comparable") for line in caplog.messages)
    assert broker.committed("group", "t") == 5
    await broker.close()
    caplog.clear()
    await (await Broker.open(options)).close()
    assert not caplog.records


async def test_a_repair_accepts_a_wrong_digest_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = BrokerOptions(tmp_path / "data")
    await _write_wrong_digests(options, monkeypatch)
    for path in (options.data_dir / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(LedgerDiverged, match="after 8 entries"):
        await Broker.open(options)
    found = await explain(options.data_dir)
    assert found.log[0].position == 8
    assert found.log[0].recorded != found.log[0].replayed
    await _repaired(options, tmp_path / "backup")
    await _written(options)


async def test_a_repair_accepts_a_wrong_digest_in_a_shared_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = (tmp_path / "bucket").as_uri()
    options = BrokerOptions(tmp_path / "a", place=SharedPlace(store, (), 0))
    await _write_wrong_digests(options, monkeypatch)
    with pytest.raises(LedgerDiverged, match="after 8 entries"):
        await Broker.open(BrokerOptions(tmp_path / "b", place=options.place))
    await _repaired(options, tmp_path / "backup")
    broker = await Broker.open(BrokerOptions(tmp_path / "b", place=options.place))
    assert broker.committed("group", "t") == 20
    assert len(await broker.read("t", 0)) == 20
    await broker.close()
    await _written(options)


async def _write_wrong_digests(options: BrokerOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another version of Mainstem would, with a digest every 8 entries."""
    right = Ledger.digest
    monkeypatch.setattr(limits, "DIGEST_EVERY_COMMITS", 8)
    with monkeypatch.context() as wrong:
        wrong.setattr(Ledger, "digest", lambda ledger: right(ledger) ^ 1)
        await _written(options, 20)


async def test_a_repair_overwrites_no_backup(tmp_path: Path) -> None:
    options = BrokerOptions(tmp_path / "data")
    await _written(options)
    with pytest.raises(DirectoryUnusable, match="exists already"):
        await _repaired(options, tmp_path)


async def test_a_repair_of_a_sound_log_changes_no_record(tmp_path: Path) -> None:
    options = BrokerOptions(tmp_path / "data", segment_bytes=64 * limits.KIB)
    await _written(options, 300)
    await _repaired(options, tmp_path / "backup")
    broker = await Broker.open(options)
    values: list[bytes | None] = []
    while records := await broker.read("t", len(values)):
        values += [record.value for record in records]
    assert values == [b"%d" % number for number in range(300)]
    await broker.close()
