"""Ports that stay a test's own while nobody listens on them."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack
from itertools import pairwise

from mainstem.testing.ports import consecutive_ports, kept_ports

_ELSEWHERE = """
import sys
from mainstem.testing.ports import kept_ports
print(*kept_ports(250), flush=True)
sys.stdin.read()
"""


def test_no_port_is_given_twice_in_this_process_or_another() -> None:
    here = kept_ports(150)
    there: list[int] = []
    with ExitStack() as runs:
        for _ in range(2):  # both go on until all were asked
            command = [sys.executable, "-c", _ELSEWHERE]
            run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            runs.enter_context(run)
            assert run.stdout is not None
            there += map(int, run.stdout.readline().split())
        here += kept_ports(150)
    assert len(there) == 500
    assert len({*here, *there}) == len(here) + len(there)


def test_a_port_that_somebody_listens_on_is_passed_over() -> None:
    (port,) = kept_ports(1)
    while port % 100 == 99:  # the one after it may be another process's
        (port,) = kept_ports(1)
    with socket.create_server(("127.0.0.1", port + 1)):
        assert port + 1 not in kept_ports(3)


def test_runs_of_ports_do_not_overlap() -> None:
    """A door of several workers listens on as many consecutive ports."""
    lengths = (3, 1, 3, 2, 3)
    taken = [
        port
        for length in lengths
        for first in (consecutive_ports(length),)
        for port in range(first, first + length)
    ]
    taken += kept_ports(2)
    assert all(before < after for before, after in pairwise(taken))
