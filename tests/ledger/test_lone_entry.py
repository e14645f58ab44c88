"""An entry with one slice has two short cuts, which must agree with the general way bit for bit."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.ledger.entry import (
    SLICE_JOINS,
    SLICE_KEYED,
    SLICE_PACK,
    SLICE_RESUMES,
    SLICE_TRANSACTIONAL,
    Entry,
    encode_lone,
)

from .writer import Writer, run, slice_row

# The streams: plain, capped and rejecting, with idempotency keys, deleted or never created.
STREAMS = 3
ROWS = st.builds(
    slice_row,
    st.integers(0, STREAMS),
    st.integers(1, 3),
    time=st.integers(900, 1_100),
    producer=st.sampled_from([-1, -1, 0, 1]),
    epoch=st.integers(0, 1),
    sequence=st.integers(0, 6),
    flags=st.sampled_from([0, 0, SLICE_KEYED, SLICE_RESUMES, SLICE_TRANSACTIONAL | SLICE_JOINS]),
)


def writer() -> Writer:
    made = Writer()
    made.create("plain")
    made.create("capped", cap_records=4, discard="reject")
    made.create("keyed", idempotency_window_ms=1_000)
    return made


@settings(deadline=None)
@given(st.lists(st.tuples(ROWS, st.integers(0, 50), st.booleans()), max_size=12))
def test_the_short_cuts_agree_with_the_general_way(
    appends: list[tuple[tuple[int, ...], int, bool]],
) -> None:
    general, lone = writer(), writer()
    for row, later_ms, current in appends:
        general.time_ms += later_ms
        general.commit_id += 1
        epoch = general.epoch if current else general.epoch + 1
        head = (general.broker, epoch, general.commit_id, general.time_ms)
        entry = Entry(*head, [run(row)])
        packed = SLICE_PACK.pack(*row)
        names = ("broker", "broker_epoch", "commit_id", "time_ms")
        fields = dict(zip(names, head, strict=True))
        assert encode_lone(SLICE_PACK.unpack(packed), **fields) == entry.encode()
        (outcome,) = general.ledger.apply(entry)
        found = lone.ledger.apply_lone(SLICE_PACK.unpack(packed), **fields)
        assert found == (int(outcome.base[0]), int(outcome.code[0]))
    assert lone.ledger.digest() == general.ledger.digest()
    assert lone.ledger.encode() == general.ledger.encode()
