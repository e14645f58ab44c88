"""Random sequences of transactions, against a plain model that marks the outcome of every offset."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mainstem.errors import (
    MainstemError,
    ProducerFenced,
)
from mainstem.ledger.cursors import NO_POSITION
from mainstem.ledger.entry import SLICE_TRANSACTIONAL
from mainstem.ledger.streams import DeleteRecords, Trim
from mainstem.ledger.transactions import ExpireTransactions

from .replaying import check_replays
from .transactional import FENCED, INVALID, JOINING, OK, Producer
from .writer import Writer


@dataclass
class ModelTransaction:
    id: str
    producer: int
    epoch: int
    open: bool = False
    streams: set[int] = field(default_factory=set)
    written: dict[int, list[int]] = field(default_factory=dict)  # stream → offsets
    offsets: dict[int, int] = field(default_factory=dict)


@dataclass
class ModelPartition:
    cells: list[str] = field(
        default_factory=list
    )  # plain, open:<producer>, committed, aborted, marker, deleted
    start: int = 0

    def stable_end(self) -> int:
        waiting = [at for at, cell in enumerate(self.cells) if cell.startswith("open")]
        return max(self.start, min(waiting)) if waiting else len(self.cells)

    def readable(self) -> list[int]:
        return [at for at in range(self.start, self.stable_end()) if self.cells[at] in ("plain", "committed")]

    def live(self) -> int:
        return sum(
            cell in ("plain", "committed") or cell.startswith("open") for cell in self.cells[self.start :]
        )


PARTITIONS = 3
ids = st.sampled_from(["a", "b", "c"])
partitions = st.integers(0, PARTITIONS - 1)


class TransactionMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.writer = Writer()
        self.writer.create("t", PARTITIONS)
        self.ledger = self.writer.ledger
        self.streams = [ModelPartition() for _ in range(PARTITIONS)]
        self.model: dict[str, ModelTransaction] = {}
        self.old: list[Producer] = []
        self.live: dict[str, Producer] = {}
        self.cursors: dict[int, int] = {}

    def finish(self, one: ModelTransaction, commit: bool) -> None:
        for stream, offsets in one.written.items():
            for at in offsets:
                cells = self.streams[stream].cells
                if cells[at] == "open-deleted":
                    cells[at] = "deleted"  # whatever becomes of the transaction
                elif cells[at].startswith("open"):
                    cells[at] = "committed" if commit else "aborted"
        for stream in one.streams:
            self.streams[stream].cells.append("marker")
        if commit:
            kept = self.cursors | one.offsets
            self.cursors = {stream: offset for stream, offset in kept.items() if offset != NO_POSITION}
        one.open, one.streams, one.written, one.offsets = False, set(), {}, {}

    @rule(id=ids)
    def start(self, id: str) -> None:
        before = self.model.get(id)
        if before is not None and before.open:
            self.finish(before, False)
        if id in self.live:
            self.old.append(self.live[id])
        producer = self.live[id] = Producer(self.writer, id)
        assert before is None or (producer.producer, producer.epoch) == (before.producer, before.epoch + 1)
        self.model[id] = ModelTransaction(id, producer.producer, producer.epoch)

    @rule(
        id=ids, stream=partitions, count=st.integers(1, 3), way=st.sampled_from(["adds", "joins", "neither"])
    )
    def write(self, id: str, stream: int, count: int, way: str) -> None:
        producer, one = self.live.get(id), self.model.get(id)
        if producer is None or one is None:
            return
        if way == "adds":
            producer.add(stream)
        if way != "neither":
            one.open = True
            one.streams.add(stream)
        base, code = producer.append(stream, count, JOINING if way == "joins" else SLICE_TRANSACTIONAL)
        if stream not in one.streams:
            assert (base, code) == (-1, INVALID)
            return
        cells = self.streams[stream].cells
        assert (base, code) == (len(cells), OK)
        one.written.setdefault(stream, []).extend(range(base, base + count))
        cells += [f"open:{id}"] * count

    @rule(stream=partitions, count=st.integers(1, 3))
    def write_plain(self, stream: int, count: int) -> None:
        cells = self.streams[stream].cells
        assert self.writer.append(stream, count) == (len(cells), OK)
        cells += ["plain"] * count

    @rule(id=ids, stream=partitions, offset=st.integers(NO_POSITION, 50), joins=st.booleans())
    def give_offset(self, id: str, stream: int, offset: int, joins: bool) -> None:
        producer, one = self.live.get(id), self.model.get(id)
        if producer is None or one is None:
            return
        if not joins:
            producer.join("g")
        producer.offsets("g", (stream, offset, ""), joins=joins)
        one.open = True
        one.offsets[stream] = offset

    @rule(id=ids, commit=st.booleans())
    def end(self, id: str, commit: bool) -> None:
        producer, one = self.live.get(id), self.model.get(id)
        if producer is None or one is None:
            return
        ended = producer.end(commit)
        if one.open:
            assert {stream for stream, _, _ in ended.marked} == one.streams
            self.finish(one, commit)
        else:
            assert isinstance(ended, MainstemError) or not ended.marked

    @rule(id=ids, commit=st.booleans())
    def end_and_bump(self, id: str, commit: bool) -> None:
        producer, one = self.live.get(id), self.model.get(id)
        if producer is None or one is None:
            return
        before, retrying = producer.copy(), producer.copy()
        ended = producer.end(commit, bump=True)
        if commit and not one.open:
            assert isinstance(ended, MainstemError)
            return
        assert {stream for stream, _, _ in ended.marked} == one.streams
        assert (producer.producer, producer.epoch) == (one.producer, one.epoch + 1)
        self.finish(one, commit)
        one.epoch += 1
        self.old.append(before)
        assert retrying.end(commit, bump=True) == replace(ended, marked=())
        assert isinstance(before.end(not commit, bump=True), MainstemError)

    @rule(id=ids, resumable=st.booleans(), resumes=st.booleans())
    def expire(self, id: str, resumable: bool, resumes: bool) -> None:
        producer, one = self.live.get(id), self.model.get(id)
        if producer is None or one is None:
            return
        expired = self.writer.do(ExpireTransactions(((id, one.producer, one.epoch),), resumable))
        assert bool(expired.ids) == one.open
        if not one.open:
            return
        self.finish(one, False)
        self.old.append(self.live.pop(id).copy())
        one.epoch += 1
        if resumes:
            ended = producer.end(False, bump=True)
            assert isinstance(ended, ProducerFenced) != resumable
            if resumable:
                assert (producer.producer, producer.epoch) == (one.producer, one.epoch)
                self.live[id] = producer

    @rule(pick=st.integers(0, 99), stream=partitions, commit=st.booleans())
    def zombie(self, pick: int, stream: int, commit: bool) -> None:
        if not self.old:
            return
        zombie = self.old[pick % len(self.old)]
        assert zombie.append(stream) == (-1, FENCED)
        assert zombie.append(stream, flags=JOINING) == (-1, FENCED)
        for refused in (
            zombie.add(stream),
            zombie.end(commit),
            zombie.join("g"),
            zombie.offsets("g", (stream, 1, ""), joins=True),
        ):
            assert isinstance(refused, ProducerFenced)

    @rule(stream=partitions, offset=st.integers(0, 30))
    def trim(self, stream: int, offset: int) -> None:
        partition = self.streams[stream]
        self.writer.do(Trim(stream, offset, "delete"))
        partition.start = max(partition.start, min(offset, len(partition.cells)))
        self.skip_deleted(partition)

    @rule(stream=partitions, offset=st.integers(0, 30))
    def delete(self, stream: int, offset: int) -> None:
        partition = self.streams[stream]
        self.writer.do(DeleteRecords(stream, ((offset, offset + 2),)))
        for at in range(max(offset, partition.start), min(offset + 2, len(partition.cells))):
            if partition.cells[at] in ("plain", "committed"):
                partition.cells[at] = "deleted"
            elif partition.cells[at].startswith("open"):
                # Deleted whatever becomes of its transaction, which still began there.
                partition.cells[at] = "open-deleted"
        self.skip_deleted(partition)

    def skip_deleted(self, partition: ModelPartition) -> None:
        for at in range(partition.start, len(partition.cells)):
            if partition.cells[at] in ("deleted", "open-deleted"):
                partition.start = at + 1
            elif partition.cells[at] not in ("marker", "aborted"):
                break

    @invariant()
    def readers_see_what_the_model_says(self) -> None:
        streams = self.ledger.streams
        for number, partition in enumerate(self.streams):
            self.forget_open_deleted(number, partition)
            assert streams.end[number] == len(partition.cells)
            assert streams.start(number) == partition.start
            first = streams.transactions.first_open(number)
            assert streams.stable_end(number) == self.stable(number)
            assert first is None or any(number in one.written for one in self.model.values() if one.open)
            live = partition.live() - partition.cells[partition.start :].count("open-deleted")
            assert streams.records[number] == live
            visible = [
                at
                for first, last in streams.holes(number).live(partition.start, streams.stable_end(number))
                for at in range(first, last)
            ]
            assert visible == [at for at in partition.readable() if at < self.stable(number)]
            markers = [at for at, cell in enumerate(partition.cells) if cell == "marker"]
            found = streams.transactions.markers(number, partition.start, 1 << 40)
            assert [marker.offset for marker in found] == [at for at in markers if at >= partition.start]
        found = self.ledger.cursors.of_group("g")
        assert {stream: cursor.offset for stream, cursor in found.items()} == self.cursors

    def forget_open_deleted(self, number: int, partition: ModelPartition) -> None:
        held = {at for one in self.model.values() if one.open for at in one.written.get(number, ())}
        for at, cell in enumerate(partition.cells):
            if cell == "open-deleted" and at not in held:
                partition.cells[at] = "deleted"
        self.skip_deleted(partition)

    def stable(self, number: int) -> int:
        firsts = [one.written[number][0] for one in self.model.values() if one.open and number in one.written]
        partition = self.streams[number]
        return max(partition.start, min(firsts)) if firsts else len(partition.cells)

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            check_replays(self.writer)


TestTransactionsAgainstTheModel = TransactionMachine.TestCase
TestTransactionsAgainstTheModel.settings = settings(
    max_examples=200, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
