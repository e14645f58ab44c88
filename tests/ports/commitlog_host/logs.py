"""What the tests of the log that the workers of a host share have in common."""

from __future__ import annotations

from pathlib import Path

from mainstem.ports.commitlog.shared.host.log import HostCommitLog, HostOptions

OPTIONS = HostOptions(segment_bytes=4096, prepare_ahead=False)


async def open_writer(directory: Path) -> HostCommitLog:
    log = await HostCommitLog.open(directory, OPTIONS)
    assert log.writes
    return log


class FollowerOfOneWriter(HostCommitLog):
    """A follower that closes its writer when it is closed."""

    writer: HostCommitLog

    async def close(self) -> None:
        await super().close()
        await self.writer.close()


async def open_follower(directory: Path) -> HostCommitLog:
    writer = await open_writer(directory)
    log = await FollowerOfOneWriter.open(directory, OPTIONS)
    log.writer = writer
    assert not log.writes
    return log
