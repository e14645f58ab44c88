"""Rows of several files come in one order, without all of them in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.records.merging import RowRun, merged_rows


def _rows(offsets: list[int], name: str) -> pa.RecordBatch:
    return pa.record_batch({"_offset": pa.array(offsets, pa.int64()), "from": [name] * len(offsets)})


def _run(name: str, batches: list[list[int]], opened: list[str] | None = None) -> RowRun:
    def rows() -> Iterator[pa.RecordBatch]:
        if opened is not None:
            opened.append(name)
        for batch in batches:
            yield _rows(batch, name)

    return RowRun(min((offset for batch in batches for offset in batch), default=0), rows)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 4)), unique_by=lambda row: row[0]),
    st.integers(1, 7),
    st.integers(0, 5),
)
def test_rows_of_any_runs_come_out_in_order_and_whole(
    rows: list[tuple[int, int]], batch_rows: int, earlier: int
) -> None:
    runs = []
    for number in range(5):
        offsets = sorted(offset for offset, run in rows if run == number)
        batches = [offsets[at : at + batch_rows] for at in range(0, len(offsets), batch_rows)]
        made = _run(str(number), [*batches, []])
        runs.append(made._replace(base=max(0, made.base - earlier)))
    merged = list(merged_rows(runs))
    assert [offset for batch in merged for offset in batch["_offset"].to_pylist()] == sorted(
        offset for offset, _ in rows
    )
    origin = {offset: str(run) for offset, run in rows}
    for batch in merged:
        for offset, name in zip(batch["_offset"].to_pylist(), batch["from"].to_pylist(), strict=True):
            assert origin[offset] == name


def test_a_run_is_opened_only_once_its_turn_comes() -> None:
    opened: list[str] = []
    rows = merged_rows([_run("b", [[10], [11]], opened), _run("a", [[0], [1]], opened)])
    next(rows)
    assert opened == ["a"]
    assert [batch["_offset"].to_pylist() for batch in rows] == [[1], [10], [11]]
    assert opened == ["a", "b"]


def test_columns_that_only_some_files_have_are_null_elsewhere() -> None:
    more = _rows([1, 3], "b").append_column("price", pa.array([7, 8]))
    together = list(merged_rows([_run("a", [[0, 2]]), RowRun(0, lambda: iter([more]))]))
    prices = [
        price
        for batch in together
        for price in (
            batch["price"].to_pylist() if "price" in batch.schema.names else [None] * batch.num_rows
        )
    ]
    assert prices == [None, 7, None, 8]
