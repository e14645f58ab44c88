"""A slice of the doors' own tests, with a broker of a cluster in the server's place. All of them: make test-cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_TESTS = Path(__file__).parents[1] / "doors"
_SLICES = {
    "cluster-bucket": (
        "kafka/test_clients.py::test_what_one_client_writes_the_others_read",
        "http/test_records.py::test_a_record_reads_back_as_it_was_written_byte_for_byte",
        "http/test_records.py::test_concurrent_batches_are_contiguous",
        "http/test_queues.py",
    ),
    "cluster-etcd": (
        "kafka/test_transactions_clients.py::test_commits_are_seen_and_aborts_are_not",
        "kafka/test_transactions_clients.py::test_a_zombie_is_fenced",
        "kafka/test_groups_clients.py::test_an_administrator_looks_at_groups_and_moves_them",
        "http/test_diff.py::test_evicted_records_leave_a_tombstone",
        "http/test_transactions.py",
    ),
}


@pytest.mark.parametrize("through", _SLICES)
def test_a_slice_of_the_doors_tests_passes_through_a_cluster(through: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-x", "--through", through]
    command += [str(_TESTS / test) for test in _SLICES[through]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
