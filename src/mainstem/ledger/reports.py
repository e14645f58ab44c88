"""Reports: the last that pipelines and drivers of the lake said of themselves, so that every broker can show it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.latest_by_key import LatestByKey
from mainstem.ledger.report_commands import KeepReport

PIPELINE = "pipeline"
LAKE_DRIVER = "lake driver"
_KINDS = (PIPELINE, LAKE_DRIVER)


class StoredReport(msgspec.Struct, frozen=True, array_like=True):
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
        self._kept: dict[str, LatestByKey[StoredReport]] = {}

    @property
    def digest(self) -> int:
        return sum(kind.digest for kind in self._kept.values()) & MASK

    def of(self, kind: str) -> Iterator[StoredReport]:
        """Those of a kind, the last one heard of at the end."""
        return iter(self._kept.get(kind, ()))

    def keep(self, command: KeepReport, time_ms: int) -> StoredReport | InvalidInput:
        fault = _fault(command)
        if fault is not None:
            return InvalidInput(fault)
        report = StoredReport(command.kind, command.name, command.body, time_ms)
        self._put(report)
        self._kept[report.kind].keep(limits.REPORTS_OF_A_KIND_MAX)
        return report

    def encode(self) -> list[StoredReport]:
        """By kind; within one in the order in which they were heard of, which decides who is forgotten."""
        return [report for kind in sorted(self._kept) for report in self._kept[kind]]

    @classmethod
    def decode(cls, states: list[StoredReport]) -> Reports:
        reports = cls()
        for report in states:
            reports._put(report)
        return reports

    def _put(self, report: StoredReport) -> None:
        self._kept.setdefault(report.kind, LatestByKey()).put(report.name, report)


def _fault(command: KeepReport) -> str | None:
    if command.kind not in _KINDS:
        return f"reports are of {' or '.join(_KINDS)}"
    if not 0 < len(command.name) <= limits.NAME_CHARS_MAX:
        return f"whose report it is takes 1 to {limits.NAME_CHARS_MAX} characters"
    if len(command.body) > limits.REPORT_BYTES_MAX:
        return f"a report takes at most {limits.REPORT_BYTES_MAX} bytes, not {len(command.body)}"
    return None
