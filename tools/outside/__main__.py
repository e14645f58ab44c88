"""`make test-outside`: run other projects' suites against this checkout, and compare with the failures they expect.

    python -m tools.outside [NAME …]

A suite whose tools are missing is skipped with the reason. The target fails on a failure that is not expected, on an
expected one that passes now, and on a suite that cannot be run for any other reason.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import sys
import time
import traceback
from pathlib import Path

from tools.outside.suite import Missing, Suite, Tally

MODULES = (
    "kafka_java",
    "kafka_go",
    "kafka_rust",
    "kafka_python_clients",
    "kafka_c",
    "kafka_node",
    "kafka_python_processors",
    "kafka_differential",
    "kafka_java_admin",
    "apicurio",
    "pulsar_python",
    "pulsar_java",
    "pulsar_tools",
    "pulsar_go",
    "pulsar_rust",
    "pulsar_differential",
    "pulsar_admin_paths",
    "iceberg_kit",
    "iceberg_copy",
    "engines",
    "s3_tests",
    "s3_clients",
    "s3_go",
    "keycloak",
    "image",
)
FOLDER = Path("build/outside")


def main() -> int:
    modules = [importlib.import_module(f"tools.outside.{name}") for name in MODULES]
    suites: dict[str, Suite] = {suite.name: suite for module in modules for suite in module.SUITES}
    parser = argparse.ArgumentParser(prog="python -m tools.outside", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(suites)}; default all")
    chosen = parser.parse_args().names or list(suites)
    unknown = set(chosen) - set(suites)
    if unknown:
        parser.error(f"no suite named {', '.join(sorted(unknown))}; there are {', '.join(suites)}")
    rows = [_row(suites[name]) for name in chosen]
    print(
        "\n| suite | version | passed | failed | expected | skipped | seconds | |\n|---|---|---|---|---|---|---|---|"
    )
    for row, _good in rows:
        print(f"| {' | '.join(row)} |")
    return 0 if all(good for _row, good in rows) else 1


def _row(suite: Suite) -> tuple[list[str], bool]:
    """Run a suite. Returns its row of the table, and whether nothing unexpected happened."""
    print(f"{suite.name} {suite.version}", flush=True)
    folder = (FOLDER / suite.name).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        tally = suite.run(folder)
    except Missing as reason:
        return [suite.name, suite.version, "", "", "", "", "", f"skipped: {reason}"], True
    except Exception:  # noqa: BLE001 - one broken suite must not stop the others
        traceback.print_exc()
        return [suite.name, suite.version, "", "", "", "", "", "could not be run"], False
    return _judge(suite, tally, time.monotonic() - began)


def _judge(suite: Suite, tally: Tally, seconds: float) -> tuple[list[str], bool]:
    expected = {test: why for test in tally.failed if (why := suite.reason(test)) is not None}
    wrong = {test: said for test, said in tally.failed.items() if test not in expected}
    mended = [
        pattern
        for pattern in suite.expected
        if fnmatch.filter(tally.passed, pattern) and not fnmatch.filter(tally.failed, pattern)
    ]
    for test, why in expected.items():
        print(f"  expected: {test}: {why}")
    for test, said in wrong.items():
        print(f"  FAILED: {test}\n{said}")
    for pattern in mended:
        print(f"  passes now, take it off the list: {pattern}")
    counts = [len(tally.passed), len(wrong), len(expected), len(tally.skipped), round(seconds)]
    return [suite.name, suite.version, *map(str, counts), ""], not wrong and not mended


if __name__ == "__main__":
    sys.exit(main())
