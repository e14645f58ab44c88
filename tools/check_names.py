"""Check names, prose and tests: unique class names, no phrases of the list, no use of private attributes in tests.

`python tools/check_names.py` exits with 1 and prints each problem. `names_allowed.json` holds the remaining cases:
classes that share a name, and the phrases and private attributes of each directory. The counts may only fall. `--write`
records the present state; run it after you remove cases or move files.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "src/mainstem"
PROSE = ("src/mainstem", "docs", "console/src", "tests")
SUFFIXES = (".py", ".md", ".ts", ".tsx")
GLOSSARY = "docs/glossary.md"  # it lists the words that we do not use
TESTS = "tests"
# Public, despite the underscore: of named tuples, and asyncio's for event loops.
UNDERSCORED_API = {"_asdict", "_fields", "_make", "_replace", "_set_running_loop"}
ALLOWED = "tools/names_allowed.json"

# Phrase, as a regular expression in which a space matches any white space.
PHRASES = (
    r"whoever",
    r"whomever",
    r"told of",
    r"tells? of",
    r"anew",
    r"(?<!there\s)is no (?!longer|more|default|limit)",
    r"(?<!there\s)are no (?!longer|more)",
    r"so many",
    r"to be had",
    r"had again",
    r"gone on with",
    r"goes? on with",
    r"gets? no further",
    r"looks? after",
    r"looked after",
    r"looked through",
    r"looked at at a time",
    r"heard of",
    r"what became of",
    r"what becomes of",
    r"what comes of",
    r"what has become of",
    r"worth its while",
    r"so lately",
    r"is to be",
    r"are to be",
    r"nobody's",
    r"stands? under",
    r"stands? beside",
    r"in the place of",
    r"bears? that",
    r"without a word",
    r"has a say",
    r"had a say",
    r"gives? way",
    r"gave way",
    r"reckoned",
    r"none the less",
)
_GAP = r"\s+(?:[#*]\s+|//\s+)?"  # a phrase may be broken by the end of a line of comment


def _compiled(phrase: str) -> tuple[str, str, re.Pattern[str]]:
    """A phrase, letters that a text with it must have, and its pattern in lower case."""
    letters = re.match(r"[a-z]+(?![?])", phrase)
    end = "" if phrase.endswith(")") else r"\b"
    return phrase, letters[0] if letters else "", re.compile(rf"\b{phrase.replace(' ', _GAP)}{end}")


_FORBIDDEN = [_compiled(phrase) for phrase in PHRASES]


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    arguments.add_argument("--write", action="store_true", help="record the present state as allowed")
    options = arguments.parse_args()
    classes, phrases = shared_names(options.root), forbidden_phrases(options.root)
    private = private_attributes(options.root)
    allowed_path = options.root / ALLOWED
    allowed: dict[str, dict[str, int]] = {"classes": {}, "phrases": {}, "private": {}}
    if allowed_path.exists():
        allowed |= json.loads(allowed_path.read_text())
    if options.write:
        state = {
            "classes": {name: len(places) for name, places in sorted(classes.items())},
            "phrases": {folder: len(found) for folder, found in sorted(phrases.items())},
            "private": {folder: len(found) for folder, found in sorted(private.items())},
        }
        risen = [
            kind
            for kind, counts in state.items()
            if allowed_path.exists() and sum(counts.values()) > sum(allowed[kind].values())
        ]
        for kind in risen:
            sys.stdout.write(f"{kind}: there are more cases than {ALLOWED} records\n")
        if not risen:
            allowed_path.write_text(json.dumps(state, indent=2) + "\n")
        return int(bool(risen))
    problems = [
        f"class {name} is defined {len(places)} times: {', '.join(places)}"
        for name, places in sorted(classes.items())
        if len(places) > max(1, allowed["classes"].get(name, 1))
    ]
    for kind, by_folder, what in (
        ("phrases", phrases, "phrases that we do not write"),
        ("private", private, "uses of private attributes in tests"),
    ):
        for folder, found in sorted(by_folder.items()):
            most = allowed[kind].get(folder, 0)
            if len(found) > most:
                problems.append(f"{folder}: {len(found)} {what}, {most} allowed:")
                problems.extend(f"  {place}" for place in found)
    for problem in problems:
        sys.stdout.write(problem + "\n")
    return 1 if problems else 0


def shared_names(root: Path) -> dict[str, list[str]]:
    """Classes that share a name with another class of the package, with the location of each."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted((root / PACKAGE).rglob("*.py")):
        for name, line in _classes(ast.parse(path.read_text())):
            places[name].append(f"{path.relative_to(root)}:{line}")
    return {name: found for name, found in places.items() if len(found) > 1}


def _classes(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Classes of a module, those inside classes included, those inside functions not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield child.name, child.lineno
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _classes(child)


def forbidden_phrases(root: Path) -> dict[str, list[str]]:
    """The locations of phrases of the list, by directory."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in _prose_files(root):
        text = path.read_text().lower()
        name = path.relative_to(root)
        hits = sorted(
            (match.start(), phrase)
            for phrase, letters, pattern in _FORBIDDEN
            if letters in text
            for match in pattern.finditer(text)
        )
        for start, phrase in hits:
            line = text.count("\n", 0, start) + 1
            found[_folder(name)].append(f"{name}:{line}: {phrase}")
    return dict(found)


def private_attributes(root: Path) -> dict[str, list[str]]:
    """The places in tests that use a private attribute of an object of another module, by directory."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((root / TESTS).rglob("*.py")):
        tree = ast.parse(path.read_text())
        name = path.relative_to(root)
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        own = UNDERSCORED_API | {node.attr for node in attributes if _is_self(node.value)}
        own |= {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for node in attributes:
            private = (
                node.attr.startswith("_") and not node.attr.startswith("__") and not _is_kafka_code(node)
            )
            if private and node.attr not in own:
                found[_folder(name)].append(f"{name}:{node.lineno}: {node.attr}")
    return dict(found)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _is_kafka_code(node: ast.Attribute) -> bool:
    """The codes of confluent_kafka's own errors begin with an underscore, and are public."""
    owner = node.value
    return (owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")) == "KafkaError"


def _folder(name: Path) -> str:
    return "/".join(name.parts[:-1][:3])


def _prose_files(root: Path) -> Iterator[Path]:
    for folder in PROSE:
        for path in sorted((root / folder).rglob("*")):
            skipped = "static" in path.parts or "node_modules" in path.parts
            if path.suffix in SUFFIXES and not skipped and path != root / GLOSSARY:
                yield path


if __name__ == "__main__":
    sys.exit(main())
