"""A WAL file that is missing: its records are an explicit loss, and they are back once the file is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import LogDamaged, RecordsLost
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.read.missing import MISSING
from mainstem.ports.commitlog.local import open_files
from tests.support.history import scan
from tests.support.waiting import until

VALUES = {number: b"<%04d>" % number + b"." * 150 for number in range(60)}


def _options(directory: Path, **more: object) -> BrokerOptions:
    return BrokerOptions(directory, segment_bytes=4096, **more)  # type: ignore[arg-type]


async def _write(directory: Path) -> None:
    broker = await Broker.open(_options(directory))
    await broker.create_topic("t")
    await broker.create_topic("other")
    for number in range(0, len(VALUES), 2):
        await broker.append_values("t", [VALUES[number], VALUES[number + 1]])
    await broker.append_values("other", [b"other"])
    await broker.close()


def _sealed(directory: Path) -> list[Path]:
    return sorted((directory / "wal").iterdir())


def _held(path: Path) -> list[int]:
    content = path.read_bytes()
    return [number for number, value in VALUES.items() if value in content]


@pytest.mark.parametrize("which", ["first", "second", "last but one"])
async def test_records_of_a_missing_file_are_a_loss_until_the_file_is_back(
    tmp_path: Path, which: str
) -> None:
    directory = tmp_path / "data"
    await _write(directory)
    path = _sealed(directory)[{"first": 0, "second": 1, "last but one": -2}[which]]
    gone = _held(path)
    assert gone
    shutil.move(path, tmp_path / path.name)
    broker = await Broker.open(_options(directory))
    try:
        values, lost = await scan(broker, "t")
        assert lost == [(gone[0], gone[-1] + 1)]
        assert values == {offset: value for offset, value in VALUES.items() if offset not in gone}
        assert broker.partition("t").records == len(VALUES) - len(gone)
        with pytest.raises(RecordsLost) as loss:
            await broker.read("t", gone[0])
        assert loss.value.reason == MISSING
        assert (await scan(broker, "other"))[1] == []
        # Writes go on, and are read.
        await broker.append_values("t", [b"more"])
        assert (await broker.read("t", 60))[0].value == b"more"
    finally:
        await broker.close()
    shutil.move(tmp_path / path.name, path)
    broker = await Broker.open(_options(directory))
    try:
        values, lost = await scan(broker, "t")
        assert lost == []
        assert values == VALUES | {60: b"more"}
        assert broker.partition("t").records == 61
    finally:
        await broker.close()


async def test_a_file_that_vanishes_under_a_running_broker_is_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "SEGMENT_FILES_OPEN_MAX", 1)  # an open file could still be read
    directory = tmp_path / "data"
    await _write(directory)
    broker = await Broker.open(_options(directory))
    try:
        path = _sealed(directory)[1]
        gone = _held(path)
        path.unlink()
        values, lost = await scan(broker, "t")
        assert lost == [(gone[0], gone[-1] + 1)]
        assert values == {offset: value for offset, value in VALUES.items() if offset not in gone}
    finally:
        await broker.close()


async def test_a_file_that_is_truncated_under_a_running_broker_loses_its_slices_alone(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    await _write(directory)
    broker = await Broker.open(_options(directory))
    try:
        path = _sealed(directory)[1]
        held = _held(path)
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 3)
        values, lost = await scan(broker, "t")
        gone = {offset for first, last in lost for offset in range(first, last)}
        assert gone
        assert gone < set(held)
        assert values == {offset: value for offset, value in VALUES.items() if offset not in gone}
    finally:
        await broker.close()


async def test_an_operator_accepts_the_loss_for_good(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    await _write(directory)
    path = _sealed(directory)[0]
    gone = _held(path)
    shutil.move(path, tmp_path / path.name)
    broker = await Broker.open(_options(directory, accept_missing=True))
    stream = broker.stream("t")
    assert broker.log.ledger.streams.lost(stream) == [(gone[0], gone[-1] + 1, MISSING)]
    assert not broker.log.missing.ranges
    await broker.close()
    broker = await Broker.open(_options(directory))
    try:
        assert (await scan(broker, "t"))[1] == [(gone[0], gone[-1] + 1)]
        assert broker.partition("t").records == len(VALUES) - len(gone)
    finally:
        await broker.close()


async def test_repacking_waits_for_a_missing_file(tmp_path: Path) -> None:
    """Repacked files stand for every object before them: the missing one could never come back."""
    directory = tmp_path / "data"
    await _write(directory)
    path = _sealed(directory)[1]
    gone = _held(path)
    shutil.move(path, tmp_path / path.name)
    eager = RepackOptions(after_objects=1, least_bytes=0, bytes_per_s=0, grace_s=0)
    broker = await Broker.open(_options(directory, repack=eager))
    try:
        assert broker.log.repacker is not None
        assert not await broker.log.repacker.step()
        assert (await scan(broker, "t"))[1] == [(gone[0], gone[-1] + 1)]
    finally:
        await broker.close()
    shutil.move(tmp_path / path.name, path)
    broker = await Broker.open(_options(directory, repack=eager))
    try:
        assert broker.log.repacker is not None
        while await broker.log.repacker.step():
            pass
        assert await scan(broker, "t") == (VALUES, [])
    finally:
        await broker.close()


async def test_a_missing_file_behind_repacked_ones_is_a_loss(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    await _write(directory)
    half = RepackOptions(on=False, after_objects=1, least_bytes=0, bytes_per_s=0, grace_s=0, round_bytes=8000)
    broker = await Broker.open(_options(directory, repack=half))
    assert broker.log.repacker is not None
    assert await broker.log.repacker.step()
    frontier = broker.log.ledger.repacked.frontier
    await broker.close()
    path = directory / "wal" / f"{frontier:020d}.wal"
    gone = _held(path)
    assert gone
    path.unlink()
    broker = await Broker.open(_options(directory, repack=half))
    try:
        values, lost = await scan(broker, "t")
        assert lost == [(gone[0], gone[-1] + 1)]
        assert values == {offset: value for offset, value in VALUES.items() if offset not in gone}
        assert broker.partition("t").records == len(VALUES) - len(gone)
    finally:
        await broker.close()


async def test_a_missing_repacked_file_is_a_loss(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    await _write(directory)
    half = RepackOptions(on=False, after_objects=1, least_bytes=0, bytes_per_s=0, grace_s=0, round_bytes=8000)
    broker = await Broker.open(_options(directory, repack=half))
    assert broker.log.repacker is not None
    assert await broker.log.repacker.step()
    assert await broker.log.repacker.step()
    first = broker.log.ledger.repacked.rounds[0].files[0].key
    await broker.close()
    (path,) = (directory / "objects").rglob(Path(first).name)
    gone = _held(path)
    assert gone
    assert len(gone) < len(VALUES)
    path.unlink()
    broker = await Broker.open(_options(directory, repack=half))
    try:
        await until(lambda: broker.log.missing.files == 1)  # before anybody reads it
        values, lost = await scan(broker, "t")
        assert lost == [(gone[0], gone[-1] + 1)]
        assert values == {offset: value for offset, value in VALUES.items() if offset not in gone}
    finally:
        await broker.close()


async def test_a_file_that_holds_commits_past_every_checkpoint_stops_the_start(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    broker = await Broker.open(_options(directory))
    await broker.create_topic("t")
    for value in VALUES.values():
        await broker.append_values("t", [value])
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    await broker.close()
    _sealed(copy)[1].unlink()
    with pytest.raises(LogDamaged, match="lacks the file"):
        await Broker.open(_options(copy))
