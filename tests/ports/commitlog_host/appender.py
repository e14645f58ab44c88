"""Appends to the log of a host until it is killed, and says what was taken: `appender.py DIRECTORY NAME`.

The first line says whether it is the writer; `writer` comes again when it becomes one."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from mainstem.ports.commitlog.shared.host.log import HostCommitLog
from tests.ports.commitlog_host.logs import OPTIONS


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # one call: a kill leaves whole lines


async def append_for_ever(directory: Path, name: str) -> None:
    log = await HostCommitLog.open(directory, OPTIONS)
    role = "writer" if log.writes else "follower"
    tell(role)
    number = 0
    while True:
        entry = f"{name} {number}".encode()
        payload = b"payload of " + entry + b"." * (number % 7 * 2_000)
        place = await log.append(entry, [payload[:5], payload[5:]])
        if log.writes and role == "follower":
            role = "writer"
            tell(f"writer {time.monotonic()}")
        tell(f"{name} {number} {place.position} {time.monotonic()}")
        number += 1


if __name__ == "__main__":
    asyncio.run(append_for_ever(Path(sys.argv[1]), sys.argv[2]))
