"""Appends to the log in a bucket until it is killed, and says what was taken: `appender.py URL NAME`."""

from __future__ import annotations

import asyncio
import sys

from mainstem.ports.commitlog.port import Overtaken
from mainstem.ports.commitlog.shared.bucket.log import BucketCommitLog
from mainstem.ports.objectstore.open import open_store


async def append_for_ever(url: str, name: str) -> None:
    log = await BucketCommitLog.open(open_store(url), object_bytes=4096)
    number = 0
    while True:
        entry = f"{name} {number}"
        try:
            await log.append(entry.encode(), [b"payload of " + entry.encode()])
        except Overtaken:
            continue
        sys.stdout.write(entry + "\n")
        sys.stdout.flush()
        number += 1


if __name__ == "__main__":
    asyncio.run(append_for_ever(sys.argv[1], sys.argv[2]))
