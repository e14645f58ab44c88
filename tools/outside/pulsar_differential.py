"""The same random program of client and admin calls against Apache Pulsar and Mainstem, and their answers compared.

A program is a seed. It has a namespace of its own, and stops at the first difference, because later answers follow from
it. Every kind of step is a test: it fails with the first difference that was found, as `step: answer ≠ answer`.

    OUTSIDE_PULSAR_SEEDS=17,23 python -m tools.outside pulsar-differential     # repeat these programs
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from mainstem.testing.server import ServerProcess
from tools.outside.pulsar_programs import Step, program_of
from tools.outside.pulsar_side import DRAINED_MAX, Answer, PulsarSide
from tools.outside.pulsar_standalone import VERSION, PulsarStandalone
from tools.outside.suite import Suite, Tally

PROGRAMS = 40
_PATIENCE = 4  # times that an answer is asked for again, before it counts as another one
_READS = ("drain", "read", "admin GET", "has_message_available", "partitions", "consumer_last_id")


def run(folder: Path) -> Tally:
    chosen = os.environ.get("OUTSIDE_PULSAR_SEEDS")
    seeds = [int(seed) for seed in chosen.split(",")] if chosen else list(range(PROGRAMS))
    tally = Tally()
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        ServerProcess(Path(data) / "data", "--text", "off", "--kafka", "off") as server,
        PulsarStandalone(folder) as standalone,
        ThreadPoolExecutor(2) as threads,
    ):
        sides = (
            PulsarSide("pulsar", standalone.pulsar, standalone.http),
            PulsarSide("mainstem", str(server.address("pulsar")), str(server.address("http"))),
        )
        kinds: set[str] = set()
        for side in sides:
            side.namespace = ""
            side.admin("PUT", "admin/v2/tenants/diff", {"allowedClusters": ["standalone"], "adminRoles": []})
        for seed in seeds:
            for kind, difference in compare(sides, seed, threads):
                kinds.add(kind)
                if difference is not None:
                    tally.failed.setdefault(f"{kind}: {difference[:200]}", f"seed {seed}\n{difference}")
    tally.passed = sorted(kinds)
    return tally


def compare(
    sides: tuple[PulsarSide, PulsarSide], seed: int, threads: ThreadPoolExecutor
) -> Iterator[tuple[str, str | None]]:
    """Run the program of a seed. Yields each kind of step, and the difference that it made."""
    namespace = f"diff/n{seed}"
    for side in sides:
        side.begin(namespace)
    log: list[str] = []
    try:
        for side in sides:
            side.admin("PUT", f"admin/v2/namespaces/{namespace}", {})
        for step in program_of(Random(seed)):
            first, second = _both(sides, step, threads)
            kind = step.kind
            difference = _difference(first, second)
            log.append(f"{step.name} {step.arguments}: {json.dumps(first, sort_keys=True)[:300]}")
            if difference is not None and step.name == "drain" and len(first["messages"]) >= DRAINED_MAX:
                return  # Pulsar 4.0.7 sends messages of partly acknowledged batches without end
            if difference is not None:
                trail = "\n".join(f"  {line}" for line in log[-60:])
                yield kind, f"{difference}\n  of {step.name} {step.arguments}, after\n{trail}"
                if kind not in _READS or step.name in ("drain", "read"):
                    return
            else:
                yield kind, None
    finally:
        for side in sides:
            side.end()


def _both(sides: tuple[PulsarSide, PulsarSide], step: Step, threads: ThreadPoolExecutor) -> list[Answer]:
    """The answers of both, asked for again while they differ and the step only reads."""

    def ask(arguments: dict[str, Any]) -> list[Answer]:
        return list(threads.map(lambda side: step.shown(side.do(step.name, arguments)), sides))

    answers = ask(step.arguments)
    for attempt in range(_PATIENCE if step.kind in _READS else 0):
        if _difference(*answers) is None:
            break
        if step.name in ("drain", "read"):  # what comes late belongs to the answer
            more = ask({**step.arguments, "quiet_ms": 500 * (attempt + 1)})
            answers = [_joined(one, two) for one, two in zip(answers, more, strict=True)]
        else:
            time.sleep(0.3)
            answers = ask(step.arguments)
    return answers


def _joined(first: Answer, more: Answer) -> Answer:
    if "messages" not in first or "messages" not in more:
        return more
    joined = sorted([*first["messages"], *more["messages"]], key=lambda message: str(message["topic"]))
    return {**first, "messages": joined if first["in order"] else sorted(joined, key=json.dumps)}


def _difference(first: Answer, second: Answer, at: str = "") -> str | None:
    """Where two answers differ: Pulsar's comes first."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in [*first, *(key for key in second if key not in first)]:
            if key not in first or key not in second:
                missing = "Pulsar has none" if key not in first else "Mainstem has none"
                return f"{at}.{key}: {missing}"
            found = _difference(first[key], second[key], f"{at}.{key}")
            if found is not None:
                return found
        return None
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (one, two) in enumerate(zip(first, second, strict=True)):
            found = _difference(one, two, f"{at}[{index}]")
            if found is not None:
                return found
        return None
    if isinstance(first, list) and isinstance(second, list):
        first, second = (
            [one.get("payload", one) if isinstance(one, dict) else one for one in many]
            for many in (first, second)
        )
    return None if first == second else f"{at} {json.dumps(first)[:600]} ≠ {json.dumps(second)[:600]}"


SUITES = (
    Suite(
        "pulsar-differential",
        VERSION,
        run,
        {
            "admin GET: .body.batchIndex: Mainstem has none*": "the id at a time, of a topic without messages: that "
            "of Pulsar is an id of a message in a batch"
        },
    ),
)
