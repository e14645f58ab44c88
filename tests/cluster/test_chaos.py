"""A real cluster under faults, with clients of every kind: every response they got holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chaos import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

_WORK = ("idempotent acked", "plain acked", "read")  # what must have happened, or the run shows nothing
_MORE_WORK = (  # … and what takes longer than a moment
    "transactional acked",
    "transactions committed",
    "transactions fenced",
    "cursors committed",
    "jobs settled",
)


@pytest.mark.parametrize("kind", ["bucket", "etcd"])
def test_responses_of_a_cluster_under_faults_hold(
    kind: str, chaos_seed: int, chaos: bool, tmp_path: Path
) -> None:
    if kind == "etcd" and not chaos:
        pytest.skip("its three members take half a minute of every run: make chaos")
    report = run(kind, seed=chaos_seed, seconds=300 if chaos else 4, folder=tmp_path)
    assert report.troubles
    wanted = (*_WORK, *_MORE_WORK) if chaos else _WORK
    assert [work for work in wanted if not report.counts[work]] == []
