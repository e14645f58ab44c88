"""A sample of the doors' tests, with a broker of a cluster instead of the server. All of them: make test-cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_TESTS = Path(__file__).parents[1] / "doors"
_SLICES = {
    "cluster-bucket": (
        "kafka/test_clients.py::test_what_one_client_writes_the_others_read[confluent-none]",
        "kafka/test_clients.py::test_what_one_client_writes_the_others_read[aiokafka-lz4]",
        "http/test_records.py::test_concurrent_batches_are_contiguous",
        "http/test_queues.py::test_an_ack_deletes_for_good",
        "http/test_queues.py::test_a_lease_expires_strictly_after_its_deadline_and_keeps_the_count",
        "http/test_groups.py::test_a_group_is_listed_and_shown_with_its_lag",
        "http/test_pipelines.py::test_the_lag_is_computed_when_it_is_read",
    ),
    "cluster-etcd": (
        "kafka/test_transactions_clients.py::test_commits_are_seen_and_aborts_are_not",
        "kafka/test_transactions_clients.py::test_a_zombie_is_fenced",
        "http/test_diff.py::test_evicted_records_leave_a_tombstone[disk]",
        "http/test_watch.py::test_the_backlog_comes_first_then_caught_up_once_then_new_records",
    ),
    "workers": (
        "kafka/test_clients.py::test_what_one_client_writes_the_others_read[confluent-none]",
        "kafka/test_transactions_clients.py::test_commits_are_seen_and_aborts_are_not",
        "http/test_watch_server.py::test_clients_that_leave_free_their_slots",
        "http/test_records.py::test_concurrent_batches_are_contiguous",
        "http/test_queues.py::test_an_ack_deletes_for_good",
        "http/test_groups.py::test_a_group_is_listed_and_shown_with_its_lag",
    ),
}


@pytest.mark.parametrize("through", _SLICES)
def test_a_sample_of_the_doors_tests_passes_through_a_cluster(through: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-x", "--through", through]
    command += [str(_TESTS / test) for test in _SLICES[through]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        said, _ = run.communicate(timeout=240)
    finally:
        with contextlib.suppress(ProcessLookupError):  # processes left over from an interrupted run
            os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 0, said[-4000:]
    assert "failed" not in said
