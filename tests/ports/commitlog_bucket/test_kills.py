"""Writers that are killed: what they were told is there, in order, once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from mainstem.errors import StoreUnreachable
from mainstem.ports.commitlog.shared.bucket.log import BucketCommitLog
from mainstem.ports.objectstore.open import open_store
from tests.support.s3 import S3Server

from ..logs import contents
from .logs import open_bucket_log

_SCRIPT = Path(__file__).with_name("appender.py")


def start(url: str, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(_SCRIPT), url, name], stdout=subprocess.PIPE, text=True, bufsize=1
    )


def killed_after(writer: subprocess.Popen[str], count: int) -> list[str]:
    """What it was told before its end, which comes in the middle of something."""
    assert writer.stdout is not None
    told = [writer.stdout.readline().strip() for _ in range(count)]
    os.kill(writer.pid, signal.SIGKILL)
    told += [line.strip() for line in writer.stdout]
    writer.wait(30)
    writer.stdout.close()
    return told


async def test_what_a_killed_writer_was_told_is_in_the_log(s3_server: S3Server) -> None:
    bucket = f"kills-{os.urandom(4).hex()}"
    await asyncio.to_thread(s3_server.make_bucket, bucket)
    url = s3_server.url(bucket, "cell")
    writers = {name: start(url, name) for name in ("a", "b")}
    told = {name: await asyncio.to_thread(killed_after, writer, 8) for name, writer in writers.items()}
    log = await open_bucket_log(open_store(url))
    found = await contents(log)
    entries = [entry.decode() for _, entry, _ in found]
    assert [place for place, _, _ in found] == list(range(log.end))
    assert all(payload == b"payload of " + entry for _, entry, payload in found)
    for name, taken in told.items():
        assert len(taken) >= 8
        own = [entry for entry in entries if entry.startswith(name)]
        # The last one may have been taken without a chance to say so.
        assert own in (taken, [*taken, f"{name} {len(taken)}"])
    assert (await log.append(b"after", [])).position == len(found)
    await log.close()


async def _opened_once_it_is_ready(url: str) -> BucketCommitLog:
    """A server that was killed answers before it has found all of its volumes again."""
    async with asyncio.timeout(90):
        while True:
            try:
                return await open_bucket_log(open_store(url))
            except StoreUnreachable:
                await asyncio.sleep(0.2)


async def test_a_server_that_is_killed_comes_back_with_all_it_confirmed(tmp_path: Path) -> None:
    server = S3Server(tmp_path / "s3")
    with server:
        server.make_bucket("kept")
        log = await open_bucket_log(open_store(server.url("kept")))
        for number in range(20):
            await log.append(b"%d" % number, [b"payload"])
        await log.close()
        server.kill()
    with server:
        log = await _opened_once_it_is_ready(server.url("kept"))
        assert [entry for _, entry, _ in await contents(log)] == [b"%d" % number for number in range(20)]
        assert (await log.append(b"next", [])).position == 20
        await log.close()
