"""What the commit log tests share: reading a whole log back, and commits that tell their own position."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.commitlog.port import CommitLog, Committed
from mainstem.ports.files import Files

SIM_DIRECTORY = Path("/data/log")


async def open_log(
    directory: Path, files: Files | None = None, *, segment_bytes: int = 4096, prepare_ahead: bool = False
) -> LocalCommitLog:
    return await LocalCommitLog.open(
        directory, files=files, segment_bytes=segment_bytes, prepare_ahead=prepare_ahead
    )


def zero_ahead_at_once(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Zero files ahead of their end from the first sync on, `step` bytes at a time."""
    local = "mainstem.ports.commitlog.local"
    monkeypatch.setattr(f"{local}.writer.SYNCS_BEFORE_ZEROING", 1)
    for module in ("writer", "preallocation"):
        monkeypatch.setattr(f"{local}.{module}.ZEROED_AHEAD_BYTES", step)


async def commits(log: CommitLog, position: int = 0) -> list[Committed]:
    return [commit async for chunk in log.follow(position) for commit in chunk]


async def contents(log: CommitLog, position: int = 0) -> list[tuple[int, bytes, bytes]]:
    """Every commit as (position, entry, payload)."""
    found = []
    for commit in await commits(log, position):
        place = commit.placement
        payload = log.read(place.object, place.start, commit.payload_bytes)
        found.append((place.position, bytes(commit.entry), bytes(payload)))
    return found


def sample(number: int) -> tuple[bytes, Sequence[bytes]]:
    """A commit like no other: entry and slices, of uneven lengths."""
    slices = [f"slice {number}.{part} ".encode() * (part * 3 + number % 5) for part in range(number % 4)]
    return f"entry {number} ".encode() * (1 + number % 3), slices


def sample_content(number: int) -> tuple[int, bytes, bytes]:
    entry, slices = sample(number)
    return number, entry, b"".join(slices)


async def append_samples(log: CommitLog, count: int) -> None:
    for number in range(log.end, log.end + count):
        placement = await log.append(*sample(number))
        assert placement.position == number
