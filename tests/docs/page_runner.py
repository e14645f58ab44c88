"""Runs the blocks of one page, in order, as a reader would: `python page_runner.py BLOCKS`, a JSON file.

Python blocks share one namespace, shell blocks one folder. The first that fails ends the run and is named.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import traceback
from pathlib import Path

_BLOCK_S = 60


def run_shell(code: str) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code], capture_output=True, text=True, timeout=_BLOCK_S
    )
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def run_python(code: str, name: str, names: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), names)
    return printed.getvalue()


def main(page: str, blocks: list[dict[str, str]]) -> int:
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block in blocks:
        place = f"{page}:{block['line']}"
        try:
            if block["comment"] == "before":
                run_python(block["said"], f"{place} (before)", names)
            if block["comment"] == "prints":
                missing = [line for line in block["code"].splitlines() if line not in printed]
                if missing:
                    raise RuntimeError(f"not printed: {missing}; printed was:\n{printed}")
            elif block["language"] == "python":
                printed = run_python(block["code"], place, names)
            else:
                printed = run_shell(block["code"])
        except BaseException:  # noqa: BLE001 - whatever a block raises is told with its place
            sys.stderr.write(f"{place} failed:\n{block['code']}\n{traceback.format_exc()}")
            return 1
    return 0


if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.exit(main(asked["page"], asked["blocks"]))
