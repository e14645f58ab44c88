"""The documents: every block runs, every link leads somewhere, every test that is named exists."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from mainstem.testing.server import ServerProcess

from .blocks import DATA, PYTHON, SHELL, TEXT, blocks_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "ARCHITECTURE.md"])
RUN = [page for page in PAGES if any(block.runs for block in blocks_of(page))]

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_TEST = re.compile(r"(tests/[\w/]+\.py)(?:::(test_\w+))?")
_USED = re.compile(
    r"mainstem (?:topic create|produce|consume) ([a-z][\w-]*)|/v0/topics/([\w-]+)"
    r"|\.(?:produce|subscribe)\(\[?\"([\w-]+)\"|mainstem\.open\(\"([\w-]+)\"\)"
)
_DEFAULT_PORTS = {"http": 4000, "kafka": 9092, "pulsar": 6650, "text": 9091, "s3": 4001}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", RUN, ids=named)
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "server") as server:
        addresses = {door: server.address(door) for door in _DEFAULT_PORTS}

        def placed(code: str) -> str:
            for door, port in _DEFAULT_PORTS.items():
                code = re.sub(rf"(localhost|127\.0\.0\.1):{port}\b", str(addresses[door]), code)
                code = re.sub(rf'\("127\.0\.0\.1", {port}\)', f'("127.0.0.1", {addresses[door].port})', code)
            return code

        blocks = [
            {**block._asdict(), "code": placed(block.code), "said": placed(block.said)}
            for block in blocks_of(page)
            if block.runs or block.comment == "prints"
        ]
        asked = tmp_path / "blocks.json"
        asked.write_text(json.dumps({"page": named(page), "blocks": blocks}))
        folder = tmp_path / "reader"
        folder.mkdir()
        tools = Path(sys.executable).parent
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("page_runner.py")), str(asked)],
            cwd=folder,
            env={
                **os.environ,
                "MAINSTEM_URL": f"http://{addresses['http']}",
                "XDG_CONFIG_HOME": str(tmp_path / "config"),
                "PATH": f"{tools}:{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    for block in blocks_of(page):
        place = f"{named(page)}:{block.line}"
        assert block.language in SHELL | PYTHON | DATA | TEXT, f"{place}: {block.language or 'no'} language"
        if block.comment == "not run":
            assert len(block.said) > 10, f"{place}: a block that is not run says why"
        elif block.language == "sql":
            pytest.fail(f"{place}: SQL is not run here, so it says which test runs it")
        elif block.language == "json":
            json.loads(block.code)
        elif block.language == "yaml":
            list(yaml.safe_load_all(block.code))
        elif block.language == "toml":
            tomllib.loads(block.code)


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != DOCS / "decisions"], ids=named)
def test_code_stands_in_fences_where_it_is_found(page: Path) -> None:
    """Indented blocks would be passed over. Diagrams are text in a fence."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    indented = re.findall(r"\n\n( {4}\S.*)", text)
    assert indented == []


def test_what_is_not_run_is_listed_and_little() -> None:
    """`pytest -rP` shows the list."""
    able = [(page, block) for page in PAGES for block in blocks_of(page) if block.language in SHELL | PYTHON]
    left_out = [(page, block) for page, block in able if not block.runs]
    for page, block in left_out:
        print(f"{named(page)}:{block.line}: {block.said}")  # noqa: T201
    assert len(left_out) < len(able) / 2


def test_no_page_creates_what_another_one_has_created() -> None:
    """A reader goes through the pages in the order of the menu, with one server and in one folder."""
    menu = re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    used: dict[str, str] = {}  # topics and folders, and the page where they come first
    created = 0
    for page in [ROOT / "README.md", *(DOCS / name for name in menu if name != "commands.md")]:
        codes = [block.code for block in blocks_of(page) if block.runs]
        for name in re.findall(
            r"^mainstem topic create (\S+)|mainstem\.open\(\"(\S+)\"\)", "".join(codes), re.M
        ):
            made = name[0] or name[1]
            created += 1
            assert used.get(made, page.name) == page.name, f"{page.name}: {made} is there since {used[made]}"
        for code in codes:
            for made in re.findall(_USED, code):
                used.setdefault(next(filter(None, made)), page.name)
    assert created > 5


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in _LINK.findall(_without_code(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{named(page)}: {target}"
        assert ROOT in found.parents, f"{named(page)}: {target} leaves the repository"
        if anchor:
            assert anchor in anchors(found), f"{named(page)}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_test_that_is_named_exists(page: Path) -> None:
    for file, test in _TEST.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / file).is_file(), f"{named(page)}: {file}"
        assert not test or test in functions(ROOT / file), f"{named(page)}: {file}::{test}"


def test_every_promise_names_a_test() -> None:
    rows = re.findall(
        r"^\| (?!---|promise)(.*) \|$", (DOCS / "guarantees.md").read_text(encoding="utf-8"), re.M
    )
    assert len(rows) > 20
    named_tests = [_TEST.search(row) for row in rows]
    assert [row for row, test in zip(rows, named_tests, strict=True) if test is None or not test[2]] == []


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {page.name for page in DOCS.glob("*.md")}
    assert {page for page in pages if page not in menu} == set()


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--site-dir",
            str(tmp_path / "site"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    start = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "Mainstem" in start
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe|link)[^>]*(?:src|href)="?(https?://[^">]*)', text)
        assert loaded == [], f"{page.name} works without a network"


def anchors(page: Path) -> set[str]:
    """Those of its headings, as the site makes them."""
    from markdown.extensions.toc import slugify

    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {slugify(heading.replace("`", ""), "-") for heading in headings}


def functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def _without_code(page: Path) -> str:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "", text)
