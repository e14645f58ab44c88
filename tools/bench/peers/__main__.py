"""`python -m tools.bench.peers`: run every peer that is available, print the results and write them into the docs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tools.bench.peers.kafka_peer import Kafka
from tools.bench.peers.mainstem_peer import Mainstem
from tools.bench.peers.nats_peer import Nats
from tools.bench.peers.peer import Peer, Unavailable
from tools.bench.peers.rabbitmq_peer import RabbitMQ
from tools.bench.peers.redis_peer import Redis
from tools.bench.peers.report import machine, page, picture
from tools.bench.peers.runs import Outcome, run_peer


def peers(install: bool) -> dict[str, Callable[[], Peer]]:
    return {
        "mainstem": Mainstem,
        "nats": Nats,
        "redis": lambda: Redis(install),
        "rabbitmq": lambda: RabbitMQ(install),
        "kafka": Kafka,
    }


def main() -> int:
    known = peers(install=False)
    arguments = argparse.ArgumentParser(prog="python -m tools.bench.peers", description=__doc__)
    arguments.add_argument("--seconds", type=float, default=5.0, help="of each run (at most 10)")
    arguments.add_argument("--only", nargs="+", choices=known, default=list(known))
    arguments.add_argument("--install", action="store_true", help="as root: install missing Debian packages")
    arguments.add_argument(
        "--docs", type=Path, default=Path("docs"), help="folder of benchmarks.md and benchmarks.svg"
    )
    asked = arguments.parse_args()
    found: list[Outcome] = []
    left_out: dict[str, str] = {}
    before = machine()  # before the runs, so that the load it tells is not their own
    for name in asked.only:
        try:
            outcome = run_peer(peers(asked.install)[name](), min(asked.seconds, 10.0))
        except (Unavailable, ImportError) as reason:
            left_out[name] = str(reason)
            print(f"{name}: left out: {reason}", flush=True)
            continue
        found.append(outcome)
        for run in outcome.runs:
            print(
                f"{outcome.peer.name:<15} {run.what:<14} {run.payload:<6} {run.rate:>12,.0f}/s "
                f"{run.server_cpu_us:>9.2f} µs server CPU each  p99 {run.latency_ms(0.99):.2f} ms",
                flush=True,
            )
    if not found:
        return 1
    (asked.docs / "benchmarks.md").write_text(page(found, left_out, before, asked.seconds), encoding="utf-8")
    (asked.docs / "benchmarks.svg").write_text(picture(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
