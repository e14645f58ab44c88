"""What others see while a server is attacked: `tests/doors/attacks`, one attack and one server at a time.

    python -m tools.bench.attacks [NAME …] [--seconds 3] [--dir DIR]

runs some of them, or runs them for longer.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.doors.attacks.attackers import ATTACKS
from tests.doors.attacks.scenes import P99_MS_MAX, RSS_BYTES_MAX, attacked, run_attack
from tools.bench.report import Figure, Report, heading

_SECONDS = 3.0


def run(scratch: Path, report: Report) -> None:
    measure(list(ATTACKS), scratch, report, _SECONDS)


def measure(names: list[str], scratch: Path, report: Report, seconds: float) -> None:
    for name in names:
        folder = scratch / name
        folder.mkdir()
        with attacked(folder, name) as server:
            observed = run_attack(server, name, seconds)
        latencies = ", ".join(f"{probe} {ms:.0f}" for probe, ms in observed.p99_ms.items())
        mib = observed.rss_bytes >> 20
        note = f"{latencies}; before {observed.quiet_p99_ms:.0f}; {mib} MiB"
        if observed.rss_bytes >= RSS_BYTES_MAX:
            note += f" (bar {RSS_BYTES_MAX >> 20})"
        if observed.failures:
            note += f"; {len(observed.failures)} failures, such as {observed.failures[0]}"
        worst = max(observed.p99_ms.values())
        report.add(Figure(f"{name}: worst p99", worst, "ms", P99_MS_MAX, lower_is_better=True, note=note))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.attacks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *ATTACKS], help="default: all")
    parser.add_argument("--seconds", type=float, default=_SECONDS)
    parser.add_argument("--dir", type=Path, default=Path(), help="where the scratch data goes")
    chosen = parser.parse_args()
    report = Report()
    print(heading(), flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=chosen.dir) as scratch:
        measure(chosen.names or list(ATTACKS), Path(scratch), report, chosen.seconds)
    print(report.summary())


if __name__ == "__main__":
    main()
