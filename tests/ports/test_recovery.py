"""What opening a log makes of damage: kept, repaired, cut or refused, each by its rule."""

from __future__ import annotations

import pytest

from mainstem.errors import LogDamaged
from mainstem.ports.commitlog.local.log import LocalCommitLog, open_reader, segments
from mainstem.ports.commitlog.port import Checkpoint, Placement
from mainstem.ports.files import read_up_to, write_all
from tests.support.files import SimFiles, SimulatedCrash

from .logs import SIM_DIRECTORY, append_samples, commits, contents, open_log, sample_content

WAL = SIM_DIRECTORY / "wal"
FIRST = segments.segment_path(WAL, 1)
HEAD = 48  # bytes of a frame's head, and of its tail
ENTRY, PAYLOAD = b"an entry", b"a payload of some bytes"


class Wal:
    """A log on a simulated disk, and where its frames lie."""

    def __init__(self) -> None:
        self.files = SimFiles()
        self.places: list[Placement] = []

    async def fill(self, count: int, *, sync_at: tuple[int, ...] = (), roll_at: tuple[int, ...] = ()) -> None:
        """Append, and go down without closing."""
        log = await self.open()
        for number in range(count):
            if number in sync_at:
                await log.sync()
            if number in roll_at:
                await log.roll()
            self.places.append(await log.append(ENTRY, [PAYLOAD]))
        self.files = self.files.reboot("kept")
        await abandon(log)

    async def open(self) -> LocalCommitLog:
        return await open_log(SIM_DIRECTORY, self.files, segment_bytes=1 << 20)

    def head(self, position: int) -> int:
        return self.places[position].start - len(ENTRY) - HEAD

    def tail(self, position: int) -> int:
        return (self.places[position].start + len(PAYLOAD) + len(ENTRY) + 7) & -8

    def damage_head(self, position: int) -> None:
        self._flip(position, self.head(position) + 20)

    def damage_payload(self, position: int) -> None:
        self._flip(position, self.places[position].start + 3)

    def damage_tail(self, position: int) -> None:
        self._flip(position, self.tail(position) + 20)

    def destroy(self, position: int) -> None:
        """Neither copy of the entry is left."""
        self.damage_head(position)
        self.damage_tail(position)

    def _flip(self, position: int, byte: int) -> None:
        self.files.flip_bit(segments.segment_path(WAL, self.places[position].object), byte, 5)


async def abandon(log: LocalCommitLog) -> None:
    """The process is gone: end its threads. Its disk is down, so nothing reaches it."""
    with pytest.raises(SimulatedCrash):
        await log.close()


async def intact(log: LocalCommitLog) -> list[bool]:
    return [commit.payload_intact for commit in await commits(log)]


async def test_the_last_commit_stays_if_only_its_trailing_copy_is_damaged() -> None:
    wal = Wal()
    await wal.fill(3)
    wal.damage_tail(2)
    log = await wal.open()
    assert await intact(log) == [True, True, True]
    assert log.recovered.repaired_copies == 1
    assert log.recovered.cut_bytes == 0
    await log.close()


async def test_the_last_commit_stays_if_only_its_leading_copy_is_damaged() -> None:
    wal = Wal()
    await wal.fill(3)
    wal.damage_head(2)
    log = await wal.open()
    assert await intact(log) == [True, True, True]
    assert log.recovered.repaired_copies == 1
    await log.close()


async def test_a_damaged_last_payload_between_whole_copies_is_damage_not_a_torn_write() -> None:
    wal = Wal()
    await wal.fill(3)
    wal.damage_payload(2)
    log = await wal.open()
    assert await intact(log) == [True, True, False]
    assert log.recovered.damaged_positions == [2]
    await log.close()


async def test_recovery_truncates_a_torn_last_commit_and_nothing_else() -> None:
    wal = Wal()
    await wal.fill(3)
    wal.damage_payload(2)
    wal.damage_tail(2)
    log = await wal.open()
    assert await intact(log) == [True, True]
    assert log.end == 2
    assert log.recovered.cut_bytes == wal.tail(2) + HEAD - wal.head(2)
    assert log.recovered.quarantined == []
    assert (await log.append(b"new", [b"x"])).position == 2
    await log.close()


async def test_a_torn_first_commit_leaves_an_empty_log() -> None:
    wal = Wal()
    await wal.fill(1)
    wal.damage_payload(0)
    wal.damage_tail(0)
    log = await wal.open()
    assert log.end == 0
    assert (await log.append(b"new", [b"x"])).position == 0
    assert await contents(log) == [(0, b"new", b"x")]
    await log.close()


@pytest.mark.parametrize("roll_at", [(), (2,)])
async def test_a_damaged_commit_that_others_follow_stays_by_its_leading_copy(
    roll_at: tuple[int, ...],
) -> None:
    wal = Wal()
    await wal.fill(3, roll_at=roll_at)
    wal.damage_payload(1)
    wal.damage_tail(1)
    log = await wal.open()
    assert await intact(log) == [True, False, True]
    await log.close()


async def test_a_damaged_commit_below_a_checkpoint_is_not_taken_for_a_torn_one() -> None:
    wal = Wal()
    log = await wal.open()
    wal.places.append(await log.append(ENTRY, [PAYLOAD]))
    await log.sync()
    await log.save_checkpoint(Checkpoint(1, b"state"))
    wal.files = wal.files.reboot("kept")
    await abandon(log)
    wal.damage_payload(0)
    wal.damage_tail(0)
    log = await wal.open()
    assert await intact(log) == [False]
    await log.close()


@pytest.mark.parametrize("roll_at", [(), (2,), (1, 2, 3)])
async def test_a_log_with_both_copies_of_a_durable_commit_damaged_does_not_open(
    roll_at: tuple[int, ...],
) -> None:
    wal = Wal()
    await wal.fill(4, sync_at=(3,), roll_at=roll_at)
    wal.destroy(1)
    before = wal.files.calls
    with pytest.raises(LogDamaged, match=r"positions 1 to .* were durable") as refused:
        await wal.open()
    assert "mainstem check" in str(refused.value)
    assert "backup" in str(refused.value)
    assert wal.files.calls == before  # refusing changes nothing


async def test_the_refusal_names_file_bytes_and_positions() -> None:
    wal = Wal()
    await wal.fill(5, sync_at=(4,))
    wal.destroy(1)
    wal.destroy(2)
    with pytest.raises(LogDamaged) as refused:
        await wal.open()
    assert f"{FIRST} is damaged from byte {wal.head(1)} to {wal.head(3)}" in str(refused.value)
    assert "positions 1 to 2" in str(refused.value)


@pytest.mark.parametrize("roll_at", [(), (2,), (3,), (1, 2, 3)])
async def test_a_gap_in_the_tail_that_never_was_durable_is_cut_and_set_aside(
    roll_at: tuple[int, ...],
) -> None:
    wal = Wal()
    await wal.fill(4, sync_at=(1,), roll_at=roll_at)
    wal.destroy(1)
    log = await wal.open()
    assert log.end == 1
    assert await intact(log) == [True]
    assert log.recovered.quarantined
    set_aside = b"".join(
        bytes(read_up_to(wal.files.open(path), 0, 1 << 20)) for path in log.recovered.quarantined
    )
    assert set_aside.count(PAYLOAD) >= 2  # the two whole commits after the gap
    await log.append(b"new", [])
    await log.close()
    again = await wal.open()
    assert [entry for _, entry, _ in await contents(again)] == [ENTRY, b"new"]
    assert again.recovered.quarantined == []
    await again.close()


async def test_what_was_cut_never_comes_back_behind_new_commits() -> None:
    wal = Wal()
    await wal.fill(4)
    wal.destroy(1)
    log = await wal.open()
    assert (await log.append(ENTRY, [PAYLOAD])).start == wal.places[1].start  # same size, same place
    wal.files = wal.files.reboot("kept")
    await abandon(log)
    again = await wal.open()
    assert again.end == 2
    await again.close()


async def test_positions_below_a_checkpoint_cannot_be_missing_at_the_end() -> None:
    wal = Wal()
    log = await wal.open()
    await append_samples(log, 3)
    await log.sync()
    await log.save_checkpoint(Checkpoint(3, b"state"))
    await log.close()
    file = wal.files.open(FIRST, write=True)
    file.ftruncate(segments.HEADER_BYTES)
    with pytest.raises(LogDamaged, match="but a checkpoint covers all before 3"):
        await wal.open()


@pytest.mark.parametrize("content", [b"", b"no log, but somebody's bytes" * 100])
async def test_an_unreadable_file_below_a_checkpoint_is_missing(content: bytes) -> None:
    wal = await _with_unreadable_second_file(content, checkpoint=True)
    log = await wal.open()
    assert [
        number for number in (1, 2, 3) if segments.segment_path(WAL, number).name in wal.files.listdir(WAL)
    ] == [1, 3]
    assert len(log.recovered.quarantined) == (1 if content else 0)
    assert log.end == 3
    await log.close()


async def test_an_unreadable_file_that_no_checkpoint_covers_is_named() -> None:
    wal = await _with_unreadable_second_file(b"", checkpoint=False)
    with pytest.raises(
        LogDamaged, match=r"0002\.wal holds no commit that can be read: positions 1 to 1 were durable"
    ):
        await wal.open()


async def _with_unreadable_second_file(content: bytes, *, checkpoint: bool) -> Wal:
    """Three files of one commit each, of which the second one now has this content."""
    wal = Wal()
    log = await wal.open()
    for number in range(3):
        await append_samples(log, 1)
        await log.sync()
        if number < 2:
            await log.roll()
    if checkpoint:
        await log.save_checkpoint(Checkpoint(3, b"state"))
    await log.close()
    file = wal.files.open(segments.segment_path(WAL, 2), write=True)
    file.ftruncate(0)
    write_all(file, [content], 0)
    file.close()
    return wal


async def test_a_damaged_file_below_a_checkpoint_can_be_moved_away() -> None:
    wal = Wal()
    log = await wal.open()
    wal.places = [await log.append(ENTRY, [PAYLOAD]) for _ in range(3)]
    await log.roll()
    wal.places.append(await log.append(ENTRY, [PAYLOAD]))
    await log.sync()
    await log.save_checkpoint(Checkpoint(4, b"state"))
    await log.close()
    file = wal.files.open(FIRST, write=True)
    file.ftruncate(wal.head(1) + 10)
    with pytest.raises(LogDamaged, match="to start without it, move this file elsewhere"):
        await wal.open()
    wal.files.unlink(FIRST)
    log = await wal.open()
    assert log.end == 4
    await log.close()


async def test_a_segment_that_was_only_being_created_is_removed() -> None:
    wal = Wal()
    await wal.fill(2)
    for number, content in ((2, b""), (3, b"MNSTM"), (4, bytes(4096))):
        file = wal.files.create(segments.segment_path(WAL, number))
        write_all(file, [content], 0)
    log = await wal.open()
    assert log.end == 2
    assert wal.files.listdir(WAL) == [FIRST.name]
    await log.close()


async def test_files_that_are_no_segments_are_left_alone() -> None:
    wal = Wal()
    await wal.fill(2)
    for name in ("notes.txt", "1.wal", "٠" * 20 + ".wal"):
        wal.files.create(WAL / name)
    log = await wal.open()
    assert log.end == 2
    await log.close()
    assert "notes.txt" in wal.files.listdir(WAL)


async def test_a_payload_that_looks_like_frames_is_only_a_payload() -> None:
    wal = Wal()
    await wal.fill(3)
    raw = bytes(read_up_to(wal.files.open(FIRST), segments.HEADER_BYTES, 1 << 16))
    log = await wal.open()
    wal.places.append(await log.append(ENTRY, [raw]))
    wal.files = wal.files.reboot("kept")
    await abandon(log)
    wal.files.flip_bit(FIRST, wal.head(3) + 4, 0)
    log = await wal.open()
    found = await contents(log)
    assert found[3] == (3, ENTRY, raw)
    assert log.end == 4
    await log.close()


async def test_frames_of_another_log_are_not_taken_for_ours() -> None:
    ours, other = Wal(), Wal()
    await ours.fill(2)
    await other.fill(5)
    foreign = bytes(read_up_to(other.files.open(FIRST), other.head(2), 1 << 16))
    write_all(ours.files.open(FIRST, write=True), [foreign], ours.tail(1) + HEAD)
    log = await ours.open()
    assert log.end == 2
    assert log.recovered.cut_bytes > 0
    await log.close()


async def test_a_reader_sees_sealed_segments_without_the_lock() -> None:
    wal = Wal()
    log = await wal.open()
    await append_samples(log, 4)
    await log.roll()
    await log.seal(1, b"index")
    await append_samples(log, 2)
    reader = open_reader(SIM_DIRECTORY, files=wal.files)
    found = [commit async for chunk in reader.follow(1) for commit in chunk]
    assert [bytes(commit.entry) for commit in found] == [sample_content(number)[1] for number in (1, 2, 3)]
    assert reader.end == 4
    assert reader.read_index(1) == b"index"
    await reader.save_checkpoint(Checkpoint(4, b"made by a reader"))
    assert log.load_checkpoint() == Checkpoint(4, b"made by a reader")
    await reader.close()
    await log.close()


async def test_both_index_copies_damaged_is_told_when_the_index_is_read() -> None:
    wal = Wal()
    log = await wal.open()
    await append_samples(log, 2)
    await log.roll()
    await log.seal(1, b"index")
    size, at = log.objects()[0].size_bytes, 64 + 64 + 8
    await log.close()
    wal.files.flip_bit(FIRST, size - at, 0)
    wal.files.flip_bit(FIRST, size - at - 72, 0)
    log = await wal.open()
    with pytest.raises(LogDamaged, match="both copies of the index"):
        log.read_index(1)
    await log.close()


async def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before() -> None:
    wal = Wal()
    log = await wal.open()
    await append_samples(log, 2)
    await log.sync()
    await log.save_checkpoint(Checkpoint(1, b"older"))
    await log.save_checkpoint(Checkpoint(2, b"newer"))
    wal.files.flip_bit(SIM_DIRECTORY / "checkpoints" / f"{2:020d}.ckpt", 66, 1)
    assert log.load_checkpoint() == Checkpoint(1, b"older")
    await log.close()


async def test_a_commit_lost_inside_a_sealed_object_is_told_when_it_is_reached() -> None:
    wal = Wal()
    log = await wal.open()
    for _ in range(4):
        wal.places.append(await log.append(ENTRY, [PAYLOAD]))
    await log.roll()
    await log.seal(1, b"index")
    await log.close()
    wal.destroy(2)
    log = await wal.open()
    with pytest.raises(LogDamaged, match=f"{FIRST} is damaged from byte {wal.head(2)} on .* position 2"):
        await commits(log)
    await log.close()
