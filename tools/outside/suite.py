"""What a suite is, and what it may use: programs of the machine, packages of the registries, a server.

A suite fetches its tests in a pinned version into its folder below `build/outside`, which git ignores. The result is
compared with the failures that the suite expects: each has a reason, and any other failure fails the run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

TIMEOUT_S = 3600.0


class Missing(Exception):
    """The suite cannot run here; the text says what it lacks."""


@dataclass(slots=True)
class Tally:
    """The tests of one run, by name."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # test → the end of its output
    skipped: list[str] = field(default_factory=list)

    def check_ran(self, output: str) -> Tally:
        """Raises RuntimeError if no test ran: then the suite itself is broken."""
        if not self.passed and not self.failed:
            raise RuntimeError(f"no test ran:\n{output[-4000:]}")
        return self


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    version: str
    run: Callable[[Path], Tally]
    expected: Mapping[str, str]  # pattern of a test's name → why it fails here

    def reason(self, test: str) -> str | None:
        """Why the test may fail, or None."""
        return next((why for pattern, why in self.expected.items() if fnmatchcase(test, pattern)), None)


def program(name: str) -> str:
    """The path of a program. Raises Missing."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed")
    return found


def call(
    command: Iterable[str | Path],
    cwd: Path,
    *,
    check: bool = True,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> str:
    """Run a command and return what it wrote, to `log` as well. Raises RuntimeError if it fails and `check` is set."""
    words = [str(word) for word in command]
    with tempfile.TemporaryFile() if log is None else log.open("w+b") as written:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdout=written,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
        written.seek(0)
        output = written.read().decode(errors="replace")
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} failed with {done.returncode}:\n{output[-4000:]}")
    return output


def python_with(folder: Path, *packages: str) -> Path:
    """The interpreter of a virtual environment that has the packages; it is created once for each list of them."""
    python, stamp = folder / "venv" / "bin" / "python", folder / "venv" / ".packages"
    wanted = "\n".join(packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder / "venv", ignore_errors=True)
        call([sys.executable, "-m", "venv", folder / "venv"], folder)
        call([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], folder)
        stamp.write_text(wanted)
    return python


def checkout(name: str, variable: str) -> Path:
    """The folder that a variable of the environment names, for suites that no package contains. Raises Missing."""
    folder = os.environ.get(variable)
    if not folder:
        raise Missing(f"no package has its tests: set {variable} to a checkout of {name}")
    return Path(folder)


def of_junit(report: Path) -> Tally:
    """The results in a JUnit report, as pytest and Gradle write it."""
    tally = Tally()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        wrong = [*case.findall("failure"), *case.findall("error")]
        if wrong:
            tally.failed[name] = ((wrong[0].get("message") or "") + "\n" + (wrong[0].text or ""))[-1500:]
        elif case.find("skipped") is not None:
            tally.skipped.append(name)
        else:
            tally.passed.append(name)
    return tally


def of_go(output: str) -> Tally:
    """The results in the output of `go test -json`."""
    tally, said = Tally(), dict[str, list[str]]()
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        test = event.get("Test")
        if test is None:
            continue
        if event["Action"] == "output":
            said.setdefault(test, []).append(event["Output"])
        elif event["Action"] == "pass":
            tally.passed.append(test)
        elif event["Action"] == "skip":
            tally.skipped.append(test)
        elif event["Action"] == "fail":
            tally.failed[test] = "".join(said.get(test, ()))[-1500:]
    return tally


def of_cargo(output: str) -> Tally:
    """The results in the output of `cargo test`."""
    tally = Tally()
    for line in output.splitlines():
        if not line.startswith("test ") or " ... " not in line:
            continue
        name, _, result = line[5:].partition(" ... ")
        if result.startswith("ok"):
            tally.passed.append(name)
        elif result.startswith("ignored"):
            tally.skipped.append(name)
        elif result.startswith("FAILED"):
            start = output.find(f"---- {name} stdout ----")
            tally.failed[name] = output[start : start + 1500] if start >= 0 else ""
    return tally


def of_lines(output: str) -> Tally:
    """The results of our own programs: lines of JSON with the name of a check, and why it failed."""
    tally = Tally()
    for line in output.splitlines():
        if not line.startswith('{"name"'):
            continue
        result = json.loads(line)
        if "failed" in result:
            tally.failed[result["name"]] = result["failed"]
        else:
            tally.passed.append(result["name"])
    return tally
