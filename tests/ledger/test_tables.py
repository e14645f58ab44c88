from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from mainstem.api.lake import Part, PartChange, PartName
from mainstem.errors import (
    InvalidInput,
    InvalidName,
    MainstemError,
    NamespaceExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    TableChanged,
    TableExists,
    TableNotFound,
    TopicNotFound,
)
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.namespaces import Namespaces
from mainstem.ledger.table import PublishedParts, part_name
from mainstem.ledger.tables import (
    CommitTables,
    CreateNamespace,
    CreateTable,
    DeclareTable,
    DropNamespace,
    DropTable,
    PutNamespaceProperties,
    RenameTable,
    TableCommit,
    Tables,
)
from mainstem.ledger.topics import DeleteTopic, Topic

from .writer import Writer, moment

TOPIC = Topic(b"t" * 16, "default", "orders", (3, 4), TopicConfig(), 0)
ID = b"i" * 16


class Lake:
    """Tables of one topic, over parts that a test decides."""

    def __init__(self) -> None:
        self.serving: dict[int, list[Part]] = {3: [], 4: []}
        self.topic: Topic | None = TOPIC
        self.tables = Tables(self, self, Namespaces())
        self.outdated: list[int] = []
        self.position = 10
        self.location = "m0"
        made = self.tables.create(CreateTable("default", "orders", ID, "m0", TOPIC.topic_id), moment())
        assert not isinstance(made, MainstemError), made

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self.topic if self.topic and topic_id == TOPIC.topic_id else None

    def parts(self, stream: int) -> Sequence[Part]:
        return self.serving[stream]

    def outdate(self, stream: int) -> None:
        self.outdated.append(stream)

    def serve(self, *names: PartName, stream: int = 3) -> None:
        self.serving[stream] = [Part(*name, (), 0) for name in names]

    def commit(
        self,
        old: Sequence[PartName] = (),
        new: Sequence[PartName] = (),
        *,
        stream: int = 3,
        added: Sequence[int] = (),
        removed: Sequence[int] = (),
    ) -> Any:
        changes = (PartChange(stream, tuple(old), tuple(new)),) if old or new else ()
        after = f"m{self.position}"
        commit = TableCommit(
            "default", "orders", ID, self.location, after, changes, tuple(added), tuple(removed)
        )
        outcome = self.tables.commit(CommitTables((commit,)), moment(position=self.position))
        if not isinstance(outcome, MainstemError):
            self.location = after
        self.position += 1
        return outcome

    @property
    def to(self) -> int:
        table = self.tables.of_topic(TOPIC.topic_id)
        assert table is not None
        return table.stream(3).to

    @property
    def shown(self) -> list[PartName]:
        table = self.tables.of_topic(TOPIC.topic_id)
        assert table is not None
        return table.stream(3).parts


def refused(outcome: object, words: str = "") -> None:
    assert isinstance(outcome, TableChanged), outcome
    assert words in str(outcome)


def test_a_part_is_published_once_and_in_order() -> None:
    lake = Lake()
    lake.serve((0, 10, 1), (10, 20, 1))
    refused(lake.commit(new=[(10, 20, 1)]), "published up to 0")
    assert lake.commit(new=[(0, 10, 1)], added=[1]).tables == 1
    refused(lake.commit(new=[(0, 10, 1)], added=[2]), "published up to 10")
    refused(lake.commit(new=[(0, 10, 1), (10, 20, 1)]), "published up to 10")
    assert lake.commit(new=[(10, 20, 1)], added=[2]).tables == 1
    assert lake.shown == [(0, 10, 1), (10, 20, 1)]


def test_only_the_current_metadata_is_built_upon() -> None:
    lake = Lake()
    lake.serve((0, 10, 1))
    lake.commit(new=[(0, 10, 1)])
    lake.location = "m0"
    refused(lake.commit(), "another commit")


def test_what_was_replaced_since_is_not_published() -> None:
    lake = Lake()
    lake.serve((0, 10, 2))
    refused(lake.commit(new=[(0, 10, 1)]), "have been replaced")
    lake.serve((0, 20, 2))
    refused(lake.commit(new=[(0, 10, 1), (10, 20, 1)]), "have been replaced")


def test_parts_give_way_to_those_that_replaced_them() -> None:
    lake = Lake()
    lake.serve((0, 10, 1), (10, 20, 1), (20, 30, 1))
    lake.commit(new=[(0, 10, 1), (10, 20, 1), (20, 30, 1)], added=[1])
    lake.serve((0, 20, 2), (20, 30, 1))
    refused(lake.commit([(0, 10, 1)], [(0, 20, 2)]), "a different range")
    refused(lake.commit([(0, 10, 1), (20, 30, 1)], [(0, 20, 2)]), "does not hold")
    assert lake.commit([(0, 10, 1), (10, 20, 1)], [(0, 20, 2)], added=[2]).tables == 1
    assert lake.shown == [(0, 20, 2), (20, 30, 1)]


def test_parts_that_left_the_topic_leave_the_table() -> None:
    lake = Lake()
    lake.serve((0, 10, 1), (10, 20, 1))
    lake.commit(new=[(0, 10, 1), (10, 20, 1)], added=[1])
    refused(lake.commit([(0, 10, 1)]), "still in the topic")
    refused(lake.commit([(10, 20, 1)]), "still in the topic")
    lake.serve((10, 20, 1))
    assert lake.commit([(0, 10, 1)], added=[2]).tables == 1
    assert lake.shown == [(10, 20, 1)]


def test_what_left_the_topic_unseen_is_passed_over() -> None:
    lake = Lake()
    lake.serve((0, 10, 1))
    lake.commit(new=[(0, 10, 1)], added=[1])
    lake.serve((20, 30, 1), (30, 40, 1))
    refused(lake.commit(new=[(30, 40, 1)]), "does not continue")
    lake.commit([(0, 10, 1)])
    assert lake.commit(new=[(20, 30, 1)]).tables == 1


def test_files_are_kept_as_long_as_a_snapshot_names_them() -> None:
    lake = Lake()
    assert not lake.tables.protects(TOPIC.topic_id, 0)
    lake.serve((0, 10, 1))
    lake.commit(new=[(0, 10, 1)], added=[1])
    retired = lake.position
    lake.serve((0, 10, 2), (10, 20, 1))  # a rewrite takes over: the files of generation 1 are garbage
    lake.position += 1
    assert lake.tables.protects(TOPIC.topic_id, retired)
    lake.commit(new=[(10, 20, 1)], added=[2])
    assert lake.tables.protects(TOPIC.topic_id, retired)
    lake.commit(removed=[1])
    assert lake.tables.protects(TOPIC.topic_id, retired)  # snapshot 2 was made before the rewrite was shown
    lake.commit([(0, 10, 1)], [(0, 10, 2)], added=[3])
    assert lake.tables.protects(TOPIC.topic_id, retired)
    lake.commit(removed=[2])
    assert not lake.tables.protects(TOPIC.topic_id, retired)
    assert lake.tables.protects(
        TOPIC.topic_id, lake.position
    )  # what is garbage from now on, snapshot 3 shows


def test_another_stream_that_lags_keeps_protecting() -> None:
    lake = Lake()
    lake.serve((0, 10, 1))
    lake.serve((0, 5, 1), stream=4)
    lake.commit(new=[(0, 10, 1)], added=[1])
    lake.commit(new=[(0, 5, 1)], stream=4, added=[2])
    retired = lake.position
    lake.serve((0, 10, 2))
    lake.serve((0, 5, 2), stream=4)
    lake.position += 1
    lake.commit([(0, 10, 1)], [(0, 10, 2)], added=[3], removed=[1, 2])
    assert lake.tables.protects(TOPIC.topic_id, retired)
    lake.commit([(0, 5, 1)], [(0, 5, 2)], stream=4, added=[4], removed=[3])
    assert not lake.tables.protects(TOPIC.topic_id, retired)


def test_a_transaction_commits_all_of_its_tables_or_none() -> None:
    writer = Writer()
    for name in ("a", "b"):
        writer.do(CreateTable("default", name, name.encode() * 16, "m0"))
    steps = [TableCommit("default", name, name.encode() * 16, "m0", "m1") for name in ("a", "b")]
    stale = TableCommit("default", "b", b"b" * 16, "other", "m1")
    assert isinstance(writer.do(CommitTables((steps[0], stale))), TableChanged)
    assert isinstance(writer.do(CommitTables((steps[0], steps[0]))), InvalidInput)
    assert [table.location for table in writer.ledger.tables] == ["m0", "m0"]
    assert writer.do(CommitTables(tuple(steps))).tables == 2
    assert [table.location for table in writer.ledger.tables] == ["m1", "m1"]


def test_namespaces_come_and_go() -> None:
    writer = Writer()
    tables = writer.ledger.tables
    assert tables.namespaces() == ["default"]
    assert isinstance(writer.do(CreateNamespace("default")), NamespaceExists)
    assert isinstance(writer.do(DropNamespace("default")), InvalidInput)
    assert isinstance(writer.do(DropNamespace("a")), NamespaceNotFound)
    assert isinstance(writer.do(CreateNamespace("a/b")), InvalidName)
    assert isinstance(writer.do(CreateNamespace("a\x1f")), InvalidName)
    writer.do(CreateNamespace("a\x1fb", (("x", "1"),)))
    writer.do(PutNamespaceProperties("a\x1fb", (("y", "2"),), ("x", "z")))
    assert tables.properties("a\x1fb") == (("y", "2"),)
    writer.do(CreateTable("a\x1fb", "t", ID, "m0"))
    assert isinstance(writer.do(DropNamespace("a\x1fb")), NamespaceNotEmpty)
    writer.do(DropTable("a\x1fb", "t", ID))
    writer.do(DropNamespace("a\x1fb"))
    assert tables.namespaces() == ["default"]


def test_names_are_taken_once_and_ids_tell_tables_apart() -> None:
    writer = Writer()
    writer.do(CreateTable("default", "t", ID, "m0"))
    assert isinstance(writer.do(CreateTable("default", "t", b"j" * 16, "m0")), TableExists)
    assert isinstance(writer.do(CreateTable("default", "u", ID, "m0")), InvalidInput)
    assert isinstance(writer.do(CreateTable("nowhere", "u", b"j" * 16, "m0")), NamespaceNotFound)
    assert isinstance(writer.do(DropTable("default", "t", b"j" * 16)), TableNotFound)
    stale = TableCommit("default", "t", b"j" * 16, "m0", "m1")
    assert isinstance(writer.do(CommitTables((stale,))), TableNotFound)
    writer.do(RenameTable("default", "t", ID, "default", "u"))
    assert writer.ledger.tables.get("default", "t") is None
    table = writer.ledger.tables.get("default", "u")
    assert table is not None
    assert table.table_id == ID


def test_a_topics_table_goes_with_its_topic_and_keeps_its_name() -> None:
    writer = Writer()
    topic = writer.create("orders")
    assert isinstance(writer.do(CreateTable("default", "x", ID, "m0", b"?" * 16)), TopicNotFound)
    writer.do(CreateTable("default", "orders", ID, "m0", topic.topic_id))
    assert isinstance(writer.do(CreateTable("default", "more", b"j" * 16, "m0", topic.topic_id)), TableExists)
    writer.do(CreateTable("default", "orders__errors", b"k" * 16, "m0", topic.topic_id, "errors"))
    assert isinstance(writer.do(RenameTable("default", "orders", ID, "default", "o")), InvalidInput)
    assert writer.do(DeclareTable(topic.topic_id, 0, "[]", "")).revision == 1
    assert isinstance(writer.do(DeclareTable(topic.topic_id, 0, "[]", "")), TableChanged)
    writer.do(DeleteTopic(topic.topic_id))
    assert list(writer.ledger.tables) == []
    assert writer.ledger.tables.declaration(topic.topic_id).revision == 0
    assert writer.ledger.tables.digest == 0


def test_a_declaration_rewrites_the_parts_unless_they_hold_nothing_new() -> None:
    lake = Lake()
    lake.tables.declare(DeclareTable(TOPIC.topic_id, 0, "a", keeps_parts=True), moment())
    assert lake.outdated == []
    lake.tables.declare(DeclareTable(TOPIC.topic_id, 1, "b"), moment())
    assert lake.outdated == list(TOPIC.streams)
    lake.tables.declare(DeclareTable(TOPIC.topic_id, 2, "b", "delta"), moment())
    assert lake.outdated == list(TOPIC.streams)


def test_a_ledger_without_tables_digests_as_it_did_before_there_were_any() -> None:
    writer = Writer()
    topic = writer.create("orders")
    before = writer.ledger.digest()
    writer.do(CreateTable("default", "orders", ID, "m0", topic.topic_id))
    assert writer.ledger.digest() != before
    writer.do(DropTable("default", "orders", ID))
    writer.do(PutNamespaceProperties("default", (("a", "b"),)))
    assert writer.ledger.digest() != before
    writer.do(PutNamespaceProperties("default", (), ("a",)))
    assert writer.ledger.digest() == before


def test_a_checkpoint_gives_the_same_tables_back() -> None:
    writer = Writer()
    topic = writer.create("orders", 2)
    writer.do(CreateNamespace("n", (("a", "b"),)))
    writer.do(CreateTable("n", "own", b"o" * 16, "m0"))
    writer.do(CreateTable("default", "orders", ID, "m0", topic.topic_id))
    writer.do(DeclareTable(topic.topic_id, 0, "[]", "delta"))
    step = TableCommit("default", "orders", ID, "m0", "m1", (), (7, 8), ())
    writer.do(CommitTables((step,)))
    again = Ledger.decode(writer.ledger.encode())
    assert again.encode() == writer.ledger.encode()
    table = again.tables.of_topic(topic.topic_id)
    assert table is not None
    assert table.snapshots == {7: 6, 8: 6}
    assert again.tables.declaration(topic.topic_id).copy == "delta"


@pytest.mark.parametrize("seed", range(30))
def test_what_a_table_shows_and_protects_agrees_with_a_plain_model(seed: int) -> None:
    """The model keeps every snapshot as the set of parts it names, and every part's time of retirement."""
    rng = random.Random(seed)
    lake = Lake()
    frontier, snapshot = 0, 0
    retired: dict[PartName, int] = {}
    snapshots: dict[int, set[PartName]] = {}
    for _ in range(120):
        serving = [(part.base, part.end, part.generation) for part in lake.serving[3]]
        action = rng.choice(["materialise", "merge", "retire", "publish", "publish", "expire"])
        lake.position += 1
        if action == "materialise":
            serving.append((frontier, frontier + rng.randrange(1, 9), 1))
            frontier = serving[-1][1]
            lake.serve(*serving)
        elif action == "merge" and serving:
            low = rng.randrange(len(serving))
            high = rng.randrange(low, len(serving)) + 1
            gone = serving[low:high]
            base, end, generation = gone[0][0], gone[-1][1], max(part[2] for part in gone) + 1
            middle = rng.randrange(base, end)  # a rewrite may leave one part, or two
            serving[low:high] = [
                (*span, generation) for span in ((base, middle), (middle, end)) if span[0] < span[1]
            ]
            retired.update(dict.fromkeys(gone, lake.position))
            lake.serve(*serving)
        elif action == "retire" and serving:
            retired[serving.pop(0)] = lake.position
            lake.serve(*serving)
        elif action == "expire" and len(snapshots) > 1:
            oldest = min(snapshots)
            lake.commit(removed=[oldest])
            del snapshots[oldest]
        elif action == "publish":
            snapshot += 1
            if _publish(lake, rng, snapshot):
                snapshots[snapshot] = set(lake.shown)
        _check(lake, snapshots, retired)
    while _publish(lake, rng, snapshot := snapshot + 1):
        pass
    assert lake.shown == [part_name(part) for part in lake.serving[3]]
    again = Tables(lake, lake, Namespaces())
    again.load(lake.tables.encode())
    assert again.digest == lake.tables.digest


def _publish(lake: Lake, rng: random.Random, snapshot: int) -> bool:
    """Make the first of the changes that are pending, if there is one."""
    changes = PublishedParts(3, lake.to, lake.shown).pending(lake.serving[3])
    if not changes:
        return False
    old, new = changes[0]
    names = [part_name(part) for part in new]
    outcome = lake.commit(old, names if old else names[: rng.randrange(1, 3)], added=[snapshot])
    assert not isinstance(outcome, MainstemError), (outcome, old, new)
    return True


def _check(lake: Lake, snapshots: dict[int, set[PartName]], retired: dict[PartName, int]) -> None:
    shown = lake.shown
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(shown))
    for parts in snapshots.values():
        for part in parts & retired.keys():
            assert lake.tables.protects(TOPIC.topic_id, retired[part]), (part, snapshots, retired)
