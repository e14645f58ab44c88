"""`mainstem check`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from mainstem.cli.settings import takes_settings
from mainstem.config import Resolved
from mainstem.errors import DirectoryUnusable

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.log.divergence import Divergence
    from mainstem.log.verification.directory import VerificationReport
    from mainstem.log.verification.problems import Problem

Progress = Callable[[int], Callable[[int], None]]


@click.command()
@takes_settings("data_dir")
@click.option("--quick", is_flag=True, help="Leave the bytes of the records out: structure and state only.")
@click.option(
    "--explain-divergence",
    is_flag=True,
    help="Only compare each checkpoint with the log, and name the section and key that differ.",
)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_context
def check(
    ctx: click.Context, resolved: Resolved, quick: bool, explain_divergence: bool, as_json: bool
) -> None:
    """Look for damage in a data directory, changing nothing.

    Each problem is one line: how bad it is, the file and bytes, what it means, what to do.

    \b
      damaged     records are lost, or the log cannot be opened
      repairable  one of two copies is bad and the other one serves
      torn        a write that was cut off; the next start removes it
      harmless    damaged bytes that nobody can read any more

    Exits with 1 if anything is damaged, else with 0. Beside a running server only the files that it writes no
    more are checked.
    """
    from mainstem.log.verification.directory import DirectoryCheck
    from mainstem.ports.commitlog.standstill import standstill

    directory = resolved.config.data_dir
    if not directory.is_dir():
        raise DirectoryUnusable(f"there is no log at {directory}: name its directory with --data-dir")
    if explain_divergence:
        ctx.exit(_explain(directory, as_json))
    with standstill(directory) as still, _progress() as progress:
        report = DirectoryCheck(directory, owned=not still, quick=quick).run(progress)
    if as_json:
        click.echo(json.dumps(_as_json(report), indent=2))
    else:
        _print(report)
    if not report.sound:
        ctx.exit(1)


def _explain(directory: Path, as_json: bool) -> int:
    import asyncio

    import msgspec

    from mainstem.log.divergence import explain

    found = asyncio.run(explain(directory))
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(found) | {"diverged": found.diverged}, indent=2))
    else:
        for line in divergence_lines(found):
            click.echo(line)
        if found.diverged:
            click.echo(
                "stop the server and run `mainstem repair` to write the checkpoints again from the log"
            )
    return 1 if found.diverged else 0


def divergence_lines(found: Divergence) -> Iterator[str]:
    """What disagrees, a line each."""
    for one in found.checkpoints:
        at = f"checkpoint at position {one.position}"
        if not one.diverged:
            yield (
                f"{at}: agrees with the log" if one.replayed is not None else f"{at}: agrees with its digest"
            )
            continue
        recorded = "none" if one.recorded is None else f"{one.recorded:016x}"
        replayed = "unknown, the log starts later" if one.replayed is None else f"{one.replayed:016x}"
        yield f"{at}: recorded digest {recorded}, of its state {one.stored:016x}, of the log {replayed}"
        for row in one.differences:
            yield f"  section {row.section}, key {row.key}: stored {row.stored}, the log gives {row.replayed}"
        if not one.differences and one.replayed is not None:
            yield "  every section agrees with the log: only the recorded digest is wrong"
    for position, recorded_digest, replayed_digest in found.log:
        yield (
            f"log at position {position}: recorded digest {recorded_digest:016x}, "
            f"replay gives {replayed_digest:016x}"
        )
    if found.skipped:
        yield f"{found.skipped} digests of development builds cannot be compared; the state is intact"
    if not found.diverged:
        yield "no divergence"


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on the terminal, since a large log takes a while."""
    with contextlib.ExitStack() as stack:

        def start(total: int) -> Callable[[int], None]:
            bar = click.progressbar(
                length=total, label="checking", file=sys.stderr, hidden=not sys.stderr.isatty()
            )
            return stack.enter_context(bar).update

        yield start


def _print(report: VerificationReport) -> None:
    for problem in report.problems:
        click.echo(problem.line)
    for note in report.notes:
        click.echo(f"note: {note}")
    click.echo(
        f"{report.segments:,} segments, {report.commits:,} commits, {report.records:,} records, "
        f"{report.bytes:,} bytes, {report.topics:,} topics"
        + (f", {report.part_files:,} part files" if report.part_files else "")
        + (f", {report.repacked_files:,} repacked files" if report.repacked_files else "")
        + (" (record bytes not read)" if report.quick else "")
    )
    counts = [f"{count:,} {severity.value}" for severity, count in report.counts.items() if count]
    verdict = "sound" if report.sound else "damaged"
    scope = "" if report.whole else " in what was checked"
    click.echo(f"{verdict}: {', '.join(counts) or 'no problems'}{scope}")


def _as_json(report: VerificationReport) -> dict[str, object]:
    return {
        "directory": str(report.directory),
        "sound": report.sound,
        "whole": report.whole,
        "quick": report.quick,
        "segments": report.segments,
        "commits": report.commits,
        "records": report.records,
        "bytes": report.bytes,
        "topics": report.topics,
        "part_files": report.part_files,
        "repacked_files": report.repacked_files,
        "counts": {severity.value: count for severity, count in report.counts.items()},
        "problems": [_problem(problem) for problem in report.problems],
        "notes": report.notes,
    }


def _problem(problem: Problem) -> dict[str, object]:
    return {
        "severity": problem.severity.value,
        "file": problem.file,
        "start": problem.start,
        "end": problem.end,
        "what": problem.what,
        "meaning": problem.meaning,
        "advice": problem.advice,
        "lost": [
            {"partition": name, "stream": lost.stream, "start": lost.start, "end": lost.end}
            for name, lost in zip(problem.topics, problem.lost, strict=True)
        ],
    }
