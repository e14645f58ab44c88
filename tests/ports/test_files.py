"""The file port: the real one's errors and short writes, and the simulated one's crashes."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import DirectoryUnusable, NoSpace
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.files import OsFiles, make_directories, read_up_to, write_all, write_whole
from tests.support.files import SimFiles, SimulatedCrash

DIRECTORY = Path("/d")
PATH = DIRECTORY / "file"


def made(content: bytes = b"") -> SimFiles:
    """A file system with one durable file."""
    files = SimFiles()
    make_directories(files, DIRECTORY)
    file = files.create(PATH)
    write_all(file, [content], 0)
    file.fdatasync()
    files.fsync_dir(DIRECTORY)
    return files


def content_of(files: SimFiles | OsFiles, path: Path = PATH) -> bytes:
    file = files.open(path)
    try:
        return bytes(read_up_to(file, 0, 1 << 20))
    finally:
        file.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_as_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        raise OSError(code, os.strerror(code))

    file = OsFiles().create(tmp_path / "file")
    monkeypatch.setattr(os, "pwritev", refuse)
    with pytest.raises(NoSpace, match="file"):
        write_all(file, [b"x"], 0)
    file.close()


def test_other_errors_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "broken disk")

    file = OsFiles().create(tmp_path / "file")
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="broken disk"):
        file.fdatasync()
    file.close()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryUnusable, match="file"):
        OsFiles().open(tmp_path / "file" / "below")
    with pytest.raises(DirectoryUnusable, match="file"):
        make_directories(OsFiles(), tmp_path / "file")


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(st.binary(max_size=40), max_size=20), step=st.integers(1, 9), offset=st.integers(0, 100)
)
def test_every_byte_goes_out_whatever_the_kernel_takes_at_a_time(
    parts: list[bytes], step: int, offset: int
) -> None:
    class Reluctant:
        """Takes a few bytes a call."""

        path = PATH
        taken = bytearray(offset)

        def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
            piece = b"".join(buffers)[:step]
            assert offset == len(self.taken)
            self.taken += piece
            return len(piece)

    file = Reluctant()
    file.taken = bytearray(offset)
    end = write_all(file, parts, offset)  # type: ignore[arg-type]
    assert bytes(file.taken[offset:]) == b"".join(parts)
    assert end == len(file.taken)


def test_a_whole_write_replaces_or_leaves_what_was_there(tmp_path: Path) -> None:
    files = OsFiles()
    write_whole(files, tmp_path / "file", [b"one"])
    write_whole(files, tmp_path / "file", [b"tw", b"o"])
    assert content_of(files, tmp_path / "file") == b"two"
    assert os.listdir(tmp_path) == ["file"]


def test_unsynced_bytes_are_lost_or_kept_as_the_policy_says() -> None:
    files = made(b"old")
    write_all(files.open(PATH, write=True), [b"new bytes"], 0)
    assert content_of(files.reboot("lost")) == b"old"
    assert content_of(files.reboot("kept")) == b"new bytes"


def test_torn_writes_keep_or_lose_whole_sectors() -> None:
    files = made(b"o" * 4096)
    write_all(files.open(PATH, write=True), [b"n" * 4096], 0)
    seen = set()
    for seed in range(30):
        content = content_of(files.reboot("torn", seed))
        sectors = [content[at : at + 512] for at in range(0, 4096, 512)]
        assert all(sector in (b"o" * 512, b"n" * 512) for sector in sectors)
        seen.add(content)
    assert len(seen) > 10
    assert content_of(files.reboot("torn", 7)) == content_of(files.reboot("torn", 7))


def test_a_torn_sector_may_hold_any_version_since_the_last_sync() -> None:
    files = made(b"0" * 512)
    file = files.open(PATH, write=True)
    for version in b"123":
        write_all(file, [bytes([version]) * 512], 0)
    seen = {content_of(files.reboot("torn", seed))[:1] for seed in range(60)}
    assert seen == {b"0", b"1", b"2", b"3"}


def test_names_are_durable_only_after_their_directory_is_synced() -> None:
    files = made(b"content")
    files.create(DIRECTORY / "new")
    files.unlink(PATH)
    assert files.reboot("lost").listdir(DIRECTORY) == ["file"]
    assert files.reboot("kept").listdir(DIRECTORY) == ["new"]
    assert {tuple(files.reboot("torn", seed).listdir(DIRECTORY)) for seed in range(20)} == {
        ("file",),
        ("file", "new"),
        ("new",),
    }


def test_names_stay_once_their_directory_is_synced() -> None:
    files = made(b"content")
    files.create(DIRECTORY / "new")
    files.unlink(PATH)
    files.fsync_dir(DIRECTORY)
    assert files.reboot("lost").listdir(DIRECTORY) == ["new"]


def test_a_lost_directory_takes_its_files_along() -> None:
    files = SimFiles()
    files.mkdir(DIRECTORY)
    files.create(PATH).fdatasync()
    files.fsync_dir(DIRECTORY)
    assert not files.reboot("lost").exists(PATH)


def test_a_crash_lets_its_call_happen_and_no_later_one() -> None:
    files = made(b"old")
    file = files.open(PATH, write=True)
    files.crash_after(files.calls + 2)
    write_all(file, [b"one"], 0)
    with pytest.raises(SimulatedCrash):
        write_all(file, [b"two"], 0)
    with pytest.raises(SimulatedCrash):
        files.listdir(DIRECTORY)
    assert content_of(files.reboot("kept")) == b"two"


def test_a_failed_sync_loses_the_bytes_though_readers_still_see_them() -> None:
    files = made(b"old")
    file = files.open(PATH, write=True)
    write_all(file, [b"new"], 0)
    files.fail_next_fdatasync()
    with pytest.raises(OSError, match="input/output"):
        file.fdatasync()
    file.fdatasync()
    assert content_of(files) == b"new"
    assert content_of(files.reboot("lost")) == b"old"


def test_allocated_space_reads_as_zeros() -> None:
    files = made(b"abc")
    file = files.open(PATH, write=True)
    file.posix_fallocate(0, 10)
    assert file.size() == 10
    assert content_of(files) == b"abc" + bytes(7)
    file.ftruncate(2)
    file.ftruncate(4)
    assert content_of(files) == b"ab" + bytes(2)
