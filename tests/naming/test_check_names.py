"""The check of names and prose finds what it is for, and its list of exceptions only shrinks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_TOOL = Path(__file__).parents[2] / "tools" / "check_names.py"
_PHRASE = "an" + "ew"  # in two pieces, so that this file passes the check


def _check(root: Path, *flags: str) -> tuple[int, str]:
    command = [sys.executable, str(_TOOL), "--root", str(root), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def _tree(root: Path, **files: str) -> None:
    (root / "tools").mkdir(exist_ok=True)
    package = root / "src" / "mainstem"
    package.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)


def test_two_classes_with_one_name_are_found(tmp_path: Path) -> None:
    _tree(tmp_path, one="class Lease: ...\n", two="class Lease: ...\n", three="class Leases: ...\n")
    code, output = _check(tmp_path)
    assert code == 1
    assert "class Lease is defined 2 times: src/mainstem/one.py:1, src/mainstem/two.py:1" in output
    assert "Leases" not in output


def test_classes_inside_functions_may_share_a_name(tmp_path: Path) -> None:
    _tree(tmp_path, one="def f():\n    class Row: ...\n", two="class Row: ...\n")
    assert _check(tmp_path) == (0, "")


def test_a_phrase_is_found_across_the_end_of_a_line(tmp_path: Path) -> None:
    first, second = "to be", "had"
    _tree(tmp_path, one=f"# Jobs {first}\n# {second} by others, written {_PHRASE.upper()}.\n")
    code, output = _check(tmp_path)
    assert code == 1
    assert output.splitlines()[0] == "src/mainstem: 2 phrases that we do not write, 0 allowed:"
    assert f"src/mainstem/one.py:1: {first} {second}" in output
    assert f"src/mainstem/one.py:2: {_PHRASE}" in output


def test_what_was_there_is_allowed_and_more_is_not(tmp_path: Path) -> None:
    _tree(tmp_path, one=f"# {_PHRASE}\nclass A: ...\n", two="class A: ...\n")
    assert _check(tmp_path, "--write") == (0, "")
    assert _check(tmp_path) == (0, "")
    _tree(tmp_path, two=f"# {_PHRASE}\n", three="class A: ...\n", four="class A: ...\n")
    code, output = _check(tmp_path)
    assert code == 1
    assert "class A is defined 3 times" in output
    assert "2 phrases that we do not write, 1 allowed" in output
    allowed = (tmp_path / "tools" / "names_allowed.json").read_text()
    code, output = _check(tmp_path, "--write")
    assert code == 1
    assert "phrases: there are more cases than tools/names_allowed.json records" in output
    assert (tmp_path / "tools" / "names_allowed.json").read_text() == allowed


def test_private_attributes_of_other_modules_are_found_in_tests(tmp_path: Path) -> None:
    _tree(tmp_path)
    tests = tmp_path / "tests" / "broker"
    tests.mkdir(parents=True)
    own = "class Fake:\n    def __init__(self, other):\n        self._own = other._own\n"
    (tests / "test_one.py").write_text(
        own + "    def _step(self): ...\n\nFake(None)._step()\nbroker._log.close()\n"
    )
    code, output = _check(tmp_path)
    assert code == 1
    assert output.splitlines() == [
        "tests/broker: 1 uses of private attributes in tests, 0 allowed:",
        "  tests/broker/test_one.py:7: _log",
    ]
    assert _check(tmp_path, "--write") == (0, "")
    assert _check(tmp_path) == (0, "")
