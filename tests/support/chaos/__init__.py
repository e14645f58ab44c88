"""Chaos runs: brokers, an S3 server and etcd as processes, with clients of every kind, under faults.

    report = run("etcd", seed=7, seconds=60, folder=tmp_path)     # raises InvariantBroken with all findings

The seed decides which faults happen when, as far as processes allow. `tests.support.histories` checks what the clients
saw.
"""

from tests.support.chaos.run import Report, run

__all__ = ["Report", "run"]
