"""Sections: one module and one line in the registry give a durable feature everything it needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from mainstem.errors import LedgerDiverged, LimitReached, LogDamaged
from mainstem.ledger import checkpoint, registry
from mainstem.ledger.divergence import differences
from mainstem.ledger.entry import Entry
from mainstem.ledger.keyed import Keyed, LatestByKey, fields_hash
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.registry import REGISTRY, Registry, Sections
from mainstem.ledger.section import Command, Moment, Section, applies, reacts
from mainstem.ledger.topics import DeleteTopic, TopicDeletedEvent, Topics

from .replaying import check_replays
from .writer import Writer

# The module of a toy feature: a note on each topic.


class PutNote(Command, frozen=True, tag=9000):
    topic_id: bytes
    text: str


class Note(msgspec.Struct, frozen=True, array_like=True):
    topic_id: bytes
    text: str
    written_ms: int


class Notes(Section[list[Note]]):
    requires = (Topics,)

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._notes: Keyed[bytes, Note] = Keyed(fields_hash("note"))

    def get(self, topic_id: bytes) -> Note | None:
        return self._notes.get(topic_id)

    @applies(PutNote)
    def put(self, command: PutNote, now: Moment) -> Note | LimitReached:
        full = self._notes.refusal(command.topic_id, 2, "notes")
        if full is not None:
            return full
        note = Note(command.topic_id, command.text, now.time_ms)
        self._notes.put(note.topic_id, note)
        return note

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        self._notes.pop(event.topic.topic_id)

    @property
    def digest(self) -> int:
        return self._notes.digest

    def encode(self) -> list[Note]:
        return list(self._notes)

    def load(self, state: list[Note]) -> None:
        for note in state:
            self._notes.put(note.topic_id, note)


# Its registration.


class WithNotes(Sections):
    notes: Notes


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    monkeypatch.setattr(registry, "REGISTRY", Registry(WithNotes))
    writer = Writer()
    yield writer
    check_replays(writer)


def notes(ledger: Ledger) -> Notes:
    found: Notes = ledger.notes  # type: ignore[attr-defined]
    return found


def test_its_commands_apply_and_replay(writer: Writer) -> None:
    topic = writer.create()
    writer.time_ms = 5_000
    assert writer.do(PutNote(topic.topic_id, "first")) == Note(topic.topic_id, "first", 5_000)
    again = Ledger()
    for entry in writer.log:
        again.apply(Entry.decode(entry.encode()))
    assert notes(again).get(topic.topic_id) == Note(topic.topic_id, "first", 5_000)


def test_its_state_is_part_of_the_digest(writer: Writer) -> None:
    topic = writer.create()
    before, empty = writer.ledger.digests(), writer.ledger.digest()
    writer.do(PutNote(topic.topic_id, "first"))
    after = writer.ledger.digests()
    assert writer.ledger.digest() != empty
    assert [name for name in after if after[name] != before[name]] == ["notes"]


def test_its_state_comes_back_from_a_checkpoint(writer: Writer) -> None:
    topic = writer.create()
    note = writer.do(PutNote(topic.topic_id, "first"))
    again = Ledger.decode(writer.ledger.encode())
    assert notes(again).get(topic.topic_id) == note
    assert again.digest() == writer.ledger.digest()


def test_it_reacts_to_events_of_other_sections(writer: Writer) -> None:
    topic = writer.create()
    writer.do(PutNote(topic.topic_id, "first"))
    writer.do(DeleteTopic(topic.topic_id))
    assert notes(writer.ledger).get(topic.topic_id) is None
    assert notes(writer.ledger).digest == 0


def test_a_difference_in_it_is_named_by_section_and_key(writer: Writer) -> None:
    topic = writer.create("t")
    writer.do(PutNote(topic.topic_id, "first"))
    other = Ledger.decode(writer.ledger.encode())
    notes(other).put(PutNote(topic.topic_id, "second"), writer.ledger)
    assert [
        (row.section, row.key, row.stored, row.replayed)
        for row in differences(writer.ledger.state(), other.state(), 10)
    ] == [("notes", f"[{topic.topic_id.hex()}].text", "'first'", "'second'")]


def test_a_checkpoint_with_a_wrong_digest_names_the_section(writer: Writer) -> None:
    topic = writer.create()
    before = writer.ledger.state()
    writer.do(PutNote(topic.topic_id, "first"))
    state = writer.ledger.state()
    wrong = msgspec.structs.replace(state, digests=before.digests)
    with pytest.raises(LedgerDiverged, match=r"sections that differ: notes\. "):
        Ledger.decode(checkpoint.pack(wrong, 7))


def test_a_checkpoint_of_other_sections_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Ledger().encode()
    monkeypatch.setattr(registry, "REGISTRY", Registry(WithNotes))
    with pytest.raises(LogDamaged, match="notes"):
        Ledger.decode(plain)
    extended = Ledger().encode()
    monkeypatch.undo()
    with pytest.raises(LogDamaged, match="notes"):
        Ledger.decode(extended)


def test_its_elements_are_bounded(writer: Writer) -> None:
    for name in "abc":
        outcome = writer.do(PutNote(writer.create(name).topic_id, name))
    assert isinstance(outcome, LimitReached)
    assert str(outcome) == "there are 2 notes, the maximum: delete some"


def test_two_commands_cannot_share_a_tag() -> None:
    class Another(Command, frozen=True, tag=1):
        pass

    class Twice(Section[None]):
        @applies(Another)
        def other(self, command: Another, now: Moment) -> None: ...

    hints: dict[str, Any] = {"twice": Twice}
    with pytest.raises(AssertionError, match="Another"):
        Registry(type("Clash", (Sections,), {"__annotations__": hints}))


def test_every_section_comes_after_those_it_requires() -> None:
    seen: list[type[Section[Any]]] = []
    for section in REGISTRY.sections.values():
        assert set(section.requires) <= set(seen)
        seen.append(section)


def test_a_keyed_map_hashes_elements_when_its_digest_is_read() -> None:
    hashed: list[int] = []

    def counted(value: list[int]) -> int:
        hashed.append(value[0])
        return fields_hash("one")(value)

    one: Keyed[str, list[int]] = Keyed(counted)
    one.put("b", [1])
    one.put("a", [2])
    one.put("b", [3])
    assert hashed == []
    first = one.digest
    assert sorted(hashed) == [2, 3]
    one["a"][0] = 4
    one.put("a", one["a"])
    assert one.digest != first
    assert hashed[2:] == [4]
    assert list(one) == [[4], [3]]
    one.pop("a")
    one.pop("b")
    assert (one.digest, len(one)) == (0, 0)


def test_the_latest_elements_survive() -> None:
    latest: LatestByKey[str, int] = LatestByKey(fields_hash("one"))
    for key, value in (("a", 1), ("b", 2), ("c", 3), ("a", 4)):
        latest.put(key, value)
    latest.evict(2)
    assert list(latest) == [3, 4]
