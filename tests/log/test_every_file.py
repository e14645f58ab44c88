"""Every kind of file of a data directory × every fault: healed, an explicit loss, or a start that is refused.

The kinds are found in a directory that a broker wrote, so a new kind of file is tested from its first day."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.errors import MainstemError
from mainstem.ledger.config import TopicConfig
from mainstem.log.objects.repack.plan import RepackOptions
from tests.support.history import scan

_VALUES = {number: b"<%04d>" % number + b"." * 150 for number in range(60)}
_TAKEN, _ACKED = 3, 2  # records taken at the shared cursor; jobs settled
_HALF = RepackOptions(on=False, after_objects=1, least_bytes=0, bytes_per_s=0, grace_s=0, round_bytes=4000)


def _flip(at: float) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        if content:
            content[min(len(content) - 1, int(at * len(content)))] ^= 0x10
        path.write_bytes(content)

    return flip


def _keep(share: float) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


_FAULTS: dict[str, Callable[[Path], None]] = {
    "deleted": Path.unlink,
    "empty": _keep(0),
    "half": _keep(0.5),
    "the last byte missing": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a bit at the start": _flip(0),
    "a bit in the middle": _flip(0.5),
    "a bit at the end": _flip(1),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "more at the end": lambda path: path.write_bytes(path.read_bytes() + b"\xffgarbage" * 20),
}


def _options(directory: Path) -> BrokerOptions:
    return BrokerOptions(directory, segment_bytes=4096, repack=_HALF)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("every") / "data"
    asyncio.run(_write(directory))
    return directory


async def _write(directory: Path) -> None:
    """Sealed and repacked files, and state that is not in records."""
    broker = await Broker.open(_options(directory))
    for name in ("t", "other"):
        await broker.create_topic(name)
    await broker.create_topic("jobs", config=TopicConfig(type="queue", durability="disk"))
    await broker.append_values("jobs", [b"job"] * 5)
    await broker.append_values("other", [b"other"] * 5)
    await broker.take("other", "cursor", partition=0, limit=_TAKEN)
    claims = await broker.queues.claim("jobs", "ann", limit=_ACKED)
    await broker.queues.ack("jobs", "ann", [job.offset for job in claims.jobs])
    for number in range(0, len(_VALUES), 2):
        await broker.append_values("t", [_VALUES[number], _VALUES[number + 1]])
    await broker.close()
    broker = await Broker.open(_options(directory))  # which has the checkpoint and the indexes
    assert broker.log.repacker is not None
    assert await broker.log.repacker.step()
    await broker.close()


def _kinds(directory: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            relative = path.relative_to(directory)
            kind = f"{relative.parts[0] if len(relative.parts) > 1 else relative.stem}{path.suffix}"
            found.setdefault(kind, []).append(relative)
    return found


async def _check(directory: Path, *, again: bool = False) -> str:
    """Open it, write and read. Returns what was found; fails on a silent loss."""
    try:
        broker = await Broker.open(_options(directory))
    except MainstemError as refused:
        return f"refused: {refused}"
    try:
        values, lost = await scan(broker, "t")
        told = {offset for start, end in lost for offset in range(start, end)}
        assert set(values) | told >= set(_VALUES), (
            f"lost quietly: {sorted(set(_VALUES) - set(values) - told)}"
        )
        assert all(_VALUES.get(offset, b"more") == value for offset, value in values.items())
        assert {topic.name for topic in broker.topics()} >= {"t", "jobs", "other"}
        others, others_lost = await scan(broker, "other")
        if not others_lost:
            assert len(others) == 5
        if not others_lost and not again:
            assert len(await broker.take("other", "cursor", partition=0, limit=10)) == 5 - _TAKEN
        if not (await scan(broker, "jobs"))[1]:
            claims = await broker.queues.claim("jobs", "ann", limit=10, lease_ms=60_000)
            assert all(job.offset >= _ACKED for job in claims.jobs), "a settled job came again"
        appended = await broker.append_values("t", [b"more"])
        assert appended.base_offset >= len(_VALUES), "an offset was given twice"
        return f"lost {lost}" if lost else "whole"
    finally:
        await broker.close()


def _sample(paths: list[Path]) -> list[Path]:
    return sorted({paths[0], paths[len(paths) // 2], paths[-1]})


@pytest.mark.parametrize("fault", _FAULTS)
async def test_a_fault_of_any_file_is_healed_told_or_refused(
    written: Path, tmp_path: Path, fault: str
) -> None:
    kinds = _kinds(written)
    assert set(kinds) >= {"wal.wal", "checkpoints.ckpt", "objects", "FORMAT", "LOCK"}
    for kind, paths in kinds.items():
        for relative in _sample(paths):
            directory = tmp_path / kind / relative.stem / "data"
            shutil.copytree(written, directory)
            _FAULTS[fault](directory / relative)
            found = await _check(directory)
            assert found != "refused: ", "the text says what is wrong"
            if not found.startswith("refused"):
                again = await _check(directory, again=True)
                assert not again.startswith("refused"), (relative, found, again)
            shutil.rmtree(directory)
