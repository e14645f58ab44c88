"""Generates the reference of the Python client from its methods."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator

from mainstem.client.consumer import Consumer
from mainstem.client.producer import Producer
from mainstem.client.sync import Client
from mainstem.client.sync_worker import Job, Worker
from mainstem.client.transactions import TransactionContext
from tools.reference.markdown import MADE

_TEXT = """# Client reference

Every method of `mainstem.Client`, and of the objects that it returns. `mainstem.AsyncClient` has the same methods, with
`await`. [The Python client](client.md) explains how to use them.

"""

_OBJECTS = (
    (Client, "Client"),
    (Producer, "Producer: `client.producer`"),
    (Consumer, "Consumer: `client.consumer`"),
    (TransactionContext, "Transaction: `client.transaction`"),
    (Worker, "Worker: `client.worker`"),
    (Job, "Job"),
)


def client_page() -> str:
    parts = [MADE, _TEXT]
    for kind, title in _OBJECTS:
        parts.append(f"## {title}\n\n")
        parts += [_described(name, member) for name, member in _public(kind)]
    return "".join(parts).rstrip() + "\n"


def _public(kind: type) -> Iterator[tuple[str, object]]:
    """In the order of the source; what is inherited comes first."""
    seen: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        seen.update({name: member for name, member in vars(base).items() if not name.startswith("_")})
    for name, member in seen.items():
        if callable(member) or isinstance(member, property):
            yield name, member


def _described(name: str, member: object) -> str:
    about = textwrap.dedent(inspect.getdoc(member) or "").partition("\nExample:")[0].strip()
    text = " ".join(about.split())
    if isinstance(member, property):
        return f"### `{name}`\n\n{text}\n\n" if text else f"### `{name}`\n\n"
    lines = [f"### `{name}`\n\n```text\n{_wrapped(name, _parameters(member))}\n```\n\n"]
    return "".join(lines) + (f"{text}\n\n" if text else "")


def _parameters(member: object) -> str:
    plain: list[str] = []
    keyword: list[str] = []
    rest: list[str] = []
    for one in inspect.signature(member).parameters.values():  # type: ignore[arg-type]
        if one.name == "self":
            continue
        default = "" if one.default is one.empty else f" = {one.default!r}"
        stars = "**" if one.kind is one.VAR_KEYWORD else ""
        row = rest if stars else keyword if one.kind is one.KEYWORD_ONLY else plain
        row.append(f"{stars}{one.name}: {one.annotation}{default}")
    return ", ".join([*plain, *(["*", *keyword] if keyword else []), *rest])


def _wrapped(name: str, parameters: str) -> str:
    whole = f"{name}({parameters})"
    if len(whole) <= 100:
        return whole
    inner = textwrap.fill(parameters, 96, break_long_words=False, break_on_hyphens=False)
    return f"{name}(\n{textwrap.indent(inner, '    ')}\n)"
