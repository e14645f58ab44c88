"""`make bench`: every speed and memory target, with CPU seconds and a raw baseline measured in the same run.

    python -m tools.bench [NAME …] [--dir DIR]

NAME is one of `NAMES` or `GROUPS`; without a name, all benchmarks run. The data goes to a temporary folder below DIR
(default: the current directory, because /tmp may be in memory), which is deleted at the end.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
from pathlib import Path

from tools.bench.machine import touch_memory
from tools.bench.report import Report, heading

NAMES = (
    "records",
    "appends",
    "lone",
    "singles",
    "embedded",
    "reads",
    "recovery",
    "memory",
    "kafka",
    "fetch_sessions",
    "http",
    "access",
    "watch",
    "queues",
    "shares",
    "pulsar",
    "routers",
    "parts",
    "lake",
    "spark",
    "etcd",
    "etcd_acks",
    "cluster",
    "objectstore",
    "s3",
    "repack",
    "compaction",
    "tables",
    "sql",
    "workers",
    "attacks",
)

GROUPS = {
    # One record at a time, reads without copies, every core, and milliseconds in a cluster
    "limit": ("lone", "kafka", "reads", "workers", "etcd_acks"),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description="Measure the bars.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join((*NAMES, *GROUPS))}; default all"
    )
    parser.add_argument("--dir", type=Path, default=Path(), help="where the scratch data goes")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - {*NAMES, *GROUPS}
    if unknown:
        parser.error(
            f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join((*NAMES, *GROUPS))}"
        )
    report = Report()
    print(heading(), flush=True)
    touch_memory()
    for name in [name for given in chosen.names or NAMES for name in GROUPS.get(given, (given,))]:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=chosen.dir) as scratch:
            importlib.import_module(f"tools.bench.{name}").run(Path(scratch), report)
    print(report.summary())


if __name__ == "__main__":
    main()
