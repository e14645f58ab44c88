"""ARCHITECTURE.md names only files, classes and functions that exist, and the bounds that tests check."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import mainstem
from tests.doors.http.test_paths import POST_FILES_MAX
from tests.doors.kafka import test_paths as kafka

PACKAGE = Path(mainstem.__file__).parent
ROOT = PACKAGE.parent.parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
SPANS = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL))
PATH = re.compile(r"[\w{},./-]+(?:\.(?:py|toml|md)|/)")
NAME = re.compile(r"_?[A-Z]\w*[a-z]\w*(?:\.\w+)?")
NAMED = re.compile(r"`([\w.]+)` \(`([\w/]+\.py)`(?:, `([\w/]+\.py)`)?")
OTHERS = {"quarantine/", "test_paths.py"}  # in a data directory, and of each door in tests/
LAYERS = [path for path in PACKAGE.iterdir() if path.is_dir()]


def expanded(path: str) -> list[str]:
    """`a/{b,c}` as both paths."""
    before, brace, rest = path.partition("{")
    inner, _, after = rest.partition("}")
    return [before + one.strip() + after for one in inner.split(",")] if brace else [path]


@cache
def defined(path: Path) -> set[str]:
    """Functions, classes, and methods and attributes of classes as `Class.name`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            for one in ast.walk(node):
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                    found.add(f"{node.name}.{one.name}")
                elif isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
                    found.add(f"{node.name}.{one.attr}")
    return found


@pytest.mark.parametrize("path", sorted({span for span in SPANS if PATH.fullmatch(span)} - OTHERS))
def test_a_named_file_exists(path: str) -> None:
    for one in expanded(path):
        assert any((folder / one).exists() for folder in (PACKAGE, ROOT, *LAYERS)), one


def test_named_classes_and_methods_exist() -> None:
    everything: set[str] = set().union(*map(defined, PACKAGE.rglob("*.py")))
    names = {span for span in SPANS if NAME.fullmatch(span) and "/" not in span}
    assert len(names) > 50
    assert sorted(names - everything) == []


def test_a_name_is_in_the_file_beside_it() -> None:
    pairs = NAMED.findall(" ".join(TEXT.split()))
    assert len(pairs) > 20
    wrong = [
        (name, paths)
        for name, *paths in pairs
        if not any(name in defined(PACKAGE / path) for path in paths if path)
    ]
    assert wrong == []


def test_the_numbers_of_files_are_those_that_tests_check() -> None:
    flat = " ".join(TEXT.split())
    found = re.search(
        r"A produce crosses (\d+) files .*? \((\d+) for the first request.*?a fetch from memory (\d+), .*?"
        r"once the file is decoded, and an HTTP `POST` of records (\d+)\.",
        flat,
    )
    assert found is not None
    numbers = tuple(map(int, found.groups()))
    assert numbers == (
        kafka.PRODUCE_FILES_MAX,
        kafka.FIRST_PRODUCE_FILES_MAX,
        kafka.FETCH_FILES_MAX,
        POST_FILES_MAX,
    )
