"""`append_many` as a user of the embedded log calls it."""

from __future__ import annotations

from pathlib import Path

import mainstem
from tools.bench.report import Figure, Report, measured

CALLS = 2000
VALUES = 1000


def run(scratch: Path, report: Report) -> None:
    values = [b"value-%06d" % number for number in range(VALUES)]
    for sync in ("never", "each"):
        with mainstem.open(scratch / sync, sync=sync) as log:
            log.append_many("bench", values)
            with measured() as span:
                for _ in range(CALLS):
                    log.append_many("bench", values)
            if log.count("bench") != (CALLS + 1) * VALUES:
                raise SystemExit("the embedded log miscounts")
        rate = CALLS * VALUES / span.wall_s
        bar = 1e6 if sync == "never" else None
        report.add(Figure(f"embedded append_many of 1000, sync={sync}", rate, "rec/s", bar, cpu_s=span.cpu_s))
