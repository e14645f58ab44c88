"""Status reports of drivers and pipelines: one broker receives a report, and every broker shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

from mainstem import limits
from mainstem.errors import Unavailable
from mainstem.ledger.reports import KeepReport
from mainstem.ports.clock import Clock

if TYPE_CHECKING:  # clients import the structs, without the log
    from mainstem.log.log import Log

T = TypeVar("T")


class ReceivedReport(NamedTuple, Generic[T]):
    report: T
    heard_ms: int


class ReportStore(Generic[T]):
    """The last report of each sender of a kind, stored in the ledger. Fields of a report struct are only ever added,
    because brokers of other versions read it too."""

    def __init__(self, kind: str, report: type[T], log: Log, clock: Clock) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(report)
        self._log = log
        self._clock = clock
        self._unwritten: dict[str, ReceivedReport[T]] = {}  # the most recent at the end

    async def hear(self, name: str, report: T) -> None:
        try:
            await self._log.propose(KeepReport(self._kind, name, msgspec.json.encode(report)))
        except Unavailable:
            # On a full disk the report cannot be stored: this broker shows it from memory.
            self._unwritten.pop(name, None)
            self._unwritten[name] = ReceivedReport(report, self._clock.now_ms())
            if len(self._unwritten) > limits.REPORTS_OF_A_KIND_MAX:
                del self._unwritten[next(iter(self._unwritten))]
        else:
            self._unwritten.pop(name, None)

    def heard(self, since_ms: int) -> dict[str, ReceivedReport[T]]:
        """Reports since `since_ms`, by name."""
        kept = {
            report.name: ReceivedReport(self._decoder.decode(report.body), report.heard_ms)
            for report in self._log.ledger.reports.of(self._kind)
        }
        for name, heard in self._unwritten.items():
            if name not in kept or kept[name].heard_ms <= heard.heard_ms:
                kept[name] = heard
        return {name: heard for name, heard in kept.items() if heard.heard_ms >= since_ms}
