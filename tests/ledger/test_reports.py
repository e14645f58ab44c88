"""Reports of pipelines and drivers: the last of each, no more of a kind than there is room for."""

from __future__ import annotations

import pytest

from mainstem import limits
from mainstem.errors import InvalidInput
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.reports import LAKE_DRIVER, PIPELINE, REPORT_BYTES_MAX, KeepReport, StoredReport

from .writer import Writer


@pytest.fixture
def writer() -> Writer:
    return Writer()


def names(ledger: Ledger, kind: str) -> list[str]:
    return [report.name for report in ledger.reports.of(kind)]


def test_the_last_report_of_each_is_kept_with_its_time(writer: Writer) -> None:
    (first,) = writer.apply(KeepReport(PIPELINE, "a", b"1"))
    assert first == StoredReport(PIPELINE, "a", b"1", writer.ledger.time_ms)
    writer.apply(KeepReport(LAKE_DRIVER, "a", b"other"))
    writer.apply(KeepReport(PIPELINE, "b", b"2"))
    writer.apply(KeepReport(PIPELINE, "a", b"3"))
    assert names(writer.ledger, PIPELINE) == ["b", "a"]
    assert [report.body for report in writer.ledger.reports.of(PIPELINE)] == [b"2", b"3"]
    assert [report.body for report in writer.ledger.reports.of(LAKE_DRIVER)] == [b"other"]


def test_the_one_not_heard_of_for_longest_goes_also_after_a_checkpoint(writer: Writer) -> None:
    for number in range(limits.REPORTS_OF_A_KIND_MAX):
        writer.apply(KeepReport(PIPELINE, f"p{number}", b"{}"))
    writer.apply(KeepReport(PIPELINE, "p0", b"again"))
    again = Ledger.decode(writer.ledger.encode())
    assert again.digest() == writer.ledger.digest()
    for ledger in (writer.ledger, again):
        Writer(ledger).apply(KeepReport(PIPELINE, "one more", b"{}"))
        assert len(names(ledger, PIPELINE)) == limits.REPORTS_OF_A_KIND_MAX
        assert "p1" not in names(ledger, PIPELINE)
        assert names(ledger, PIPELINE)[-2:] == ["p0", "one more"]
    assert again.digest() == writer.ledger.digest()


@pytest.mark.parametrize(
    "command",
    [
        KeepReport("weather", "a", b"{}"),
        KeepReport(PIPELINE, "", b"{}"),
        KeepReport(PIPELINE, "n" * (limits.NAME_CHARS_MAX + 1), b"{}"),
        KeepReport(PIPELINE, "a", bytes(REPORT_BYTES_MAX + 1)),
    ],
)
def test_what_nobody_could_show_is_refused(writer: Writer, command: KeepReport) -> None:
    before = writer.ledger.reports.digest
    assert isinstance(writer.apply(command)[0], InvalidInput)
    assert writer.ledger.reports.digest == before
