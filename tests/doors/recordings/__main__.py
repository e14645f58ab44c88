"""Record the exchanges with each door again: `.venv/bin/python -m tests.doors.recordings`."""

from __future__ import annotations

import asyncio
import difflib
import sys
import tempfile
from pathlib import Path

import uvloop

from .recording import DOORS, FOLDER, dump, opened, recorded
from .steps import steps_of


async def record(door: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        async with opened(door, Path(folder)) as address:
            return dump(door, await recorded(door, address, steps_of(door)))


async def record_all() -> list[str]:
    return await asyncio.gather(*map(record, DOORS))


def main() -> int:
    first, second = uvloop.run(record_all()), uvloop.run(record_all())
    for door, one, other in zip(DOORS, first, second, strict=True):
        (FOLDER / f"{door}.txt").write_text(one)
        sys.stdout.writelines(
            difflib.unified_diff(one.splitlines(True), other.splitlines(True), door, door, n=1)
        )
    return int(first != second)


if __name__ == "__main__":
    sys.exit(main())
