"""The comparison runs, says what it left out, and its page and picture are whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parents[2]


def compare(docs: Path, *names: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "tools.bench.peers",
        "--seconds",
        "0.2",
        "--docs",
        str(docs),
        "--only",
        *names,
    ]
    env = {**os.environ, "KAFKA_HOME": str(docs / "nothing")}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)


def test_a_comparison_writes_a_page_and_a_picture(tmp_path: Path) -> None:
    done = compare(tmp_path, "mainstem", "kafka")
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| Mainstem \| (write many|write singles|read) \| (100 B|1 KiB) \| ([\d,]+) \|", page, re.M
    )
    assert len(rows) == 6
    assert all(int(rate.replace(",", "")) > 0 for _, _, rate in rows)
    written = re.search(r"^\| Mainstem \| [\d.]+ \| fdatasync before the ack", page, re.M)
    assert written is not None
    assert "| kafka | KAFKA_HOME does not point to a Kafka installation |" in page
    assert f"{os.cpu_count()} cores" in page
    picture = ElementTree.fromstring((tmp_path / "benchmarks.svg").read_text(encoding="utf-8"))
    assert len(picture.findall("{http://www.w3.org/2000/svg}rect")) == 1 + 4


def test_nothing_to_compare_leaves_the_page_alone(tmp_path: Path) -> None:
    done = compare(tmp_path, "kafka")
    assert done.returncode == 1
    assert "left out" in done.stdout
    assert list(tmp_path.iterdir()) == []
