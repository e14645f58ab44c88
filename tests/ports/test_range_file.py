"""Byte ranges as a file: what Arrow and others ask of one."""

from __future__ import annotations

import io

import pytest

from mainstem.ports.objectstore.range_file import RangeFile

CONTENT = bytes(range(100))


@pytest.fixture
def asked() -> list[tuple[int, int]]:
    return []


@pytest.fixture
def file(asked: list[tuple[int, int]]) -> RangeFile:
    def read(start: int, length: int) -> memoryview:
        asked.append((start, length))
        return memoryview(CONTENT)[start : start + length]

    return RangeFile(read, len(CONTENT))


def test_it_reads_where_it_was_sought_and_moves_on(file: RangeFile) -> None:
    assert file.seek(10) == 10
    assert file.read(5) == CONTENT[10:15]
    assert file.seek(-3, io.SEEK_CUR) == 12
    assert file.seek(-10, io.SEEK_END) == 90
    assert file.read() == CONTENT[90:]
    assert file.tell() == 100


def test_it_ends_at_its_size_and_asks_for_nothing_there(
    file: RangeFile, asked: list[tuple[int, int]]
) -> None:
    file.seek(95)
    buffer = bytearray(10)
    assert file.readinto(buffer) == 5
    assert bytes(buffer[:5]) == CONTENT[95:]
    assert (file.read(1), file.readinto(buffer), file.readall()) == (b"", 0, b"")
    file.seek(200)
    assert file.read(1) == b""
    assert asked == [(95, 5)]


def test_a_buffered_reader_can_wrap_it(file: RangeFile) -> None:
    with io.BufferedReader(file, 16) as buffered:
        buffered.seek(50)
        assert buffered.read(3) == CONTENT[50:53]
        assert buffered.read() == CONTENT[53:]
