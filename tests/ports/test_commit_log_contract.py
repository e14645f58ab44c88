"""The rules every commit log backend keeps, run against each of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from mainstem.errors import Closed, InvariantBroken
from mainstem.ports.commitlog.port import Checkpoint, CommitLog
from mainstem.ports.files import Files, OsFiles
from tests.support.files import SimFiles

from .commitlog_bucket.logs import bucket_log_opener, refer_to_all_over
from .commitlog_etcd.logs import etcd_log_opener
from .commitlog_host.logs import open_follower, open_writer
from .logs import SIM_DIRECTORY, append_samples, commits, contents, open_log, sample_content
from .vendors import VENDORS

Reopen = Callable[[], Awaitable[CommitLog]]


_BUCKETS = {
    "bucket": "memory",
    "bucket-referring": "memory",
    "bucket-s3": "s3",
    **{f"bucket-{vendor}": vendor for vendor in VENDORS},
}


@pytest.fixture(
    params=["os", "os-prepared", "sim", "sim-prepared", "host-writer", "host-follower", "etcd", *_BUCKETS]
)
async def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Reopen]:
    """Opens the same log, closing the one opened before."""
    backend: str = request.param
    open_one = _opener(request, backend, tmp_path)
    opened: list[CommitLog] = []

    async def open_again() -> CommitLog:
        if opened:
            await opened.pop().close()
        opened.append(await open_one())
        return opened[0]

    yield open_again
    for log in opened:
        await log.close()


def _opener(request: pytest.FixtureRequest, backend: str, tmp_path: Path) -> Reopen:
    if backend == "etcd":
        return etcd_log_opener(request)
    if backend == "bucket-referring":
        refer_to_all_over(request.getfixturevalue("monkeypatch"), 24)
    if backend in _BUCKETS:
        return bucket_log_opener(request, _BUCKETS[backend])
    if backend.startswith("host"):
        opened = open_writer if backend == "host-writer" else open_follower
        return lambda: opened(tmp_path / "log")
    return _local_log_opener(backend, tmp_path)


def _local_log_opener(backend: str, tmp_path: Path) -> Reopen:
    files: Files = OsFiles() if backend.startswith("os") else SimFiles()
    directory = tmp_path / "log" if backend.startswith("os") else SIM_DIRECTORY
    return lambda: open_log(directory, files, prepare_ahead=backend.endswith("prepared"))


async def test_a_new_log_is_empty(reopen: Reopen) -> None:
    log = await reopen()
    assert log.end == log.synced == 0
    assert log.objects() == []
    assert await commits(log) == []
    assert log.load_checkpoint() is None


async def test_commits_come_back_in_order_with_entry_and_payload(reopen: Reopen) -> None:
    log = await reopen()
    await append_samples(log, 120)
    assert await contents(log) == [sample_content(number) for number in range(120)]
    assert all(commit.payload_intact for commit in await commits(log))


async def test_commits_survive_a_clean_restart_and_go_on(reopen: Reopen) -> None:
    log = await reopen()
    await append_samples(log, 30)
    log = await reopen()
    assert log.end == log.synced == 30
    await append_samples(log, 30)
    log = await reopen()
    assert await contents(log) == [sample_content(number) for number in range(60)]


async def test_what_was_synced_as_it_was_written_needs_no_sync(reopen: Reopen) -> None:
    log = await reopen()
    for number in range(3):
        payload = [bytes([number]) * 50_000, bytes([number]) * 7]
        placement, sync_s = await log.append_synced(b"%d" % number, payload)
        assert placement.position == number
        assert sync_s is None or log.synced == number + 1
    assert await log.sync() == log.synced == 3
    log = await reopen()
    assert await contents(log) == [(number, b"%d" % number, bytes([number]) * 50_007) for number in range(3)]


async def test_follow_starts_anywhere(reopen: Reopen) -> None:
    log = await reopen()
    await append_samples(log, 60)
    for start in (0, 1, 29, 59, 60, 61):
        assert [place for place, _, _ in await contents(log, start)] == list(range(start, 60))


async def test_an_empty_entry_and_an_empty_payload_are_commits(reopen: Reopen) -> None:
    log = await reopen()
    await log.append(b"", [])
    await log.append(b"", [b""])
    await log.append(b"only entry", [])
    await log.append(b"", [b"only payload"])
    log = await reopen()
    expected = [(0, b"", b""), (1, b"", b""), (2, b"only entry", b""), (3, b"", b"only payload")]
    assert await contents(log) == expected


async def test_more_slices_than_the_kernel_takes_at_once(reopen: Reopen) -> None:
    log = await reopen()
    slices = [bytes([number % 256]) * 5000 for number in range(1500)]
    await log.append(b"many", slices)
    await log.append(b"after", [b"x"])
    assert await contents(log) == [(0, b"many", b"".join(slices)), (1, b"after", b"x")]


async def test_whoever_reads_without_the_broker_is_told_where_all_bytes_are(reopen: Reopen) -> None:
    log = await reopen()
    places = [await log.append(b"entry", [b"x" * size]) for size in (7, 0, 300, 20)]
    await log.roll()
    await log.append(b"next", [b"object"])
    for sealed in (False, True):
        if sealed:
            await log.seal(places[0].object, b"index")
        ranges = [(place.start, size) for place, size in zip(places, (7, 0, 300, 20), strict=True) if size]
        if log.url(places[0].object) is None:
            pieces = await log.pieces(places[0].object, ranges)
            assert pieces == sorted(pieces)
            for start, length in ranges:
                assert any(one.start <= start and start + length <= one.start + one.length for one in pieces)


async def test_payload_reads_are_fresh_and_writable(reopen: Reopen) -> None:
    log = await reopen()
    place = await log.append(b"entry", [memoryview(b"abc"), bytearray(b"def")])
    first = log.read(place.object, place.start + 1, 4)
    first[0] = 0
    assert log.read(place.object, place.start + 1, 4) == b"bcde"


async def test_sync_tells_how_far_all_is_durable(reopen: Reopen) -> None:
    log = await reopen()
    await append_samples(log, 50)
    assert log.synced == 0
    assert await log.sync() == log.synced == 50


async def test_sync_and_append_run_side_by_side(reopen: Reopen) -> None:
    log = await reopen()

    async def sync_often() -> None:
        for _ in range(20):
            assert await log.sync() <= log.end

    await asyncio.gather(append_samples(log, 200), sync_often())
    assert await contents(log) == [sample_content(number) for number in range(200)]


async def test_objects_cover_every_position_once(reopen: Reopen) -> None:
    log = await reopen()
    await append_samples(log, 100)
    objects = log.objects()
    assert len(objects) > 2
    assert objects[0].first_position == 0
    assert objects[-1].end_position == 100
    assert all(a.end_position == b.first_position for a, b in itertools.pairwise(objects))
    assert all(one.number < other.number for one, other in itertools.pairwise(objects))


async def test_roll_starts_a_new_object_and_is_a_no_op_on_an_empty_one(reopen: Reopen) -> None:
    log = await reopen()
    await log.roll()
    first = await log.append(b"a", [])
    await log.roll()
    await log.roll()
    second = await log.append(b"b", [])
    assert second.object == first.object + 1
    assert [one.end_position for one in log.objects()] == [1, 2]


async def test_a_sealed_object_gives_its_index_back_after_a_restart(reopen: Reopen) -> None:
    log = await reopen()
    place = await log.append(b"a", [b"payload"])
    await log.roll()
    await log.seal(place.object, b"the index")
    await log.seal(place.object, b"the index")
    log = await reopen()
    (found,) = log.objects()
    assert found.sealed
    assert log.read_index(place.object) == b"the index"
    assert (await log.append(b"b", [])).object == place.object + 1
    assert await contents(log) == [(0, b"a", b"payload"), (1, b"b", b"")]


async def test_an_empty_index_is_an_index(reopen: Reopen) -> None:
    log = await reopen()
    place = await log.append(b"a", [])
    await log.roll()
    await log.seal(place.object, b"")
    log = await reopen()
    assert log.read_index(place.object) == b""


async def test_sealing_what_still_takes_commits_is_refused(reopen: Reopen) -> None:
    log = await reopen()
    place = await log.append(b"a", [])
    with pytest.raises(InvariantBroken):
        await log.seal(place.object, b"index")


async def test_dropped_objects_are_gone_and_positions_go_on(reopen: Reopen) -> None:
    log = await reopen()
    await append_samples(log, 5)
    await log.roll()
    (only,) = log.objects()
    await log.seal(only.number, b"index")
    await log.drop(only.number)
    await log.drop(only.number)
    assert log.objects() == []
    with pytest.raises(FileNotFoundError):
        log.read(only.number, 64, 1)
    log = await reopen()
    assert log.end == 5
    assert (await log.append(b"next", [])).position == 5
    log = await reopen()
    assert await contents(log, 5) == [(5, b"next", b"")]


async def test_objects_may_be_dropped_in_any_order(reopen: Reopen) -> None:
    log = await reopen()
    for number in range(5):
        await log.append(b"%d" % number, [])
        await log.roll()
        await log.seal(log.objects()[-1].number, b"index")
    await log.drop(log.objects()[2].number)
    await log.drop(log.objects()[0].number)
    log = await reopen()
    assert [one.first_position for one in log.objects()] == [1, 3, 4]
    assert [place for place, _, _ in await contents(log, 3)] == [3, 4]
    assert log.end == 5


async def test_the_newest_checkpoints_are_kept(reopen: Reopen) -> None:
    log = await reopen()
    await append_samples(log, 4)
    await log.sync()
    for position in (1, 2, 4):
        await log.save_checkpoint(Checkpoint(position, b"state %d" % position * 5000))
    assert log.load_checkpoint() == Checkpoint(4, b"state 4" * 5000)
    log = await reopen()
    assert log.load_checkpoint() == Checkpoint(4, b"state 4" * 5000)


async def test_a_checkpoint_ahead_of_what_is_durable_is_refused(reopen: Reopen) -> None:
    log = await reopen()
    await append_samples(log, 4)
    with pytest.raises(InvariantBroken):
        await log.save_checkpoint(Checkpoint(4, b"state"))


async def test_a_cancelled_append_leaves_the_log_in_order(reopen: Reopen) -> None:
    log = await reopen()
    task = asyncio.ensure_future(log.append(b"cancelled", [b"x"]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    place = await log.append(b"next", [])
    assert place.position == 1
    assert [entry for _, entry, _ in await contents(log)] == [b"cancelled", b"next"]


async def test_a_closed_log_takes_nothing(reopen: Reopen) -> None:
    log = await reopen()
    await log.close()
    with pytest.raises(Closed):
        await log.append(b"late", [])
    with pytest.raises(Closed):
        await log.sync()
    await log.close()
