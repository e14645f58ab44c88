from __future__ import annotations

import struct

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import LogDamaged, NewerVersion, StorageError
from mainstem.ledger.brokers import Boot
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.cursors import Take
from mainstem.ledger.entry import ENTRY_VERSION, HEAD, OLD_DIGEST, PART, SLICE_TRACKED, AppendRun, Entry
from mainstem.ledger.registry import REGISTRY
from mainstem.ledger.streams import Trim
from mainstem.ledger.topics import CreateTopic

from .writer import run, slice_row

# Written by version 1 and never to be regenerated: a log from then must stay readable.
GOLDEN_PLAIN = bytes.fromhex(
    "0100010001000000e903000000000000070000000200000005000000000000000000000000000000"
    "00000000000000000100000038000000010000000000000003000000020000005100000000000000"
    "e803000000000000ffffffffffffffffffffffffffff00001400000001000000"
)
GOLDEN_COMMANDS = bytes.fromhex(
    "0100080002000000e903000000000000070000000200000006000000000000000010000000000000"
    "efcdab8967452301020000003f0000009601a162c410000102030405060708090a0b0c0d0e0f0382"
    "aa6475726162696c697479a66d656d6f7279ab6361705f7265636f72647309a764656661756c7402"
    "000000060000009420a1670105"
)


def golden_plain() -> Entry:
    return Entry(7, 2, 5, 1001, [run(slice_row(3, 2))])


def golden_commands() -> Entry:
    config = TopicConfig(durability="memory", cap_records=9)
    parts = [CreateTopic("b", bytes(range(16)), 3, config), Take("g", 1, 5)]
    return Entry(7, 2, 6, 1001, list(parts), (4096, 0x0123456789ABCDEF))


def same(one: Entry, other: Entry) -> bool:
    return one.encode() == other.encode()


def test_an_entry_reads_back_as_it_was_written() -> None:
    parts = [
        Boot(1, "boot", True, "node"),
        run(slice_row(0, 2), slice_row(4, 1, producer=9, epoch=1, sequence=0)),
        Trim(3, 17, "ttl", 99),
        run(slice_row(1, 2, flags=SLICE_TRACKED), records=[(4, 100), (6, 101)]),
    ]
    entry = Entry(1, 2, 3, -4, list(parts), (5, 6))
    decoded = Entry.decode(entry.encode())
    assert same(decoded, entry)
    assert (decoded.broker, decoded.broker_epoch, decoded.commit_id, decoded.time_ms) == (1, 2, 3, -4)
    assert decoded.digest == (5, 6)
    assert decoded.parts[0] == parts[0]
    assert decoded.parts[2] == parts[2]
    tracked = decoded.parts[3]
    assert isinstance(tracked, AppendRun)
    assert tracked.records["size"].tolist() == [4, 6]
    assert tracked.records["time"].tolist() == [100, 101]


def test_rows_are_views_of_the_buffer() -> None:
    buffer = bytearray(golden_plain().encode())
    entry = Entry.decode(buffer)
    assert isinstance(entry.parts[0], AppendRun)
    assert np.shares_memory(entry.parts[0].slices, np.frombuffer(buffer, np.uint8))


@pytest.mark.parametrize(
    ("golden", "entry"), [(GOLDEN_PLAIN, golden_plain()), (GOLDEN_COMMANDS, golden_commands())]
)
def test_entries_of_version_1_stay_readable_and_unchanged(golden: bytes, entry: Entry) -> None:
    assert same(Entry.decode(golden), entry)
    assert entry.encode() == golden


def test_a_digest_that_is_not_a_function_of_values_is_read_but_never_compared() -> None:
    buffer = bytearray(golden_commands().encode())
    struct.pack_into("<H", buffer, 2, OLD_DIGEST)
    entry = Entry.decode(buffer)
    assert entry.digest is None
    assert entry.old_digest


def test_a_newer_version_says_so() -> None:
    buffer = bytearray(golden_plain().encode())
    struct.pack_into("<H", buffer, 0, ENTRY_VERSION + 1)
    with pytest.raises(NewerVersion):
        Entry.decode(buffer)


@pytest.mark.parametrize("entry", [golden_plain(), golden_commands()])
def test_every_cut_and_every_extra_byte_is_damage(entry: Entry) -> None:
    whole = entry.encode()
    for length in range(len(whole)):
        with pytest.raises(LogDamaged):
            Entry.decode(whole[:length])
    with pytest.raises(LogDamaged):
        Entry.decode(whole + b"\0")


def test_heads_and_parts_that_contradict_themselves_are_damage() -> None:
    whole = golden_plain().encode()
    for offset, value in [(0, 0), (2, 0), (2, 0xFFFF), (4, 2), (48, 9), (52, 7), (56, 0), (60, 1)]:
        broken = bytearray(whole)
        struct.pack_into("<H", broken, offset, value)
        with pytest.raises(LogDamaged):
            Entry.decode(broken)


def test_record_rows_must_match_the_tracked_slices() -> None:
    with pytest.raises(LogDamaged):
        Entry.decode(
            Entry(1, 1, 1, 1, [run(slice_row(0, 3, flags=SLICE_TRACKED), records=[(1, 1)])]).encode()
        )
    with pytest.raises(LogDamaged):
        Entry.decode(Entry(1, 1, 1, 1, [run(slice_row(0, 1), records=[(1, 1)])]).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([99]),  # a tag nobody has
        msgspec.msgpack.encode([1, 1]),
        msgspec.msgpack.encode([10, 1, 2, "melt"]),  # a reason there is none of
        b"\x94\x20\xa1\xff\x01\x01",  # a group name that is not UTF-8
    ],
)
def test_a_command_that_is_none_is_damage(body: bytes) -> None:
    head = HEAD.pack(1, 0, 1, 0, 1, 1, 1, 0, 0)
    with pytest.raises(LogDamaged):
        Entry.decode(head + PART.pack(2, len(body)) + body)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([golden_plain(), golden_commands()]), st.data())
def test_flipped_bits_never_do_worse_than_an_error(entry: Entry, data: st.DataObject) -> None:
    buffer = bytearray(entry.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        Entry.decode(buffer)
    except StorageError:
        return


def test_every_command_has_its_own_lasting_tag() -> None:
    tags = {
        command.__name__: command.__struct_config__.tag  # type: ignore[attr-defined]
        for command in REGISTRY.commands.values()
    }
    assert tags == {
        "CreateTopic": 1,
        "DeleteTopic": 2,
        "AlterTopic": 3,
        "AddPartitions": 4,
        "Trim": 10,
        "DeleteRecords": 11,
        "RaiseCeilings": 12,
        "MarkLost": 13,
        "AllocateProducer": 20,
        "ExpireProducers": 21,
        "CommitOffsets": 30,
        "DeleteOffsets": 31,
        "Take": 32,
        "ExpireOffsets": 33,
        "Boot": 40,
        "Halt": 41,
        "InitProducer": 50,
        "AddStreamsToTransaction": 51,
        "AddGroupToTransaction": 52,
        "TransactionOffsets": 53,
        "EndTransaction": 54,
        "ExpireTransactions": 55,
        "ForgetTransactionalIds": 56,
        "BeginTransaction": 57,
        "AckInTransaction": 58,
        "Claim": 70,
        "Ack": 71,
        "Nack": 72,
        "Extend": 73,
        "ExpireLeases": 74,
        "Bury": 75,
        "NoteCopies": 76,
        "PutRouter": 80,
        "DeleteRouter": 81,
        "Forward": 82,
        "NoteForwarded": 83,
        "PassOver": 84,
        "TakeTask": 90,
        "ReleaseTask": 91,
        "ExtendTask": 92,
        "SwapParts": 93,
        "RetireParts": 94,
        "ForgetObjects": 95,
        "CreateNamespace": 100,
        "DropNamespace": 101,
        "PutNamespaceProperties": 102,
        "CreateTable": 103,
        "CommitTables": 104,
        "DropTable": 105,
        "RenameTable": 106,
        "DeclareTable": 107,
        "BeginSinkTask": 110,
        "CommitSinkBatch": 111,
        "AbortSinkBatch": 112,
        "ForgetSinks": 113,
        "ExtendSinkRun": 114,
        "JoinBroker": 120,
        "Heartbeat": 121,
        "LeaveBroker": 122,
        "ExpireBroker": 123,
        "AdmitBroker": 124,
        "PutScramCredential": 130,
        "DeleteScramCredential": 131,
        "PutAccessRules": 132,
        "DeleteAccessRules": 133,
        "AlterRate": 134,
        "AlterGroupSettings": 135,
        "OpenShare": 136,
        "AcquireShare": 137,
        "SettleShare": 138,
        "DeleteShare": 139,
        "PublishRepack": 140,
        "ForgetRepacked": 141,
        "FinishCompaction": 142,
        "PlanTier": 143,
        "SettleTier": 144,
        "ForgetTier": 145,
        "KeepReport": 150,
        "BumpGeneration": 151,
        "ChangeConsumerGroup": 152,
        "ForgetConsumerGroup": 153,
        "AlterBrokerSettings": 154,
        "PutApiKey": 160,
        "RotateApiKey": 161,
        "DeleteApiKey": 162,
        "AddNamespace": 170,
        "AddBucket": 230,
        "AlterBucket": 231,
        "BeginUpload": 235,
        "CompleteUpload": 237,
        "DeleteObject": 234,
        "EndUpload": 238,
        "PutObject": 233,
        "PutUploadPart": 236,
        "RemoveBucket": 232,
        "AlterNamespace": 171,
        "RemoveNamespace": 172,
        "RegisterSchema": 210,
        "DeleteSchemaVersions": 211,
        "PutRegistrySettings": 212,
        "AckRecords": 241,
        "AddSubscription": 240,
        "MoveSubscription": 242,
        "RemoveSubscription": 243,
        "PutSubscriptionProperties": 249,
        "RegisterTopicSchema": 246,
        "RemoveTopicSchemas": 247,
        "PublishSequence": 250,
        "RaiseProducerEpoch": 251,
        "ServeSubscription": 280,
        "PublishExclusively": 281,
        "RaiseCompactionHorizon": 310,
        "AcceptErasure": 180,
        "CountErased": 181,
        "AdvanceErasure": 182,
        "NoteBackup": 183,
        "ExpireRecords": 371,
        "TimeRecords": 370,
    }
