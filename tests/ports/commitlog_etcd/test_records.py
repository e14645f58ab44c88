"""What stands in etcd, byte by byte: damage is told, and so is a newer version."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import LogDamaged, NewerVersion
from mainstem.ports.commitlog.shared.core.backend import Floor
from mainstem.ports.commitlog.shared.etcd.client import EtcdClient
from mainstem.ports.commitlog.shared.etcd.directory import Directory
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys, number_in
from mainstem.ports.commitlog.shared.etcd.records import (
    COMMIT,
    ENTRY_APART,
    CommitRecord,
    LastCommit,
    Pointer,
    Seal,
    check_entry,
    floor_bound,
    pack_commit,
    pack_floor,
    unpack_commit,
)

from ..logs import append_samples, contents
from .logs import Ground

RECORD = CommitRecord(0, 5, 70, 0x1234, 9, 3, 4096, 8, 77, b"0123456789abcdef")
SEAL = Seal(0, 3, 5, 10, 900, 12, 1_700_000_000_000, 0xBEEF, b"0123456789abcdef")
POINTER = Pointer(0, 10, 5000, 0xBEEF, b"0123456789abcdef")


def test_records_keep_their_layout() -> None:
    assert pack_commit(RECORD, b"entry").hex() == (
        "cddf55c4010000000500000046000000341200000900000000000000030000000000000000100000000000000800000000000000"
        "4d0000000000000030313233343536373839616263646566656e747279"
    )
    assert SEAL.pack()[4:].hex() == (
        "01000000030000000000000005000000000000000a0000000000000084030000000000000c000000000000000068e5cf8b010000"
        "efbe000030313233343536373839616263646566"
    )
    assert pack_floor(Floor(9, 3)).hex() == "00000000000000090000000000000003"
    assert (
        LastCommit(9, b"0123456789abcdef").pack().hex() == "000000000000000930313233343536373839616263646566"
    )


def test_a_commit_comes_back_with_its_entry_wherever_that_stands() -> None:
    inline = pack_commit(RECORD, b"entry")
    assert unpack_commit(inline, 9, 77) == RECORD
    check_entry(RECORD, inline, inline[COMMIT.size :])
    apart = RECORD._replace(flags=ENTRY_APART)
    packed = pack_commit(apart, b"entry")
    assert len(packed) == COMMIT.size
    check_entry(unpack_commit(packed, 9, 77), packed, b"entry")
    with pytest.raises(LogDamaged):
        check_entry(apart, packed, b"other")


def test_every_flipped_byte_of_a_commit_is_found() -> None:
    packed = pack_commit(RECORD, b"entry")
    for at in range(len(packed)):
        damaged = bytearray(packed)
        damaged[at] ^= 0x40
        value = bytes(damaged)
        with pytest.raises((LogDamaged, NewerVersion)):
            check_entry(unpack_commit(value, 9, 77), value, value[COMMIT.size :])


@pytest.mark.parametrize("length", [0, 3, COMMIT.size - 1])
def test_a_commit_cut_short_is_found(length: int) -> None:
    with pytest.raises(LogDamaged, match="at position 9"):
        unpack_commit(pack_commit(RECORD, b"entry")[:length], 9, 77)


@pytest.mark.parametrize("record", [SEAL, POINTER], ids=["seal", "pointer"])
def test_every_flipped_byte_of_a_record_is_found(record: Seal | Pointer) -> None:
    packed = record.pack()
    assert type(record).unpack(packed) == record
    for at in range(len(packed)):
        damaged = bytearray(packed)
        damaged[at] ^= 0x01
        with pytest.raises(LogDamaged):
            type(record).unpack(bytes(damaged))
    with pytest.raises(LogDamaged):
        type(record).unpack(packed[:-1])


@pytest.mark.parametrize("record", [SEAL, POINTER], ids=["seal", "pointer"])
def test_a_newer_version_is_told_from_damage(record: Seal | Pointer) -> None:
    rest = b"\2\0" + record.pack()[6:]
    with pytest.raises(NewerVersion):
        type(record).unpack(crc32c(rest).to_bytes(4, "little") + rest)


@given(position=st.integers(0, 1 << 62), floor=st.integers(0, 1 << 62), number=st.integers(0, (1 << 64) - 1))
@settings(max_examples=200, deadline=None)
def test_a_floor_sorts_before_a_bound_exactly_if_the_position_is_not_truncated(
    position: int, floor: int, number: int
) -> None:
    assert (pack_floor(Floor(floor, number)) < floor_bound(position)) == (floor <= position)


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(0, 600), st.integers(0, 600))
@settings(max_examples=300, deadline=None)
def test_a_directory_finds_every_byte_of_every_range(lengths: list[int], start: int, length: int) -> None:
    directory, whole, payloads = Directory(), b"", {}
    for number, size in enumerate(lengths):
        id = number.to_bytes(16, "big")
        payloads[id] = bytes((len(whole) + at) % 251 for at in range(size))
        directory.add(len(whole), size, id)
        whole += payloads[id]
    directory = Directory.unpack(directory.pack())
    pieces = directory.pieces(start, length)
    assert (
        b"".join(payloads[id][at : at + taken] for id, at, taken in pieces) == whole[start : start + length]
    )


def test_keys_sort_as_their_numbers_do() -> None:
    keys = EtcdKeys.under("p/")
    numbers = [0, 1, 9, 10, 99, 12_345, 1 << 60]
    listed = [keys.commit(number) for number in numbers]
    assert sorted(listed) == listed
    assert all(key < keys.commits_end for key in listed)
    assert [number_in(key) for key in listed] == numbers


async def test_a_commit_damaged_in_etcd_is_damage_not_silence(ground: Ground, client: EtcdClient) -> None:
    log = await ground.open()
    await append_samples(log, 5)
    (pair,) = (await client.range(ground.keys.commit(3))).kvs
    await ground.put(client, {pair.key: pair.value[:-1] + b"?"})
    with pytest.raises(LogDamaged, match="at position 3"):
        await contents(log)


async def test_a_log_of_another_identity_does_not_pass_for_this_one(
    ground: Ground, client: EtcdClient
) -> None:
    log = await ground.open()
    await append_samples(log, 2)
    (pair,) = (await client.range(ground.keys.commit(1))).kvs
    other = Ground(ground.cluster)
    foreign = await other.open()
    await foreign.append(b"a", [])
    await other.put(client, {other.keys.commit(1): pair.value})
    with pytest.raises(LogDamaged, match="another position or log"):
        await contents(foreign)
    await other.close()
