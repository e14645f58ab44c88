"""Reports: the last that pipelines and drivers of the lake said of themselves, so that every broker can show it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.report_commands import KeepReport

PIPELINE = "pipeline"
LAKE_DRIVER = "lake driver"
_KINDS = (PIPELINE, LAKE_DRIVER)


class Report(msgspec.Struct, frozen=True, array_like=True):
    """What one of them said, and when; also as a checkpoint holds it."""

    kind: str
    name: str
    body: bytes
    heard_ms: int

    @property
    def digest(self) -> int:
        return hash_fields("report", self.kind, self.name, self.body, self.heard_ms)


class Reports:
    """By kind and name. Of too many of a kind the one not heard of for longest is forgotten."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Report]] = {}  # the last one heard of at the end
        self.digest = 0

    def of(self, kind: str) -> Iterator[Report]:
        """Those of a kind, the last one heard of at the end."""
        return iter(self._kept.get(kind, {}).values())

    def keep(self, command: KeepReport, time_ms: int) -> Report | InvalidInput:
        fault = _fault(command)
        if fault is not None:
            return InvalidInput(fault)
        report = Report(command.kind, command.name, command.body, time_ms)
        self._put(report)
        kind = self._kept[report.kind]
        if len(kind) > limits.REPORTS_OF_A_KIND_MAX:
            self._forget(next(iter(kind.values())))
        return report

    def encode(self) -> list[Report]:
        """By kind; within one in the order in which they were heard of, which decides who is forgotten."""
        return [report for kind in sorted(self._kept) for report in self._kept[kind].values()]

    @classmethod
    def decode(cls, states: list[Report]) -> Reports:
        reports = cls()
        for report in states:
            reports._put(report)
        return reports

    def _put(self, report: Report) -> None:
        before = self._kept.get(report.kind, {}).get(report.name)
        if before is not None:
            self._forget(before)
        self._kept.setdefault(report.kind, {})[report.name] = report
        self.digest = (self.digest + report.digest) & MASK

    def _forget(self, report: Report) -> None:
        del self._kept[report.kind][report.name]
        self.digest = (self.digest - report.digest) & MASK


def _fault(command: KeepReport) -> str | None:
    if command.kind not in _KINDS:
        return f"reports are of {' or '.join(_KINDS)}"
    if not 0 < len(command.name) <= limits.NAME_CHARS_MAX:
        return f"whose report it is takes 1 to {limits.NAME_CHARS_MAX} characters"
    if len(command.body) > limits.REPORT_BYTES_MAX:
        return f"a report takes at most {limits.REPORT_BYTES_MAX} bytes, not {len(command.body)}"
    return None
