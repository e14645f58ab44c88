"""A real cluster in real trouble: brokers, an S3 server and etcd as processes, with clients of every kind at work.

    report = run("etcd", seed=7, seconds=60, folder=tmp_path)     # raises InvariantBroken with all that was broken

The seed decides what happens to whom and when, as far as that can be decided about processes; what the clients saw is
judged by `tests.support.histories`.
"""

from tests.support.chaos.run import Report, run

__all__ = ["Report", "run"]
