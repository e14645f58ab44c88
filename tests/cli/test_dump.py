"""`mainstem dump`: files shown as they are, damage included."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.log.objects.repack.plan import RepackOptions
from tests.support.stored import StoredLog, options, write_records

from .conftest import Outcome, Shell


@pytest.fixture
def stored(tmp_path: Path) -> StoredLog:
    """A closed log, with a group's offset, a deleted topic and a torn-off copy in `crashed`."""

    async def write() -> None:
        broker = await Broker.open(options(tmp_path / "data"))
        await write_records(broker, 20)
        await broker.create_topic("brief")
        await broker.delete_topic("brief")
        await broker.commit_offset("readers", "orders", 4, partition=1)
        await broker.log.sync()
        shutil.copytree(tmp_path / "data", tmp_path / "crashed")
        await broker.close()

    asyncio.run(write())
    return StoredLog(tmp_path / "data")


def lines(outcome: Outcome) -> list[Any]:
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def of_kind(items: list[Any], kind: str) -> list[Any]:
    return [item for item in items if item["kind"] == kind]


def test_a_segment_shows_every_commit_in_words(shell: Shell, stored: StoredLog) -> None:
    outcome = shell("dump", str(stored.wal(1)))
    assert outcome.code == 0
    text = outcome.text.splitlines()
    assert text[0].startswith("segment 1 of log ")
    assert "broker 1 (local) boots" in text[2]
    assert "create topic 'orders' with 2 partitions" in text[4]
    append = next(line for line in text if "append stream 1" in line)
    assert "offsets 0-2  batches 1  bytes " in append
    assert append.endswith("crc ok")
    assert "DAMAGED" not in outcome.text
    assert text[-1].split()[1:] == ["footer:", "positions", f"0-{stored.footer(1).end - 1}"]
    last = shell("dump", str(stored.wal(stored.segments[-1]))).text
    assert "delete the topic with id" in last
    assert "group 'readers' commits offsets: stream 1 to 4" in last
    assert "broker 1 halts" in last


def test_json_lines_give_each_frame_and_slice(shell: Shell, stored: StoredLog) -> None:
    items = lines(shell("dump", "--json", str(stored.wal(1))))
    assert [item["kind"] for item in items[:2]] == ["segment", "commit"]
    commits = of_kind(items, "commit")
    frames = [one.frame for one in stored.frames(1)]
    assert [(item["start"], item["end"], item["position"], item["synced"]) for item in commits] == [
        (frame.start, frame.end, frame.position, frame.synced) for frame in frames
    ]
    appends = [part for item in commits for part in item["parts"] if part["kind"] == "append"]
    rows = sorted(stored.index(1).rows.tolist(), key=lambda row: row[3])
    assert [
        (part["stream"], part["count"], part["offset"], part["start"], part["bytes"]) for part in appends
    ] == [row[:5] for row in rows]
    (index,) = of_kind(items, "index")
    assert len(index["spans"]) == 3
    assert items[-1]["kind"] == "footer"


def test_records_are_decoded_on_request(shell: Shell, stored: StoredLog) -> None:
    commits = of_kind(lines(shell("dump", "--json", "--records", str(stored.wal(1)))), "commit")
    (first,) = (part for part in commits[3]["parts"] if part["kind"] == "append")
    assert [record["offset"] for record in first["records"]] == [0, 1, 2]
    assert first["records"][1]["value"] == "order 0.1 " * 6
    (user,) = (part for part in commits[4]["parts"] if part["kind"] == "append")
    assert user["records"][0]["key"] == "k"
    assert 'value="order 0.1 order' in shell("dump", "--records", str(stored.wal(1))).text


def test_from_and_limit_choose_commits(shell: Shell, stored: StoredLog) -> None:
    items = lines(shell("dump", "--json", "--from", "4", "--limit", "3", str(stored.wal(1))))
    assert [item["position"] for item in of_kind(items, "commit")] == [4, 5, 6]
    assert items[-1]["kind"] == "footer"


def test_damage_is_shown_and_the_dump_goes_on_after_it(shell: Shell, stored: StoredLog) -> None:
    frames = [one.frame for one in stored.frames(1)]
    path = stored.wal(1)
    stored.flip(path, 20)  # the header
    stored.flip(path, frames[3].payload_start + 70)
    stored.flip(path, frames[4].start + 9)
    stored.flip(path, frames[5].tail_start + 9)
    for at in (frames[7].start + 9, frames[7].tail_start + 9):
        stored.flip(path, at)
    stored.flip(path, stored.footer(1).index_a + 8)
    items = lines(shell("dump", "--json", str(path)))
    assert items[0]["header"] == "damaged"
    commits = {item["position"]: item for item in of_kind(items, "commit")}
    assert commits[3]["payload"] == "damaged"
    assert commits[3]["parts"][0]["fault"] == "do not match their checksum"
    assert (commits[4]["first_copy"], commits[4]["second_copy"]) == ("damaged", "whole")
    assert (commits[5]["first_copy"], commits[5]["second_copy"]) == ("whole", "damaged")
    (gap,) = of_kind(items, "damage")
    assert (gap["start"], gap["end"]) == (frames[7].start, frames[7].end)
    assert (gap["position"], gap["next_position"]) == (7, 8)
    assert sorted(commits) == [frame.position for frame in frames if frame.position != 7]
    (index,) = of_kind(items, "index")
    assert (index["first_copy"], index["second_copy"]) == ("damaged", "whole")
    text = shell("dump", str(path)).text
    for words in ("HEADER DAMAGED", "PAYLOAD DAMAGED", "FIRST COPY DAMAGED", "SECOND COPY DAMAGED"):
        assert words in text
    assert f"{frames[7].start}-{frames[7].end}  DAMAGED: no whole commit, from position 7 to 7" in text


def test_a_file_that_is_not_sealed_shows_its_torn_end_and_the_space_ahead(
    shell: Shell, stored: StoredLog, tmp_path: Path
) -> None:
    crashed = StoredLog(tmp_path / "crashed")
    number = next(number for number in reversed(crashed.segments) if crashed.frames(number))
    last = crashed.frames(number)[-1].frame
    path = crashed.wal(number)
    path.write_bytes(path.read_bytes()[: last.start + 50] + bytes(3_000_000))
    items = lines(shell("dump", "--json", str(path)))
    torn, space = items[-2:]
    assert (torn["kind"], torn["start"], torn["position"]) == ("damage", last.start, last.position)
    assert last.start + 48 <= torn["end"] <= last.start + 50
    assert (space["kind"], space["start"], space["end"]) == ("space", torn["end"], last.start + 3_000_050)
    commits = of_kind(items, "commit")
    assert all(
        part["offset"] is None for item in commits for part in item["parts"] if part["kind"] == "append"
    )


def test_a_piece_of_a_segment_without_header_can_be_read(
    shell: Shell, stored: StoredLog, tmp_path: Path
) -> None:
    frame = stored.frames(1)[2].frame
    piece = tmp_path / "piece-0.wal"
    piece.write_bytes(stored.wal(1).read_bytes()[frame.start : stored.footer(1).index_a])
    commits = of_kind(lines(shell("dump", "--json", str(piece))), "commit")
    assert [item["position"] for item in commits] == list(range(2, stored.footer(1).end))


def test_a_checkpoint_shows_topics_streams_groups_and_brokers(shell: Shell, stored: StoredLog) -> None:
    (path,) = stored.checkpoints
    items = lines(shell("dump", "--json", str(path)))
    assert items[0]["position"] == int(path.stem)
    assert [(item["name"], item["partitions"]) for item in of_kind(items, "topic")] == [
        ("orders", 2),
        ("users", 1),
    ]
    streams = of_kind(items, "stream")
    assert [(item["partition"], item["end"]) for item in streams] == [
        ("orders/0", 30),
        ("orders/1", 30),
        ("users/0", 7),
        (None, 0),
    ]
    (group,) = of_kind(items, "group")
    assert group["offsets"] == [{"stream": 1, "partition": "orders/1", "offset": 4}]
    assert of_kind(items, "broker")[0]["halted"] is True
    text = shell("dump", str(path)).text
    assert "stream 1  orders/1  offsets 0 to 30  30 records" in text
    assert "group 'readers'  orders/1 at 4" in text
    assert len(of_kind(lines(shell("dump", "--json", "--limit", "2", str(path))), "stream")) == 2


def test_a_damaged_checkpoint_is_shown_as_such(shell: Shell, stored: StoredLog) -> None:
    (path,) = stored.checkpoints
    stored.flip(path, 100)
    _, damage = lines(shell("dump", "--json", str(path)))
    assert (damage["kind"], damage["what"]) == ("damage", "the file does not match its checksum")
    assert "DAMAGED: the file does not match its checksum" in shell("dump", str(path)).text


@pytest.fixture
def repacked(tmp_path: Path) -> Path:
    """A file in which records of two streams stand together."""

    async def write() -> None:
        now = RepackOptions(on=False, after_objects=1, least_bytes=0, bytes_per_s=0)
        broker = await Broker.open(BrokerOptions(tmp_path / "data", segment_bytes=4096, repack=now))
        for topic in ("a", "b", "empty"):
            await broker.create_topic(topic)
        for number in range(60):
            await broker.append_values("ab"[number % 2], [b"%d" % number + b"." * 100])
        assert broker.log.repacker is not None
        assert await broker.log.repacker.step()
        await broker.close()

    asyncio.run(write())
    (path,) = (tmp_path / "data" / "objects" / "repacked").iterdir()
    return path


def test_a_repacked_file_shows_streams_offsets_and_records(shell: Shell, repacked: Path) -> None:
    text = shell("dump", str(repacked)).text
    assert "repacked file" in text
    assert "replaces segments 0 to " in text
    assert "first copy whole, second copy whole" in text
    items = lines(shell("dump", "--json", "--records", str(repacked)))
    extents = of_kind(items, "extent")
    assert all(extent["crc"] == "ok" for extent in extents)
    for stream in {extent["stream"] for extent in extents}:
        records = [record for extent in extents if extent["stream"] == stream for record in extent["records"]]
        assert [record["offset"] for record in records] == list(range(len(records)))
        (span,) = [one for one in of_kind(items, "index")[0]["spans"] if one["stream"] == stream]
        assert (span["start"], span["end"]) == (0, len(records))
        assert [int(record["value"].rstrip(".")) % 2 for record in records] == [stream % 2] * len(records)
    assert len(of_kind(lines(shell("dump", "--json", "--limit", "1", str(repacked))), "extent")) == 1
    assert shell("dump", "--from", "3", str(repacked)).code == 2


def test_damage_in_a_repacked_file_is_shown(shell: Shell, repacked: Path) -> None:
    whole = repacked.read_bytes()
    (index,) = of_kind(lines(shell("dump", "--json", str(repacked))), "index")
    extent = of_kind(lines(shell("dump", "--json", str(repacked))), "extent")[0]
    repacked.write_bytes(_flipped(whole, 0, extent["start"] + 70))
    text = shell("dump", str(repacked)).text
    assert "first copy DAMAGED, second copy whole" in text
    assert "DAMAGED" in next(line for line in text.splitlines() if "offsets 0-" in line)
    repacked.write_bytes(_flipped(whole, index["start"] + 20, index["end"] - 20))
    assert "both copies of its index are damaged" in shell("dump", str(repacked)).text
    for cut in (0, 8, 63, 64, 100, len(whole) - 1):
        repacked.write_bytes(whole[:cut])
        assert shell("dump", str(repacked)).code == (1 if cut < 8 else 0)


def _flipped(data: bytes, *places: int) -> bytes:
    changed = bytearray(data)
    for place in places:
        changed[place] ^= 1
    return bytes(changed)


def test_other_files_are_refused(shell: Shell, stored: StoredLog) -> None:
    outcome = shell("dump", str(stored.directory / "FORMAT"))
    assert outcome.code == 1
    assert "is not a log file (.wal), a checkpoint (.ckpt) or a repacked file" in outcome.err
    assert shell("dump", "nowhere.wal").code == 2
    assert shell("dump", "--from", "3", str(stored.checkpoints[0])).code == 2


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"MNSTMWAL", b"\xff" * 5000])
@pytest.mark.parametrize("name", ["00000000000000000001.wal", "x.wal", "00000000000000000001.ckpt"])
def test_hostile_files_are_shown_as_damage(shell: Shell, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert shell("dump", name).code == 0
    assert not of_kind(lines(shell("dump", "--json", name)), "commit")
