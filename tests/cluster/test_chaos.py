"""A real cluster in real trouble, with clients of every kind: what they were told holds, whatever happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chaos import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

_WORK = ("idempotent acked", "plain acked", "read")  # what has to have been done, or the run shows nothing
_MORE_WORK = (  # … and what takes longer than a moment
    "transactional acked",
    "transactions committed",
    "transactions fenced",
    "cursors committed",
    "jobs settled",
)


@pytest.mark.parametrize("kind", ["bucket", "etcd"])
def test_what_clients_of_a_cluster_in_trouble_are_told_holds(
    kind: str, chaos_seed: int, chaos: bool, tmp_path: Path
) -> None:
    if kind == "etcd" and not chaos:
        pytest.skip("its three members take half a minute of every run: make chaos")
    report = run(kind, seed=chaos_seed, seconds=300 if chaos else 4, folder=tmp_path)
    assert report.troubles
    wanted = (*_WORK, *_MORE_WORK) if chaos else _WORK
    assert [work for work in wanted if not report.counts[work]] == []
