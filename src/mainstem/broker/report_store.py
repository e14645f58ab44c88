"""What those who work beside the brokers tell of themselves: heard by one broker, shown by all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

from mainstem import limits
from mainstem.errors import Unavailable
from mainstem.ledger.report_commands import KeepReport
from mainstem.ports.clock import Clock

if TYPE_CHECKING:  # clients import the structs that are told, and need no log for that
    from mainstem.log.log import Log

T = TypeVar("T")


class ReceivedReport(NamedTuple, Generic[T]):
    report: T
    heard_ms: int


class ReportStore(Generic[T]):
    """The last report of each of a kind. They are kept in the ledger: a report is a struct whose fields are only
    ever added to, for brokers of other versions read it too."""

    def __init__(self, kind: str, report: type[T], log: Log, clock: Clock) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(report)
        self._log = log
        self._clock = clock
        self._unwritten: dict[str, ReceivedReport[T]] = {}  # the last one heard of at the end

    async def hear(self, name: str, report: T) -> None:
        try:
            await self._log.propose(KeepReport(self._kind, name, msgspec.json.encode(report)))
        except Unavailable:
            # A full disk is what reports tell of: this broker shows them all the same.
            self._unwritten.pop(name, None)
            self._unwritten[name] = ReceivedReport(report, self._clock.now_ms())
            if len(self._unwritten) > limits.REPORTS_OF_A_KIND_MAX:
                del self._unwritten[next(iter(self._unwritten))]
        else:
            self._unwritten.pop(name, None)

    def heard(self, since_ms: int) -> dict[str, ReceivedReport[T]]:
        """By name, those heard of no earlier than that."""
        kept = {
            report.name: ReceivedReport(self._decoder.decode(report.body), report.heard_ms)
            for report in self._log.ledger.reports.of(self._kind)
        }
        for name, heard in self._unwritten.items():
            if name not in kept or kept[name].heard_ms <= heard.heard_ms:
                kept[name] = heard
        return {name: heard for name, heard in kept.items() if heard.heard_ms >= since_ms}
