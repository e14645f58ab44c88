"""Generates the page on byte layouts from the docstrings of the modules that define them."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import mainstem
from tools.reference.markdown import MADE

# From the record to the commit to the file, then the shared logs.
LAYOUTS = (
    "records/header.py",
    "ledger/entry.py",
    "ledger/checkpoint.py",
    "ports/commitlog/local/log.py",
    "ports/commitlog/local/segments.py",
    "ports/commitlog/local/frames.py",
    "ports/commitlog/local/cold.py",
    "ports/commitlog/local/checkpoints.py",
    "log/read/extents.py",
    "log/objects/repack/layout.py",
    "ports/commitlog/shared/bucket/keys.py",
    "ports/commitlog/shared/bucket/identity.py",
    "ports/commitlog/shared/bucket/entries.py",
    "ports/commitlog/shared/bucket/seals.py",
    "ports/commitlog/shared/bucket/references.py",
    "ports/commitlog/shared/bucket/checkpoints.py",
    "ports/commitlog/shared/etcd/keys.py",
    "ports/commitlog/shared/etcd/records.py",
    "ports/commitlog/shared/etcd/directory.py",
    "ports/objectstore/blocks.py",
    "records/rows.py",
    "records/parquet.py",
    "doors/text/frames.py",
)

_TEXT = """# Formats

This page lists every layout that is stored or sent, from the docstring of its module. Types: `u4` is an unsigned
integer of four bytes, `i8` a signed integer of eight, `s16` sixteen raw bytes. A reader that finds a newer version
stops with an error.
"""

_SOURCE = Path(inspect.getfile(mainstem)).parent


def formats_page() -> str:
    return MADE + _TEXT + "".join(_section(path) for path in LAYOUTS)


def _section(path: str) -> str:
    text = ast.get_docstring(ast.parse((_SOURCE / path).read_text(encoding="utf-8"))) or ""
    title, _, rest = text.partition("\n")
    name = re.match(r"[^:.]+", title)
    heading = name[0] if name else title
    said = title[len(heading) :].lstrip(": ")
    said = said[:1].upper() + said[1:] if len(said) > 1 else ""
    body = f"{said}\n{rest}".strip("\n")
    return f"\n## {heading}\n\n`src/mainstem/{path}`\n\n{body}\n"
