"""One damaged bit anywhere in the WAL never costs a commit, whatever the bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem.ports.commitlog.port import Committed
from tests.support.files import SimFiles

from .logs import SIM_DIRECTORY, append_samples, commits, open_log, sample_content

FRAMES = 6


async def build(*, sealed: bool, segment_bytes: int) -> SimFiles:
    files = SimFiles()
    log = await open_log(SIM_DIRECTORY, files, segment_bytes=segment_bytes)
    await append_samples(log, FRAMES)
    if sealed:
        await log.roll()
        for one in log.objects():
            await log.seal(one.number, b"index of %d" % one.number)
    await log.close()
    return files


def wal_files(files: SimFiles) -> list[Path]:
    wal = SIM_DIRECTORY / "wal"
    return [wal / name for name in files.listdir(wal)]


def check(found: list[Committed]) -> None:
    assert [commit.placement.position for commit in found] == list(range(FRAMES))
    assert [bytes(commit.entry) for commit in found] == [
        sample_content(number)[1] for number in range(FRAMES)
    ]
    assert sum(not commit.payload_intact for commit in found) <= 1


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("segment_bytes", [4096, 400])
async def test_a_single_flipped_bit_loses_no_commit(sealed: bool, segment_bytes: int) -> None:
    disk = await build(sealed=sealed, segment_bytes=segment_bytes)
    sizes = {path: disk.facts(path).size_bytes for path in wal_files(disk)}
    assert (len(sizes) > 1) == (segment_bytes == 400)
    damaged = 0
    for path, size in sizes.items():
        for byte in range(size):
            files = disk.reboot("kept")
            files.flip_bit(path, byte, byte % 8)
            log = await open_log(SIM_DIRECTORY, files, segment_bytes=segment_bytes)
            found = await commits(log)
            check(found)
            damaged += sum(not commit.payload_intact for commit in found)
            if sealed:
                assert [log.read_index(n) for n in range(1, len(sizes) + 1)] == [
                    b"index of %d" % n for n in range(1, len(sizes) + 1)
                ]
            await log.close()
    payload_bytes = sum(len(sample_content(number)[2]) for number in range(FRAMES))
    assert damaged == payload_bytes  # each byte of a payload marks its commit, and no other byte does


async def test_a_flipped_bit_is_repaired_so_that_a_second_one_elsewhere_does_no_harm() -> None:
    disk = await build(sealed=False, segment_bytes=4096)
    (path,) = wal_files(disk)
    files = disk.reboot("kept")
    files.flip_bit(path, 70, 0)  # the head of the first frame
    log = await open_log(SIM_DIRECTORY, files)
    assert log.recovered.repaired_copies == 1
    await log.close()
    again = await open_log(SIM_DIRECTORY, files)
    assert again.recovered.repaired_copies == 0
    check(await commits(again))
    await again.close()


async def test_a_damaged_format_file_is_written_again() -> None:
    disk = await build(sealed=False, segment_bytes=4096)
    path = SIM_DIRECTORY / "FORMAT"
    for byte in range(disk.facts(path).size_bytes):
        files = disk.reboot("kept")
        files.flip_bit(path, byte, 0)
        if b'"version":1' not in _text(files, path):
            continue  # a version that reads as newer is refused, see the directory tests
        log = await open_log(SIM_DIRECTORY, files)
        check(await commits(log))
        await log.close()


def _text(files: SimFiles, path: Path) -> bytes:
    buffer = bytearray(4096)
    file = files.open(path)
    return bytes(buffer[: file.preadv(buffer, 0)])
