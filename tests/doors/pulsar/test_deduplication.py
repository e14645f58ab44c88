"""Messages that a producer sends again are stored once, by its name and sequence ids."""

from __future__ import annotations

from pathlib import Path

from mainstem.testing.server import ServerProcess

from .raw_client import RawClient

_NO_ID = (1 << 64) - 1


def test_a_message_that_is_sent_again_is_stored_once_also_after_a_kill(tmp_path: Path) -> None:
    flags = ("--text", "off", "--kafka", "off", "--pulsar-deduplication", "true")
    with ServerProcess(tmp_path / "data", *flags) as server, RawClient(server) as raw:
        raw.connect()
        assert raw.producer("t", "p").last_sequence_id == -1
        for sequence in (0, 1, 5):
            assert raw.send(sequence, b"%d" % sequence).send_receipt.message_id.entryId != _NO_ID
        repeated = raw.send(1, b"again").send_receipt
        assert (repeated.sequence_id, repeated.message_id.entryId) == (1, _NO_ID)
        server.kill()
    with ServerProcess(tmp_path / "data", *flags) as server, RawClient(server) as raw:
        raw.connect()
        assert raw.producer("t", "p").last_sequence_id == 5
        assert raw.producer("t", "other", id=2).last_sequence_id == -1
        assert raw.send(5, b"again").send_receipt.message_id.entryId == _NO_ID
        assert raw.send(0, b"of the other", id=2).send_receipt.message_id.entryId == 3
        assert raw.send(6, b"6").send_receipt.message_id.entryId == 4
        raw.subscribe("t", "s", 0)
        assert [raw.message()[1] for _ in range(5)] == [b"0", b"1", b"5", b"of the other", b"6"]


def test_topics_do_not_deduplicate_unless_they_are_told_to(server: ServerProcess) -> None:
    with RawClient(server) as raw:
        raw.connect()
        raw.producer("plain", "p")
        assert [raw.send(0, b"v").send_receipt.message_id.entryId for _ in range(2)] == [0, 1]
        assert raw.producer("plain", "q", id=2).last_sequence_id == -1
