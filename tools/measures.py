"""Counts of the package's source: size by area and by feature, and what the design wants to be few.

`python tools/measures.py [--root DIR]` prints Markdown tables. docs/decisions/0066 has them as of a date.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

LONG_FILE_LINES = 500
SHORT_FILE_LINES = 60
LONG_FUNCTION_LINES = 80
# Features that came after the first round, by what their paths contain. The first that matches counts.
FEATURES = {
    "Pulsar": r"pulsar|subscription|publish_sequences|exclusive_producers",
    "schema registry, and columns from schemas": r"^schemas/|schema|payloads/|^tables/registry",
    "S3 and buckets": r"^doors/s3/|bucket(s|_)|s3_",
    "SQL": r"(^|/)sql",
    "workers of one host": r"commitlog/shared/host/|^supervisor|storage/workers",
    "erase": r"eras(e|ing|ure)",
    "compaction in the broker": r"compact|shrinking|dead_spans",
    "identity: keys, tokens, namespaces, rates, budgets": (
        r"broker/access/|namespace|rates?\.py|throttle|doors/budget|api_keys|access_rules|credentials|oauth"
    ),
}


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    package = arguments.parse_args().root / "src/mainstem"
    texts = {path.relative_to(package): path.read_text() for path in sorted(package.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = {path: len(text.splitlines()) for path, text in texts.items()}
    sizes = sorted(lines.values())
    importers = _importers(trees)
    short = [
        path
        for path, count in lines.items()
        if count < SHORT_FILE_LINES
        and path.name != "__init__.py"
        and path.parent != Path("doors/kafka/apis")
        and len(importers[_module(path)]) == 1
    ]
    rows = {
        "lines in the package": sum(sizes),
        "files": len(sizes),
        "lines of a file, median and p90": f"{statistics.median(sizes):g}, {sizes[len(sizes) * 9 // 10]}",
        f"files over {LONG_FILE_LINES} lines": sum(size > LONG_FILE_LINES for size in sizes),
        f"files under {SHORT_FILE_LINES} lines": sum(size < SHORT_FILE_LINES for size in sizes),
        "… with one importer, Kafka APIs apart": len(short),
        f"functions over {LONG_FUNCTION_LINES} lines": sum(_long_functions(tree) for tree in trees.values()),
        "class names used twice or more": sum(count > 1 for count in _classes(trees).values()),
        "parameters and fields of classes that are callables": sum(map(_callables, trees.values())),
        "limits in limits.py that one module uses": sum(len(users) == 1 for users in _limits(texts).values()),
    }
    _table(("measure", "count"), rows.items())
    areas: Counter[str] = Counter()
    features: Counter[str] = Counter()
    for path, count in lines.items():
        areas[path.parts[0]] += count
        features[_feature(path)] += count
    _table(("area", "lines"), areas.most_common(12))
    _table(("feature", "lines"), features.most_common())
    return 0


def _table(head: tuple[str, str], rows: Iterable[tuple[str, object]]) -> None:
    out = [f"| {head[0]} | {head[1]} |", "|---|---|"]
    out += [
        f"| {name} | {count:,} |" if isinstance(count, int) else f"| {name} | {count} |"
        for name, count in rows
    ]
    sys.stdout.write("\n".join(out) + "\n\n")


def _feature(path: Path) -> str:
    for name, pattern in FEATURES.items():
        if re.search(pattern, str(path)):
            return name
    return "everything else"


def _module(path: Path) -> str:
    parts = ("mainstem", *path.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _importers(trees: dict[Path, ast.Module]) -> dict[str, set[str]]:
    """By module, the modules that import it."""
    modules = set(map(_module, trees))
    found: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            named = (
                [f"{node.module}.{one.name}" for one in node.names] + [str(node.module)]
                if isinstance(node, ast.ImportFrom)
                else [one.name for one in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            for name in modules.intersection(named):
                found[name].add(_module(path))
    return found


def _long_functions(tree: ast.Module) -> int:
    return sum(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= LONG_FUNCTION_LINES
        for node in ast.walk(tree)
    )


def _classes(trees: dict[Path, ast.Module]) -> Counter[str]:
    return Counter(
        node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)
    )


def _callables(tree: ast.Module) -> int:
    """Parameters of constructors, and declared fields, whose type is a callable."""
    found = 0
    for node in ast.walk(tree):
        for one in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(one, ast.AnnAssign):
                found += "Callable" in ast.unparse(one.annotation)
            elif isinstance(one, ast.FunctionDef) and one.name == "__init__":
                kinds = [each.annotation for each in one.args.args + one.args.kwonlyargs]
                found += sum(kind is not None and "Callable" in ast.unparse(kind) for kind in kinds)
    return found


def _limits(texts: dict[Path, str]) -> dict[str, set[Path]]:
    """By limit, the modules that use it."""
    names = re.findall(r"^([A-Z][A-Z0-9_]+) =", texts[Path("limits.py")], re.MULTILINE)
    used: dict[str, set[Path]] = {name: set() for name in names if name not in ("KIB", "MIB", "GIB")}
    for path, text in texts.items():
        for name in set(re.findall(r"\b(?:limits\.|import )?([A-Z][A-Z0-9_]{3,})\b", text)) & used.keys():
            if path != Path("limits.py"):
                used[name].add(path)
    return used


if __name__ == "__main__":
    sys.exit(main())
