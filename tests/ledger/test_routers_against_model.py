"""Forwarding against a plain model: every stream a list of what stands at each offset."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mainstem import limits
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.routers import DeleteRouter, Forward, PutRouter
from mainstem.ledger.streams import DeleteRecords, MarkLost, Trim, TrimReason
from mainstem.ledger.topics import AlterTopic, DeleteTopic

from .replaying import check_replays
from .writer import Writer

NAMES = ["a", "b", "c", "d"]
streams = st.integers(0, len(NAMES) - 1)


@dataclass
class Cell:
    """What stands at one offset."""

    origin: tuple[int, int]  # stream and offset where the record was written
    hop: int = 0
    time_ms: int = 0
    live: bool = True
    lost: bool = False  # it shows


@dataclass
class ModelStream:
    cells: list[Cell] = field(default_factory=list)
    evicted: int = 0
    trimmed: int = 0  # by whatever reason
    plain: bool = True
    alive: bool = True


@dataclass
class ModelRouter:
    source: int
    dest: int
    cursor: int
    copies: int = 0


class RouterModel(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1 << 16))
    def begin(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.writer = Writer()
        self.model = [ModelStream() for _ in NAMES]
        for name in NAMES:
            self.writer.create(name)
        self.routers: dict[str, ModelRouter] = {}
        self.clock = 0
        for source, dest, name in ((0, 1, "r"), (0, 2, "r"), (0, 2, "s"), (1, 3, "r")):
            self.put(source, dest, name)

    def _id(self, stream: int) -> bytes:
        return NAMES[stream].encode().ljust(16, b"\0")

    @rule(stream=streams, count=st.integers(1, 4))
    def append(self, stream: int, count: int) -> None:
        base, code = self.writer.append(stream, count)
        model = self.model[stream]
        if model.alive:
            assert (base, code) == (len(model.cells), 0)
            model.cells += [Cell((stream, base + at)) for at in range(count)]

    @rule(stream=streams, at=st.integers(0, 30), count=st.integers(1, 3), lose=st.booleans())
    def remove(self, stream: int, at: int, count: int, lose: bool) -> None:
        model = self.model[stream]
        if not model.alive or at + count > len(model.cells):
            return
        command = MarkLost(stream, at, at + count) if lose else DeleteRecords(stream, ((at, at + count),))
        self.writer.do(command)
        for cell in model.cells[max(at, model.trimmed) : at + count]:
            if cell.live:
                cell.live, cell.lost = False, lose
        self._settle(model)

    @rule(stream=streams, to=st.integers(0, 30), how=st.sampled_from(["cap", "delete", "old delete"]))
    def trim(self, stream: int, to: int, how: str) -> None:
        model = self.model[stream]
        if not model.alive:
            return
        to = min(to, len(model.cells))
        reason: TrimReason = "cap" if how == "cap" else "delete"
        self.writer.do(Trim(stream, to, reason, keeps_losses=how == "delete"))
        if how != "delete":
            for cell in model.cells[model.trimmed : to]:
                cell.lost = False  # or covered by the floor
        model.trimmed = max(model.trimmed, to)
        if how == "cap":
            model.evicted = max(model.evicted, to)
        self._settle(model)

    def _settle(self, model: ModelStream) -> None:
        """Deleted records right behind the start move it."""
        while model.trimmed < len(model.cells):
            cell = model.cells[model.trimmed]
            if cell.live or cell.lost:
                return
            model.trimmed += 1

    @rule(source=streams, dest=streams, name=st.sampled_from(["r", "s"]))
    def put(self, source: int, dest: int, name: str) -> None:
        name = f"{name}{source}{dest}"
        fan_in = any(r.dest == dest and r.source != source for r in self.routers.values())
        alive = self.model[source].alive and self.model[dest].alive
        command = PutRouter(name, self._id(source), self._id(dest), allow_cycle=True)
        made = self.writer.do(command)
        if source == dest or fan_in or not alive:
            assert isinstance(made, Exception)
        else:
            assert made.created == (name not in self.routers)
            self.routers.setdefault(name, ModelRouter(source, dest, len(self.model[source].cells)))

    @rule(data=st.data())
    def delete_router(self, data: st.DataObject) -> None:
        if self.routers:
            name = data.draw(st.sampled_from(sorted(self.routers)))
            assert self.writer.do(DeleteRouter(name)).existed
            del self.routers[name]

    @rule(stream=streams, tracked=st.booleans())
    def alter(self, stream: int, tracked: bool) -> None:
        if self.model[stream].alive:
            config = TopicConfig(cap_records=1_000_000) if tracked else TopicConfig()
            self.writer.do(AlterTopic(self._id(stream), config))
            self.model[stream].plain = not tracked

    @rule(stream=streams, surely=st.integers(0, 9))
    def delete_topic(self, stream: int, surely: int) -> None:
        if surely == 9 and self.model[stream].alive:
            self.writer.do(DeleteTopic(self._id(stream)))
            self.model[stream].alive = False
            self.routers = {n: r for n, r in self.routers.items() if stream not in (r.source, r.dest)}

    @rule(moves=st.lists(st.tuples(streams, st.integers(0, 3)), min_size=3, max_size=9))
    def write_and_forward(self, moves: list[tuple[int, int]]) -> None:
        """Streams that are in use get something every so often, and are forwarded as often."""
        for stream, count in moves:
            if count and self.model[stream].alive:
                self.append(stream, count)
            else:
                self.forward(stream, 0)

    @rule(stream=streams, short=st.integers(0, 2))
    def forward(self, stream: int, short: int) -> None:
        self.clock += 1
        model = self.model[stream]
        end = max(0, len(model.cells) - short)
        self.writer.do(Forward(stream, end, self.clock))
        due = [router for router in self.routers.values() if router.source == stream]
        wanted = {id(router): self._copies(stream, router.cursor, end) for router in due}
        for router in due:
            if self.model[router.dest].plain and router.cursor < end:
                copies = wanted[id(router)]
                self.model[router.dest].cells += copies
                router.cursor = end
                router.copies += sum(not cell.lost for cell in copies)

    def _copies(self, stream: int, cursor: int, end: int) -> list[Cell]:
        model = self.model[stream]
        made = []
        for at in range(cursor, end):
            cell = model.cells[at]
            if at < model.evicted or cell.lost:
                made.append(Cell((-1, -1), live=False, lost=True))
            elif at >= model.trimmed and cell.live and cell.hop + 1 < limits.ROUTER_HOPS_MAX:
                made.append(Cell(cell.origin, cell.hop + 1, self.clock))
        return made

    @rule()
    def prune(self) -> None:
        self.writer.ledger.aliases.prune(self.writer.ledger.streams.start)

    @rule()
    def checkpoint(self) -> None:
        encoded = self.writer.ledger.encode()
        self.writer.ledger = Ledger.decode(encoded)
        assert self.writer.ledger.encode() == encoded

    @invariant()
    def agrees(self) -> None:
        ledger = self.writer.ledger
        for stream, model in enumerate(self.model):
            if not model.alive:
                continue
            assert int(ledger.streams.end[stream]) == len(model.cells)
            assert ledger.streams.start(stream) == model.trimmed
            driver_status = model.cells[model.trimmed :]
            assert int(ledger.streams.records[stream]) == sum(cell.live for cell in driver_status)
            self._check_bytes_are_found(ledger, stream, model)
        for name, router in self.routers.items():
            found = ledger.routers.get(name)
            assert found is not None
            assert (found.legs[0].cursor, found.copies) == (router.cursor, router.copies)

    def _check_bytes_are_found(self, ledger: Ledger, stream: int, model: ModelStream) -> None:
        found: dict[int, tuple[int, int, int]] = {}
        for run in ledger.aliases.between(stream, model.trimmed, len(model.cells)):
            for at in range(run.count):
                found[run.base + at] = (run.origin, run.origin_base + at, run.time_ms)
                assert ledger.aliases.reaching(run.origin, run.origin_base + at, run.origin_base + at + 1)
        for at in range(model.trimmed, len(model.cells)):
            cell = model.cells[at]
            if cell.live:
                expected = None if cell.hop == 0 else (*cell.origin, cell.time_ms)
                assert found.get(at) == expected, (stream, at)

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            check_replays(self.writer)


TestRouterModel = RouterModel.TestCase
TestRouterModel.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
