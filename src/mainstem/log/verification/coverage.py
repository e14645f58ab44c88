"""Check that every readable offset is in some file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from mainstem.ledger.ledger import Ledger
from mainstem.log.read.extents import Rows
from mainstem.log.verification.problems import LostRange, Problem, Problems, Severity, readable
from mainstem.ports.commitlog.local.layout import WAL
from mainstem.ports.commitlog.local.segments import file_name


class Coverage:
    """Follows each stream from file to file. Holds one row a stream, and the gaps that may matter."""

    def __init__(self, known: Ledger) -> None:
        self._known = known  # an earlier state: what was deleted by then stays deleted
        self._reached: dict[int, tuple[int, int]] = {}  # stream → end of what is covered, and its file
        # By the files before and after.
        self._gaps: dict[tuple[int, int], list[LostRange]] = defaultdict(list)
        self._seen: set[int] = set()
        self._held: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by stream, in repacked files

    def hold(self, rows: Rows) -> None:
        """Add the extents of a repacked file."""
        for stream, base, count in zip(
            rows["stream"].tolist(), rows["base"].tolist(), rows["count"].tolist(), strict=True
        ):
            held = self._held[stream]
            if held and held[-1][1] == base:
                held[-1] = (held[-1][0], base + count)
            else:
                held.append((base, base + count))

    def add(self, number: int, spans: Rows) -> None:
        """Add the spans of the next file."""
        self._seen.add(number)
        for stream, base, end in zip(
            spans["stream"].tolist(), spans["base"].tolist(), spans["end"].tolist(), strict=True
        ):
            reached, before = self._reached.get(stream, (0, 0))
            if base > reached:
                self._note(LostRange(stream, reached, base), before, number)
            self._reached[stream] = (max(end, reached), number)

    def finish(self, ledger: Ledger, problems: Problems) -> None:
        """Report what readers of the last state would miss."""
        streams = ledger.streams
        after = max(self._seen, default=0) + 1
        for stream in range(streams.count):
            reached, before = self._reached.get(stream, (0, 0))
            end = int(streams.end[stream])
            if reached < end and (streams.exists(stream) or ledger.aliases.reaching(stream, reached, end)):
                self._note(LostRange(stream, reached, end), before, after)
        for (before, after), gaps in sorted(self._gaps.items()):
            missed = [part for gap in gaps for part in _unexplained(gap, ledger, self._held)]
            # A file in an object store has only lost its note, which `ColdNotes` reports.
            stored = any(
                ledger.tiers.stored(number) for number in range(before + 1, after) if number not in self._seen
            )
            if missed and not stored:
                problems.add(self._problem(before, after, missed))

    def _note(self, gap: LostRange, before: int, after: int) -> None:
        streams = self._known.streams
        served = gap.stream >= streams.count or (
            streams.exists(gap.stream) and gap.end > self._known.generations.frontier(gap.stream)
        )
        if not served and not self._known.aliases.reaching(*gap):
            return
        self._gaps[before, after].append(gap)

    def _problem(self, before: int, after: int, missed: list[LostRange]) -> Problem:
        absent = [number for number in range(before + 1, after) if number not in self._seen]
        if absent:
            names = [file_name(number) for number in absent]
            file = f"{WAL}/{names[0]}" if len(names) == 1 else f"{WAL}/{{{names[0]} to {names[-1]}}}"
            what = "the file is missing or has no usable index"
        else:
            file, what = f"{WAL}/{file_name(after)}", "no file holds the offsets before those in this file"
        return Problem(
            Severity.DAMAGED,
            file,
            0,
            0,
            what,
            advice="restore the missing files from a backup, if possible before the next start",
            lost=missed,
        )


def _unexplained(
    gap: LostRange, ledger: Ledger, held: Mapping[int, list[tuple[int, int]]]
) -> list[LostRange]:
    """The part of a gap that no recorded crash, loss or compaction explains, and no repacked file holds."""
    streams = ledger.streams
    if gap.stream < streams.count and streams.ephemeral(gap.stream):
        return []
    elsewhere = [(run.base, run.end) for run in ledger.aliases.between(*gap)]
    holes = [(start, end) for start, end, _ in streams.holes(gap.stream)]
    holes += [(sparse.base, sparse.end) for sparse in ledger.compactions.get(gap.stream).sparse]
    # Copies in other streams need what no file holds, and nothing else of the gap.
    absent = _outside(gap, sorted(held.get(gap.stream, [])))
    explained = sorted(holes + elsewhere)
    return [part for piece in absent for part in readable(piece, ledger, explained)]


def _outside(gap: LostRange, held: Sequence[tuple[int, int]]) -> list[LostRange]:
    """The parts of a gap outside these ranges, which rise."""
    parts = []
    at = gap.start
    for start, end in held:
        if at < start < gap.end:
            parts.append(LostRange(gap.stream, at, start))
        at = max(at, end)
    if at < gap.end:
        parts.append(LostRange(gap.stream, at, gap.end))
    return parts
