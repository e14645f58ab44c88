from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import LedgerDiverged, LogDamaged, NewerVersion
from mainstem.ledger.brokers import Halt
from mainstem.ledger.checkpoint import CHECKPOINT_VERSION, HEAD
from mainstem.ledger.cursors import CommitOffsets
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.producers import AllocateProducer
from mainstem.ledger.schemas import (
    DeleteSchemaVersions,
    PutRegistrySettings,
    RegisterSchema,
    RegistrySettings,
    SchemaReference,
)
from mainstem.ledger.streams import DeleteRecords, MarkLost, RaiseCeilings
from mainstem.ledger.topics import DeleteTopic

from .writer import Writer


def full() -> Writer:
    """A ledger with something of everything in it."""
    writer = Writer()
    writer.create("plain", 3, durability="memory")
    writer.create("bytes", 2, cap_bytes=100)
    gone = writer.create("gone", 1)
    writer.create("few", 1, cap_records=2)
    for sequence in range(7):
        writer.append(0, producer=5, epoch=1, sequence=sequence)
        writer.append(6)
    writer.append(5, 2, producer=5, epoch=1, sequence=0)
    writer.append_sizes(3, 40, 30, 20, 25)
    writer.do(DeleteRecords(0, ((2, 4),)))
    writer.do(DeleteRecords(3, ((2, 3),)))
    writer.do(MarkLost(0, 5, 6))
    writer.do(RaiseCeilings(((1, 64),)))
    writer.do(CommitOffsets("h", ((1, 5, "m"), (0, 2, ""))))
    writer.do(CommitOffsets("g", ((0, 5, "é"),)))
    writer.do(AllocateProducer())
    writer.do(DeleteTopic(gone.topic_id))
    Writer(writer.ledger, broker=2).do(Halt(2))
    writer.boot(jump=True)
    for subject, text in (("s", '"int"'), ("s", '"long"'), ("acme\x1f:.c:t", '"int"')):
        space = "." if subject == "s" else "acme\x1f.c"
        references = (SchemaReference("r", "other", 1),)
        revision, fingerprint = writer.ledger.schemas.revision, text.encode().ljust(16)
        writer.do(RegisterSchema(revision, subject, space, "AVRO", text, references, "", fingerprint, 0, 0))
    writer.do(DeleteSchemaVersions(writer.ledger.schemas.revision, "s", (1,), False))
    settings = RegistrySettings("s", '{"compatibilityLevel":"FULL"}', "IMPORT")
    writer.do(PutRegistrySettings(writer.ledger.schemas.revision, settings))
    return writer


def test_a_checkpoint_gives_back_the_state_bit_for_bit() -> None:
    ledger = full().ledger
    data = ledger.encode()
    restored = Ledger.decode(data)
    assert restored.encode() == data
    assert restored.digest() == ledger.digest()
    assert (restored.position, restored.time_ms) == (ledger.position, ledger.time_ms)
    assert restored.streams.lost(0) == [(5, 6, "damaged")]
    assert restored.streams.lost(1) == [(0, 64, "unclean shutdown")]
    assert list(restored.topics) == list(ledger.topics)
    assert restored.cursors.of_group("h") == ledger.cursors.of_group("h")
    assert restored.brokers.clean(2)
    assert not restored.brokers.clean(1)


def test_an_empty_ledger_has_a_checkpoint_too() -> None:
    data = Ledger().encode()
    assert Ledger.decode(memoryview(data)).encode() == data


def test_a_restored_ledger_goes_on_as_the_first_would() -> None:
    writer = full()
    restored = Writer.__new__(Writer)
    restored.__dict__ |= writer.__dict__ | {"ledger": Ledger.decode(writer.ledger.encode()), "log": []}
    for one in (writer, restored):
        one.create("gone", 2)
        assert one.append(0, producer=5, epoch=1, sequence=6) == (6, 1)
        one.append(0, producer=5, epoch=1, sequence=7)
        one.append_sizes(3, 99)
        one.append(6, 5)
        one.append(8)
    assert restored.ledger.encode() == writer.ledger.encode()


def test_a_newer_checkpoint_says_so() -> None:
    data = bytearray(Ledger().encode())
    struct.pack_into("<I", data, 8, CHECKPOINT_VERSION + 1)
    with pytest.raises(NewerVersion):
        Ledger.decode(data)


def test_a_digest_that_does_not_fit_the_state_is_divergence() -> None:
    data = bytearray(full().ledger.encode())
    data[16] ^= 1
    with pytest.raises(LedgerDiverged):
        Ledger.decode(data)


def test_a_digest_that_is_not_a_function_of_values_is_not_compared() -> None:
    writer = full()
    writer.ledger.last_digest = (4096, 7)
    data = bytearray(writer.ledger.encode())
    struct.pack_into("<IQ", data, 12, 0, 1)
    opened = Ledger.decode(data)
    assert opened.digests_skipped == 1
    assert opened.last_digest is None  # nor handed on to those who would compare it
    assert opened.digest() == writer.ledger.digest()


def test_a_trusted_checkpoint_gives_its_state_whatever_its_digest() -> None:
    data = bytearray(full().ledger.encode())
    data[16] ^= 1
    assert Ledger.decode(data, trust=True).encode() == FULL


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_other_flipped_byte_or_cut_is_damage(data: st.DataObject) -> None:
    whole = bytearray(FULL)
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        places = st.sampled_from([*range(8), *range(24, HEAD.size)]) | st.integers(HEAD.size, len(whole) - 1)
        whole[data.draw(places)] ^= data.draw(st.integers(1, 255))
    with pytest.raises(LogDamaged):
        Ledger.decode(whole)


FULL = full().ledger.encode()
