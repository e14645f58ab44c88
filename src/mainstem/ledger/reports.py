"""Reports: the last status of each pipeline, of each lake driver and of tables, so that every broker can show it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput
from mainstem.ledger.digest import MASK
from mainstem.ledger.keyed import LatestByKey, fields_hash
from mainstem.ledger.section import Command, Moment, Section, applies

REPORT_BYTES_MAX = 256 * limits.KIB

PIPELINE = "pipeline"
LAKE_DRIVER = "lake driver"
TABLES = "tables"
_KINDS = (LAKE_DRIVER, PIPELINE, TABLES)


class KeepReport(Command, frozen=True, tag=150):
    """A status report. The ledger does not read the body."""

    kind: str  # of the sender, such as "pipeline"
    name: str
    body: bytes


class StoredReport(msgspec.Struct, frozen=True, array_like=True):
    """A report and the ledger time it arrived at; also the form in a checkpoint."""

    kind: str
    name: str
    body: bytes
    heard_ms: int


class Reports(Section[list[StoredReport]]):
    """By kind and name. Beyond the limit of a kind, its oldest report is forgotten."""

    def __init__(self) -> None:
        self._kinds: dict[str, LatestByKey[str, StoredReport]] = {
            kind: LatestByKey(fields_hash("report")) for kind in _KINDS
        }

    def of(self, kind: str) -> Iterator[StoredReport]:
        """The reports of a kind, the newest last."""
        return iter(self._kinds[kind])

    @applies(KeepReport)
    def keep(self, command: KeepReport, now: Moment) -> StoredReport | InvalidInput:
        fault = _fault(command)
        if fault is not None:
            return InvalidInput(fault)
        report = StoredReport(command.kind, command.name, command.body, now.time_ms)
        self._kinds[report.kind].put(report.name, report)
        self._kinds[report.kind].evict(limits.REPORTS_OF_A_KIND_MAX)
        return report

    @property
    def digest(self) -> int:
        return sum(kind.digest for kind in self._kinds.values()) & MASK

    def encode(self) -> list[StoredReport]:
        """By kind; within a kind in the order of arrival, which decides what is evicted."""
        return [report for kind in _KINDS for report in self._kinds[kind]]

    def load(self, state: list[StoredReport]) -> None:
        for report in state:
            self._kinds[report.kind].put(report.name, report)


def _fault(command: KeepReport) -> str | None:
    if command.kind not in _KINDS:
        return f"the kind of a report is {' or '.join(_KINDS)}"
    if not 0 < len(command.name) <= limits.NAME_CHARS_MAX:
        return f"the name in a report has 1 to {limits.NAME_CHARS_MAX} characters"
    if len(command.body) > REPORT_BYTES_MAX:
        return f"a report has at most {REPORT_BYTES_MAX} bytes, not {len(command.body)}"
    return None
