"""Parts against a plain model: for every part the set of offsets that stand in its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mainstem.api.lake import DataFile, Part
from mainstem.errors import MainstemError
from mainstem.ledger.generations import ForgetObjects, PartsSwapped, RetireParts, SwapParts
from mainstem.ledger.streams import DeleteRecords, MarkLost, Trim
from mainstem.ledger.tasks import ReleaseTask, TakeTask

from .replaying import check_replays
from .test_generations import PREFIX
from .writer import Writer


@dataclass
class ModelPart:
    base: int
    end: int
    generation: int
    offsets: set[int]
    key: str


@dataclass
class Plan:
    """What a job looked at when it began: it knows nothing of what happens meanwhile."""

    token: int
    sources: list[ModelPart]
    base: int
    end: int
    offsets: set[int]
    compacts: bool


@dataclass
class Model:
    end: int = 0
    start: int = 0
    live: set[int] = field(default_factory=set)  # by the ledger's rules: deleted and lost ones are out
    deleted: set[int] = field(default_factory=set)  # on request
    compacted: set[int] = field(default_factory=set)
    parts: list[ModelPart] = field(default_factory=list)
    garbage: set[str] = field(default_factory=set)

    @property
    def frontier(self) -> int:
        return max(self.parts[-1].end, self.start) if self.parts else self.start

    @property
    def served(self) -> set[int]:
        return {offset for one in self.parts for offset in one.offsets}


class GenerationsMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.writer = Writer()
        self.ledger = self.writer.ledger
        self.writer.create("t")
        self.model = Model()
        self.plan: Plan | None = None
        self.tokens = 0
        self.files = 0

    @rule(count=st.integers(1, 12))
    def append(self, count: int) -> None:
        self.writer.append(0, count)
        self.model.live |= set(range(self.model.end, self.model.end + count))
        self.model.end += count

    @rule(start=st.integers(0, 60), width=st.integers(1, 5))
    def delete(self, start: int, width: int) -> None:
        # Deletes name only records that were read: compacted ones are never among them.
        chosen = sorted(set(range(start, start + width)) & self.model.live - self.model.compacted)
        if chosen:
            self.writer.do(DeleteRecords(0, tuple((one, one + 1) for one in chosen)))
            self.model.live -= set(chosen)
            self.model.deleted |= set(chosen)
            self._settle()

    @rule(start=st.integers(0, 60), width=st.integers(1, 3))
    def lose(self, start: int, width: int) -> None:
        if start >= self.model.frontier:  # damage is met in the log's own bytes
            self.writer.do(MarkLost(0, start, start + width))
            self.model.live -= set(range(start, start + width))

    @rule(offset=st.integers(0, 70), reason=st.sampled_from(["cap", "ttl", "delete"]))
    def trim(self, offset: int, reason: str) -> None:
        self.writer.do(Trim(0, offset, reason))  # type: ignore[arg-type]
        offset = min(offset, self.model.end)
        if offset > self.model.start and reason == "delete":
            self.model.deleted |= set(range(self.model.start, offset))
        self.model.live -= set(range(offset))
        self.model.start = max(self.model.start, offset)
        self._settle()

    def _settle(self) -> None:
        self.model.start = self.ledger.streams.start(0)  # it moves over deleted records by rules of its own
        self.model.live -= set(range(self.model.start))

    @precondition(lambda self: self.plan is None)
    @rule(data=st.data(), kind=st.sampled_from(["log", "log", "parts", "compact"]))
    def take(self, data: st.DataObject, kind: str) -> None:
        model = self.model
        self.tokens += 1
        sources: list[ModelPart] = []
        base, end = model.frontier, model.frontier
        if kind == "log":
            if model.end == base:
                return
            end = data.draw(st.integers(base + 1, model.end))
            offsets = {one for one in model.live if base <= one < end}
        else:
            if not model.parts:
                return
            first = 0 if kind == "compact" else data.draw(st.integers(0, len(model.parts) - 1))
            last = (
                len(model.parts) if kind == "compact" else data.draw(st.integers(first + 1, len(model.parts)))
            )
            sources = model.parts[first:last]
            base, end = sources[0].base, sources[-1].end
            offsets = {one for part in sources for one in part.offsets if one in model.live}
            if kind == "compact":
                offsets = {one for one in offsets if data.draw(st.booleans())}
        reach = end if data.draw(st.booleans()) else 0
        self.writer.do(
            TakeTask("parts/0", "m", self.tokens, 100_000, reach, 10**9 if kind == "compact" else 0)
        )
        self.plan = Plan(self.tokens, sources, base, end, offsets, kind == "compact")

    @precondition(lambda self: self.plan is not None)
    @rule(data=st.data(), again=st.booleans())
    def publish(self, data: st.DataObject, again: bool) -> None:
        plan = self.plan
        assert plan is not None
        edges = sorted(
            {plan.base, *data.draw(st.sets(st.integers(plan.base, plan.end), max_size=2)), plan.end}
        )
        generation = 1 + max((one.generation for one in plan.sources), default=0)
        made = []
        for base, end in pairwise(edges):
            self.files += 1
            offsets = {one for one in plan.offsets if base <= one < end}
            made.append(ModelPart(base, end, generation, offsets, f"{PREFIX}{self.files}"))
        command = SwapParts(
            0,
            plan.token,
            tuple((one.base, one.end, one.generation) for one in plan.sources),
            tuple(map(_part, made)),
        )
        outcome = self.writer.do(command)
        assert isinstance(outcome, PartsSwapped), outcome
        if again:
            assert self.writer.do(command).repeated
        self._replace(plan, made)
        self.writer.do(ReleaseTask("parts/0", plan.token))
        self.plan = None

    def _replace(self, plan: Plan, made: list[ModelPart]) -> None:
        model = self.model
        if plan.compacts:
            before = {one for part in plan.sources for one in part.offsets if one in model.live}
            model.compacted |= before - plan.offsets
        if plan.sources:
            at = model.parts.index(plan.sources[0])
            gone = model.parts[at : at + len(plan.sources)]
            model.parts[at : at + len(gone)] = made
        else:
            gone = model.parts if model.parts and model.parts[-1].end < plan.base else []
            model.parts = [one for one in model.parts if one not in gone] + made
        model.garbage |= {one.key for one in gone if one.offsets}

    @precondition(lambda self: self.plan is not None)
    @rule()
    def give_up(self) -> None:
        assert self.plan is not None
        self.writer.do(ReleaseTask("parts/0", self.plan.token))
        self.plan = None

    @rule(base=st.integers(0, 60), width=st.integers(1, 9), token=st.integers(0, 3))
    def swap_nonsense(self, base: int, width: int, token: int) -> None:
        if token == self.tokens:
            return
        part = Part(
            base, base + width, 1, (DataFile(f"{PREFIX}no", 0, base, base + width, width, 9, 0),), width
        )
        before = self.ledger.digest()
        assert isinstance(self.writer.do(SwapParts(0, token, (), (part,))), MainstemError)
        assert self.ledger.digest() == before

    @rule()
    def retire(self) -> None:
        self.writer.do(RetireParts((0,)))
        if self.plan is None:
            gone = [one for one in self.model.parts if one.end <= self.model.start]
            self.model.parts = self.model.parts[len(gone) :]
            self.model.garbage |= {one.key for one in gone if one.offsets}

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        keys = data.draw(st.sets(st.sampled_from(sorted(self.model.garbage) or ["parts/none"])))
        self.writer.do(ForgetObjects(tuple(sorted(keys))))
        self.model.garbage -= keys

    @invariant()
    def parts_are_those_of_the_model(self) -> None:
        generations = self.ledger.generations
        assert generations.parts(0) == [_part(one) for one in self.model.parts]
        assert generations.frontier(0) == self.model.frontier
        assert {one.key for one in generations.garbage()} == self.model.garbage

    @invariant()
    def no_live_record_is_missing_from_its_part(self) -> None:
        held = self.model.served | self.model.compacted
        assert not {one for one in self.model.live if one < self.model.frontier} - held

    @invariant()
    def parts_with_deleted_records_are_stale(self) -> None:
        stale = {one.base for one in self.ledger.generations.stale(0)}
        for one in self.model.parts:
            if one.end > self.model.start and one.offsets & self.model.deleted:
                assert one.base in stale

    @invariant()
    def counts_are_right_where_no_trim_cut_a_compacted_part(self) -> None:
        records = int(self.ledger.streams.records[0])
        left = len(self.model.live - self.model.compacted)
        assert records >= 0
        if not self.model.compacted:
            assert records == left

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            check_replays(self.writer)


def _part(one: ModelPart) -> Part:
    if not one.offsets:
        return Part(one.base, one.end, one.generation, (), 0)
    first, last = min(one.offsets), max(one.offsets) + 1
    file = DataFile(one.key, 0, first, last, len(one.offsets), 9, 0)
    return Part(one.base, one.end, one.generation, (file,), len(one.offsets))


TestGenerationsAgainstModel = GenerationsMachine.TestCase
TestGenerationsAgainstModel.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
