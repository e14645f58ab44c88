"""What came out, as a page of the documents and a picture."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from tools.bench.peers.runs import Outcome, Run

_TEXT = """<!-- Made by `make bench-peers`; run it to change this page. -->
# Benchmarks

`make bench` measures Mainstem against bars of its own, with a raw baseline in the same run. This page is
`make bench-peers`: the same work for several systems, one after the other, on one machine, over loopback.

**{machine}.**

Read the numbers with care:

- Every client is driven from Python, in one process. librdkafka is C, the others are Python: what they reach is often
  what the client can do, not the server. The server's CPU a message is the fairer column. It counts everything the
  server does meanwhile, upkeep included, so short runs of few messages look dear.
- All are set to acknowledge after a sync (below). With Mainstem 0.1.0, NATS 2.15.1, Redis 7.0.15 and RabbitMQ 3.10.8
  strace counted one sync for each single write; Kafka was not looked at. The disk's sync time bounds the singles.
- One broker each, no replication, default memory settings, {seconds:g} s a run. This is no statement about clusters.
- "write many": as many in flight as the client's habit is. "write singles": one at a time, each waited for. "read":
  what "write many" wrote, from the start.

![Messages a second and server CPU](benchmarks.svg)

"""


def machine() -> str:
    """Where this runs, and how busy it was."""
    model = "unknown processor"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        model = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model
        )
    load = os.getloadavg()[0]
    cores = os.cpu_count() or 1
    busy = f"load {load:.1f} before the runs"
    if load > 0.75 * cores:
        busy += ", so other work took part of the machine: the figures are too low and uneven"
    today = datetime.now(UTC).date().isoformat()
    return f"{model}, {cores} cores, Linux {platform.release()}, Python {platform.python_version()}, {today}; {busy}"


def page(found: Sequence[Outcome], left_out: Mapping[str, str], where: str, seconds: float) -> str:
    rows = [_row(outcome, run) for outcome in found for run in outcome.runs]
    text = _TEXT.format(machine=where, seconds=seconds)
    text += _table(
        (
            "system",
            "work",
            "payload",
            "messages/s",
            "server CPU µs a message",
            "client CPU µs",
            "p50 ms",
            "p99 ms",
        ),
        rows,
    )
    text += "\n## What was run\n\n"
    text += _table(
        ("system", "version", "an acknowledgement means", "client"),
        [(each.peer.name, each.version, each.peer.durability, each.peer.client) for each in found],
    )
    if left_out:
        text += "\n## Left out\n\n" + _table(("system", "why"), list(left_out.items()))
    return text


def _row(outcome: Outcome, run: Run) -> tuple[str, ...]:
    singles = bool(run.latencies_s)
    return (
        outcome.peer.name,
        run.what,
        run.payload,
        f"{run.rate:,.0f}",
        f"{run.server_cpu_us:,.1f}",
        f"{run.client_cpu_s / max(run.messages, 1) * 1e6:,.1f}",
        f"{run.latency_ms(0.5):.2f}" if singles else "",
        f"{run.latency_ms(0.99):.2f}" if singles else "",
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |\n"
        for line in lines
    )


_WIDTH, _LABEL, _BAR, _LINE = 760, 260, 380, 22


def picture(found: Sequence[Outcome]) -> str:
    """Bars, one group for each kind of work with 100-byte messages."""
    parts: list[str] = []
    y = 24
    groups: tuple[tuple[str, str, Callable[[Run], float], str], ...] = (
        ("Written, many at a time", "write many", lambda run: run.rate, "/s"),
        ("Written, one at a time", "write singles", lambda run: run.rate, "/s"),
        ("Read", "read", lambda run: run.rate, "/s"),
        ("Server CPU a message written, many at a time", "write many", lambda run: run.server_cpu_us, " µs"),
    )
    for title, what, value, unit in groups:
        runs = [
            (each.peer.name, run)
            for each in found
            for run in each.runs
            if (run.what, run.payload) == (what, "100 B")
        ]
        most = max((value(run) for _, run in runs), default=0.0) or 1.0
        parts.append(f'<text x="8" y="{y}" font-weight="bold">{escape(title)}, 100 B</text>')
        for name, run in runs:
            y += _LINE
            length = max(value(run) / most * _BAR, 1.0)
            parts.append(f'<text x="{_LABEL - 8}" y="{y}" text-anchor="end">{escape(name)}</text>')
            parts.append(f'<rect x="{_LABEL}" y="{y - 12}" width="{length:.1f}" height="14" fill="#00897b"/>')
            parts.append(f'<text x="{_LABEL + length + 6:.1f}" y="{y}">{value(run):,.1f}{unit}</text>')
        y += 2 * _LINE
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" font-family="sans-serif" font-size="13">\n'
        f'<rect width="{_WIDTH}" height="{y}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )
