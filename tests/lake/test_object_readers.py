"""Objects of the log that lie in a store in pieces, as workers read them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from mainstem import limits
from mainstem.api.lake import StoredPiece
from mainstem.errors import NotFound
from mainstem.ports.commitlog.port import CommitLog, Piece
from mainstem.ports.commitlog.shared.bucket.commits import BUCKET_INLINE_BYTES_MAX
from mainstem.ports.commitlog.shared.bucket.log import BucketCommitLog
from mainstem.ports.commitlog.shared.etcd.directory import Directory
from mainstem.ports.commitlog.shared.etcd.keys import StoreKeys
from mainstem.ports.commitlog.shared.etcd.payloads import Payloads
from mainstem.ports.objectstore.blocking import BlockingStore, shared_loop
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.ports.objectstore.open import STORE_ENV, public_url, with_own_options
from mainstem.tables.parts import object_readers
from mainstem.tables.parts.object_readers import Content, open_pieces

STORE = "s3://bucket"


@pytest.fixture(params=["files", "a store"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the test's folder: as files of this machine, and as a store that is asked."""
    if request.param == "files":
        return tmp_path.as_uri()
    store = BlockingStore(LocalObjectStore(tmp_path), shared_loop())
    monkeypatch.setattr(object_readers, "open_blocking", lambda _: store)
    return STORE


def _read(url: str, pieces: list[Piece], ranges: list[tuple[int, int]]) -> Sequence[Content]:
    """As a worker does: without an event loop."""
    place = open_pieces(url, [StoredPiece(*piece) for piece in pieces])
    try:
        return place.read(ranges)
    finally:
        place.close()


async def _read_outside(log: CommitLog, url: str, ranges: list[tuple[int, int]]) -> Sequence[Content]:
    return await asyncio.to_thread(_read, url, await log.pieces(1, ranges), ranges)


async def test_a_worker_reads_of_a_bucket_log_what_its_broker_reads(tmp_path: Path, url: str) -> None:
    log = await BucketCommitLog.open(LocalObjectStore(tmp_path))
    sizes = [10, 0, BUCKET_INLINE_BYTES_MAX + 5, 3, limits.STORE_OBJECT_BYTES_MAX + 7, 100]
    try:
        starts = [
            (await log.append(b"entry", [bytes([65 + number]) * size])).start
            for number, size in enumerate(sizes)
        ]
        ranges = [(start, size) for start, size in zip(starts, sizes, strict=True) if size]
        ranges += [
            (2, 4),
            (starts[4] + limits.STORE_OBJECT_BYTES_MAX - 3, 6),
            (5, BUCKET_INLINE_BYTES_MAX),
        ]
        expected = [bytes(await asyncio.to_thread(log.read, 1, *one)) for one in ranges]
        assert await _read_outside(log, url, ranges) == expected
        await log.roll()
        await log.append(b"next", [b"object"])
        await log.seal(1, b"index")
        kinds = {Path(piece.key).parts[1] for piece in await log.pieces(1, ranges)}
        assert kinds == {"objects", "wal"}  # what is small was packed, what is large stays where it is
        assert await _read_outside(log, url, ranges) == expected
    finally:
        await log.close()


async def test_a_read_over_what_nobody_asked_for_keeps_the_rest_in_its_place(
    tmp_path: Path, url: str
) -> None:
    log = await BucketCommitLog.open(LocalObjectStore(tmp_path))
    try:
        for slice in (b"mine", b"of another", b"mine too"):
            await log.append(b"entry", [slice])
        pieces = await log.pieces(1, [(0, 4), (14, 8)])
    finally:
        await log.close()
    (found,) = await asyncio.to_thread(_read, url, pieces, [(0, 22)])
    assert (found[:4], found[14:]) == (b"mine", b"mine too")


async def test_what_etcd_names_is_read_payload_by_payload(tmp_path: Path, url: str) -> None:
    store = LocalObjectStore(tmp_path)
    payloads = Payloads(store, StoreKeys("log"))
    directory = Directory()
    content = b""
    for number in range(5):
        data = bytes([97 + number]) * (number * 11)
        directory.add(len(content), len(data), bytes([number]) * 16)
        if data:
            await payloads.put(bytes([number]) * 16, [data, b"an entry behind it"])
        content += data
    ranges = [(0, 11), (5, 20), (30, 80), (12, 3)]
    found = await asyncio.to_thread(
        _read,
        url,
        payloads.pieces([(start, directory.pieces(start, length)) for start, length in ranges]),
        ranges,
    )
    assert found == [content[start : start + length] for start, length in ranges]


def test_to_read_a_store_leaves_the_signals_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting a signal handler makes Python format the previous one: a task, with everything that it read."""
    store = BlockingStore(LocalObjectStore(tmp_path), shared_loop())
    monkeypatch.setattr(object_readers, "open_blocking", lambda _: store)
    (tmp_path / "key").write_bytes(b"content")
    handled: list[object] = []
    monkeypatch.setattr(signal, "signal", lambda *of: handled.append(of))
    assert _read(STORE, [Piece(10, 7, "key", 0)], [(12, 3)]) == [b"nte"]
    place = object_readers.open_object_reader(f"{STORE}/key")
    assert place.read([(0, 3)]) == [b"con"]
    place.close()
    assert not handled


def test_an_object_that_is_gone_is_said_so_wherever_it_was(url: str) -> None:
    with pytest.raises(NotFound):
        _read(url, [Piece(0, 4, "gone", 0)], [(0, 4)])


def test_a_plan_names_no_secret_and_a_worker_uses_its_own() -> None:
    whole = "s3://bucket/a?endpoint=http://h:1&access_key_id=AK&secret_access_key=S%2FK%2B&region=r"
    named = public_url(whole)
    assert named == "s3://bucket/a?endpoint=http://h:1&region=r"
    own = "s3://bucket/elsewhere?endpoint=http://h:2&access_key_id=mine&secret_access_key=S%2FK%2B"
    found = with_own_options(named, {STORE_ENV: own})
    assert found.startswith("s3://bucket/a?endpoint=http://h:2&region=r&access_key_id=mine")
    assert "S%2FK%2B" in found or "S/K%2B" in found
    for other in ("s3://another/a?access_key_id=mine", "s3://bucket/a", "gs://bucket/a?skip_signature=true"):
        assert with_own_options(named, {STORE_ENV: other}) == named
    assert with_own_options("file:///a", {STORE_ENV: own}) == "file:///a"
