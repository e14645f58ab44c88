"""Flipped bits at rest: exactly their slice is lost, the loss is reported, and it is recorded."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import LogDamaged, ReadOnly, RecordsLost
from mainstem.ledger.streams import DeleteRecords
from mainstem.ports.commitlog.local import frames
from mainstem.ports.commitlog.local.segments import HEADER_BYTES, INDEX_MAGIC
from mainstem.ports.files import OsFiles
from tests.support.files import SimFiles
from tests.support.history import scan
from tests.support.machine import DIRECTORY, Machine

VALUES = {number: b"<%04d>" % number + b"." * 150 for number in range(60)}


def _options(directory: Path) -> BrokerOptions:
    return BrokerOptions(directory, segment_bytes=4096)


async def _write(directory: Path, *, stop: bool) -> Path:
    """Two topics, `t` in slices of two records. Without `stop`: the directory as a killed process leaves it."""
    broker = await Broker.open(_options(directory))
    try:
        await broker.create_topic("t")
        await broker.create_topic("other")
        for number in range(0, len(VALUES), 2):
            await broker.append_values("t", [VALUES[number], VALUES[number + 1]])
            await broker.append_values("other", [b"other"])
        if not stop:
            copy = directory.with_name("copy")
            shutil.copytree(directory, copy)
            return copy
        return directory
    finally:
        await broker.close()


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def _place_of(directory: Path, value: bytes) -> tuple[Path, int]:
    for path in sorted((directory / "wal").iterdir()):
        at = path.read_bytes().find(value)
        if at >= 0:
            return path, at
    raise AssertionError(f"{value!r} is in no file")


async def _check(directory: Path, lost: list[tuple[int, int]]) -> None:
    broker = await Broker.open(_options(directory))
    try:
        values, found = await scan(broker, "t")
        gone = {offset for first, last in lost for offset in range(first, last)}
        assert found == lost
        assert values == {offset: value for offset, value in VALUES.items() if offset not in gone}
        assert (await scan(broker, "other"))[1] == []
        stream = broker.topic("t").streams[0]
        assert [hole[:2] for hole in broker.log.ledger.streams.lost(stream)] == lost
        for first, last in lost:
            for asked in range(first, last):
                with pytest.raises(RecordsLost) as loss:
                    await broker.read("t", asked)
                assert (loss.value.start, loss.value.end) == (asked, last)
    finally:
        await broker.close()


@pytest.mark.parametrize("deleted", [[(30, 31)], [(31, 32)], [(30, 32)]])
async def test_damage_among_deleted_records_loses_the_others_and_reads_continue(
    tmp_path: Path, deleted: list[tuple[int, int]]
) -> None:
    directory = await _write(tmp_path / "data", stop=True)
    broker = await Broker.open(_options(directory))
    stream = broker.topic("t").streams[0]
    await broker.log.propose(DeleteRecords(stream, tuple(deleted)))
    await broker.close()
    path, at = _place_of(directory, VALUES[30])
    _flip(path, at + 3)
    gone = {offset for first, last in deleted for offset in range(first, last)}
    lost = [(offset, offset + 1) for offset in (30, 31) if offset not in gone]
    broker = await Broker.open(_options(directory))
    try:
        values, found = await asyncio.wait_for(scan(broker, "t"), 30)
        assert found == lost
        assert values == {offset: value for offset, value in VALUES.items() if offset not in (30, 31)}
    finally:
        await broker.close()


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("number", [0, 31, 59])
async def test_a_flipped_bit_in_a_payload_loses_that_slice_and_nothing_else(
    tmp_path: Path, stop: bool, number: int
) -> None:
    directory = await _write(tmp_path / "data", stop=stop)
    path, at = _place_of(directory, VALUES[number])
    _flip(path, at + 3)
    base = number - number % 2
    await _check(directory, [(base, base + 2)])
    _flip(path, at + 3)  # intact again, but a recorded loss stays
    await _check(directory, [(base, base + 2)])


async def test_damage_in_two_slices_loses_two_ranges(tmp_path: Path) -> None:
    directory = await _write(tmp_path / "data", stop=False)
    for number in (10, 40):
        path, at = _place_of(directory, VALUES[number])
        _flip(path, at)
    await _check(directory, [(10, 12), (40, 42)])


async def test_damage_in_the_tail_is_found_before_anybody_reads_it(tmp_path: Path) -> None:
    directory = await _write(tmp_path / "data", stop=False)
    path, at = _place_of(directory, VALUES[59])
    _flip(path, at)
    broker = await Broker.open(_options(directory))
    try:
        stream = broker.topic("t").streams[0]
        assert broker.log.ledger.streams.lost(stream) == [(58, 60, "damaged")]
        assert broker.partition("t").records == 58
    finally:
        await broker.close()


async def test_one_damaged_copy_of_an_index_costs_nothing(tmp_path: Path) -> None:
    directory = await _write(tmp_path / "data", stop=True)
    for path in sorted((directory / "wal").iterdir()):
        at = path.read_bytes().find(INDEX_MAGIC)
        if at >= 0:
            _flip(path, at + 80)
    await _check(directory, [])


async def test_two_damaged_copies_of_an_index_are_reported_by_file_name(tmp_path: Path) -> None:
    directory = await _write(tmp_path / "data", stop=True)
    path = min((directory / "wal").iterdir())
    data = path.read_bytes()
    first = data.find(INDEX_MAGIC)
    for at in (first, data.find(INDEX_MAGIC, first + 1)):
        _flip(path, at + 80)
    with pytest.raises(LogDamaged, match=path.name):
        await Broker.open(_options(directory))


@pytest.mark.parametrize("copy", ["leading", "trailing"])
async def test_one_damaged_copy_of_every_entry_costs_nothing(tmp_path: Path, copy: str) -> None:
    directory = await _write(tmp_path / "data", stop=False)
    files = OsFiles()
    for path in sorted((directory / "wal").iterdir()):
        file = files.open(path)
        header = path.read_bytes()[:HEADER_BYTES]
        log = int.from_bytes(header[16:24], "little")
        at, found = HEADER_BYTES, []
        while (frame := frames.read_leading(file, at, file.size(), log)) is not None:
            found.append(frame[0])
            at = frame[0].end
        file.close()
        for one in found:
            _flip(path, (one.start if copy == "leading" else one.payload_end) + 9)
    await _check(directory, [])


async def test_damage_to_a_topic_that_was_deleted_later_does_not_stop_the_start(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    await broker.create_topic("kept")
    await broker.append_values("t", [b"needle" * 10])
    await broker.append_values("kept", [b"kept"])
    await broker.delete_topic("t")
    await machine.kill()
    _damage(machine.files, b"needle" * 10)
    broker = await machine.open()
    assert (await scan(broker, "kept"))[0] == {0: b"kept"}


async def test_damage_is_reported_even_while_nothing_can_be_written(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    for number in range(40):
        await broker.append_values("t", [b"needle %d " % number + b"." * 100])
    _damage(machine.files, b"needle 7 ")
    assert machine.port is not None
    machine.port.sync_errors.append(OSError("broken"))
    with pytest.raises(ReadOnly):
        await broker.append_values("t", [b"x"])
    with pytest.raises(RecordsLost) as loss:
        await broker.read("t", 7)
    assert (loss.value.start, loss.value.end) == (7, 8)
    assert [record.offset for record in await broker.read("t", 8, max_bytes=1)] == [8]


def _damage(files: SimFiles, value: bytes) -> None:
    for name in files.listdir(DIRECTORY / "wal"):
        path = DIRECTORY / "wal" / name
        at = _content(files, path).find(value)
        if at >= 0:
            files.flip_bit(path, at + 1, 2)
            return
    raise AssertionError(f"{value!r} is in no file")


def _content(files: SimFiles, path: Path) -> bytes:
    file = files.open(path)
    buffer = bytearray(file.size())
    file.preadv(buffer, 0)
    return bytes(buffer)


@pytest.mark.slow
async def test_a_flipped_bit_never_makes_a_wrong_record_or_loses_more_than_one_slice(
    walk_seed: int, chaos: bool
) -> None:
    """Every file of a killed broker, a bit at a time: correct records, or a loss of one slice, or a refusal."""
    machine = Machine()
    broker = await machine.open()
    await broker.create_topic("t")
    slices = {}
    for number in range(0, len(VALUES), 3):
        part = {offset: VALUES[offset] for offset in range(number, number + 3)}
        slices[(number, number + 3)] = part
        await broker.append_values("t", list(part.values()))
    await machine.kill()
    disk = machine.files
    randomness = random.Random(walk_seed)
    paths = [DIRECTORY / "wal" / name for name in disk.listdir(DIRECTORY / "wal")]
    for _ in range(200 if chaos else 12):
        path = randomness.choice(paths)
        byte = randomness.randrange(len(_content(disk.reboot("kept"), path)))
        machine.files = disk.reboot("kept")
        machine.files.flip_bit(path, byte, randomness.randrange(8))
        try:
            broker = await machine.open()
        except LogDamaged:
            continue
        values, lost = await scan(broker, "t")
        assert len(lost) <= 1, (path, byte)
        assert set(lost) <= slices.keys(), (path, byte)
        whole = {o: v for span, part in slices.items() if span not in lost for o, v in part.items()}
        assert values == whole, (path, byte)
        await machine.kill()
