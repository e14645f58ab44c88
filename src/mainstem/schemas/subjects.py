"""Subjects: names that schemas are registered under, and the contexts that separate them.

| written              | context | subject |
|----------------------|---------|---------|
| orders-value         | .       | orders-value |
| :.:orders-value      | .       | orders-value |
| :.eu:orders-value    | .eu     | orders-value |
| :.eu:                | .eu     | (the context as a whole) |
"""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_CONTEXT = "."
ALL_CONTEXTS = ":*:"

SUBJECT_CHARS_MAX = 1024

_RESERVED = ("__GLOBAL", "__EMPTY")


class Subject(NamedTuple):
    context: str
    name: str

    def __str__(self) -> str:
        """Without the default context."""
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def parse(text: str) -> Subject:
    """The context and name of a subject as a client writes it."""
    if text.startswith((":.", ":*")):
        context, colon, name = text[1:].partition(":")
        if colon:
            return Subject(context, name)
    return Subject(DEFAULT_CONTEXT, text)


def normal(text: str) -> str:
    """One spelling for each subject: the default context is left out."""
    return str(parse(text))


def in_context(context: str, text: str) -> str:
    """A subject as it is written below /contexts/{context}, unless it names a context itself."""
    subject = parse(text)
    return str(subject if subject.context != DEFAULT_CONTEXT else Subject(parse_context(context), text))


def parse_context(text: str) -> str:
    """`.eu`, of `.eu`, `:.eu:` or `eu`."""
    plain = text.strip(":")
    return plain if plain.startswith(".") else f".{plain}"


def beside(parent: str, reference: str) -> str:
    """The subject that a reference of a schema names: in the parent's context unless it names one itself."""
    if reference.startswith(":."):
        return normal(reference)
    return str(Subject(parse(parent).context, reference))


def is_valid(text: str, *, context_alone: bool = False) -> bool:
    """Whether schemas can be registered under this name; with `context_alone`, whether settings can be set for it."""
    context, name = parse(text)
    if not name and not (context_alone and context != DEFAULT_CONTEXT):
        return False
    if name in _RESERVED or context.startswith("*") or len(text) > SUBJECT_CHARS_MAX:
        return False
    return text.isprintable()
