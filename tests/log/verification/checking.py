"""Checking a data directory, and what of it a start gives back."""

from __future__ import annotations

from mainstem.broker.broker import Broker
from mainstem.errors import RecordsLost
from mainstem.log.verification.directory import DirectoryCheck, VerificationReport
from mainstem.log.verification.problems import Problem, Severity
from tests.support.stored import StoredLog, options


def check(stored: StoredLog, *, owned: bool = False, quick: bool = False) -> VerificationReport:
    """Check, and see that no byte of any file changed."""
    before = stored.digest()
    report = DirectoryCheck(stored.directory, owned=owned, quick=quick).run()
    assert stored.digest() == before
    return report


def only(report: VerificationReport) -> Problem:
    assert len(report.problems) == 1, [problem.line for problem in report.problems]
    return report.problems[0]


def said(problem: Problem) -> tuple[Severity, str, int, int]:
    return problem.severity, problem.file, problem.start, problem.end


def wal_name(stored: StoredLog, number: int) -> str:
    """A segment's file, as a problem names it."""
    return f"wal/{stored.wal(number).name}"


def all_in(stored: StoredLog, number: int) -> list[tuple[str, int, int]]:
    """What is lost with a whole segment, as `lost` tells it."""
    names = {0: "orders/0", 1: "orders/1", 2: "users/0"}
    return [(names[row["stream"]], row["base"], row["end"]) for row in stored.index(number).spans]


def lost(problem: Problem) -> list[tuple[str | None, int, int]]:
    return [(name, one.start, one.end) for name, one in zip(problem.topics, problem.lost, strict=True)]


async def opened(stored: StoredLog) -> Broker:
    return await Broker.open(options(stored.directory, segment_bytes=1 << 20))


async def readable(stored: StoredLog) -> dict[tuple[str, int], dict[int, bytes | None]]:
    """Every record a start gives back."""
    broker = await opened(stored)
    found: dict[tuple[str, int], dict[int, bytes | None]] = {}
    try:
        for topic in broker.topics():
            for partition in range(topic.partitions):
                records = found[topic.name, partition] = {}
                at, end = (
                    broker.partition(topic.name, partition).start,
                    broker.partition(topic.name, partition).end,
                )
                while at < end:
                    try:
                        batch = await broker.read(topic.name, at, partition=partition)
                    except RecordsLost as gone:
                        at = gone.end
                        continue
                    records.update((record.offset, record.value) for record in batch)
                    at = batch[-1].offset + 1
    finally:
        await broker.close()
    return found
