"""A real cluster in real trouble, with clients of every kind: what they were told holds, whatever happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem.testing.chaos import run

pytestmark = pytest.mark.slow

_WORK = (  # what has to have been done, or the run shows nothing
    "idempotent acked",
    "plain acked",
    "transactional acked",
    "transactions committed",
    "read",
    "cursors committed",
    "jobs settled",
)


@pytest.mark.parametrize("kind", ["bucket", "etcd"])
def test_what_clients_of_a_cluster_in_trouble_are_told_holds(
    kind: str, chaos_seed: int, chaos: bool, tmp_path: Path
) -> None:
    report = run(kind, seed=chaos_seed, seconds=300 if chaos else 4, folder=tmp_path)
    assert report.troubles
    assert [work for work in _WORK if not report.counts[work]] == []
