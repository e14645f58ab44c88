"""Erasures in the ledger: phases in order, each once, and no more of them than there is room for."""

from __future__ import annotations

import pytest

from mainstem.errors import InvalidInput, LimitReached, NotFound, StalePlan
from mainstem.ledger import erasures
from mainstem.ledger.erasures import (
    AcceptErasure,
    AdvanceErasure,
    CountErased,
    ErasedTopic,
    Erasure,
    ErasurePhase,
    NoteBackup,
)
from mainstem.ledger.ledger import Ledger

from .writer import Writer


@pytest.fixture
def writer() -> Writer:
    writer = Writer()
    writer.create("t", 1)
    return writer


def id_of(number: int) -> str:
    return f"{number:032x}"


def accept(writer: Writer, number: int = 1) -> object:
    topic = writer.ledger.topics.get("t")
    assert topic is not None
    covered = (ErasedTopic(topic.topic_id, "t", "named in the request"),)
    (outcome,) = writer.apply(AcceptErasure(id_of(number), "key", covered))
    return outcome


def advance(writer: Writer, phase: ErasurePhase, number: int = 1, **more: object) -> object:
    (outcome,) = writer.apply(AdvanceErasure(id_of(number), phase, **more))  # type: ignore[arg-type]
    return outcome


def test_phases_come_in_order_and_survive_a_checkpoint(writer: Writer) -> None:
    assert isinstance(accept(writer), Erasure)
    assert isinstance(accept(writer), StalePlan)
    assert isinstance(advance(writer, "log_rewritten"), StalePlan)
    topic = writer.ledger.erasures.running()[0].topics[0]
    writer.apply(CountErased(id_of(1), topic.topic_id, 3))
    writer.apply(CountErased(id_of(1), topic.topic_id, 4))
    advance(writer, "deleted", through=5)
    advance(writer, "log_rewritten")
    assert writer.ledger.erasures.parts_rewritten_at(topic.topic_id) is None
    advance(writer, "parts_rewritten")
    rewritten_at = writer.ledger.erasures.parts_rewritten_at(topic.topic_id)
    again = Ledger.decode(writer.ledger.encode())
    assert again.digest() == writer.ledger.digest()
    assert again.erasures.running() == writer.ledger.erasures.running()
    assert again.erasures.parts_rewritten_at(topic.topic_id) == rewritten_at
    advance(writer, "done", report=b"{}")
    done = writer.ledger.erasures.get(id_of(1))
    assert done is not None
    assert (done.phase, done.through, done.report, done.topics[0].records) == ("done", 5, b"{}", 7)
    assert writer.ledger.erasures.running() == []
    assert isinstance(advance(writer, "failed"), StalePlan)


def test_an_erasure_of_a_topic_that_does_not_exist_is_refused(writer: Writer) -> None:
    covered = (ErasedTopic(b"\7" * 16, "absent", ""),)
    (outcome,) = writer.apply(AcceptErasure(id_of(1), "tag", covered))
    assert isinstance(outcome, NotFound)
    (outcome,) = writer.apply(AcceptErasure("short", "tag", covered))
    assert isinstance(outcome, InvalidInput)


def test_the_oldest_that_ended_makes_room(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasures, "ERASURES_MAX", 2)
    accept(writer, 1)
    accept(writer, 2)
    assert isinstance(accept(writer, 3), LimitReached)
    advance(writer, "failed", 2, problem="lost")
    assert isinstance(accept(writer, 3), Erasure)
    assert [one.id for one in writer.ledger.erasures] == [id_of(1), id_of(3)]


def test_backups_are_noted_and_the_oldest_forgotten(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasures, "BACKUPS_NOTED_MAX", 2)
    for name in "abc":
        writer.apply(NoteBackup(f"file:///{name}"))
    assert [noted.url for noted in writer.ledger.erasures.backups()] == ["file:///b", "file:///c"]
