"""What a server frees is there for what it receives next."""

from __future__ import annotations

import subprocess
import sys

import pytest

_CHURN = """
import resource, sys
from mainstem import heap

if sys.argv[1] == "kept":
    heap.keep_freed_memory()
held = []

def receive(times):
    for _ in range(times):
        held.append(bytearray(1_000_000))
        if len(held) > 16:
            del held[:8]  # a group of them leaves the tail cache

receive(64)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
receive(256)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> int:
    run = subprocess.run([sys.executable, "-c", _CHURN, how], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="it is glibc that is told")
def test_buffers_that_come_and_go_are_not_faulted_in_again() -> None:
    assert _faults("kept") < _faults("as it was") / 10
