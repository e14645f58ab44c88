"""Erasures: records that are removed with every byte of them."""

from __future__ import annotations

from typing import Any

import msgspec


class EraseBody(msgspec.Struct, frozen=True):
    """Exactly one of these says what to erase."""

    key: str | None = None
    key_base64: str | None = None  # a key that is not text
    match: Any = None  # as in a delete: ["tag", "Eq", "a:1"], ["tag", "Glob", "a:*"] or a string
    where: Any = None  # a field of JSON values: ["user.email", "Eq", "ann@example.com"]


class ErasedTopicView(msgspec.Struct, frozen=True):
    topic: str
    why: str  # it was named, or how it gets copies
    records_deleted: int


class ErasureView(msgspec.Struct, frozen=True):
    id: str
    topic: str
    by: str  # key, tag or where
    phase: str  # accepted, deleted, log_rewritten, parts_rewritten, done or failed
    waits_for: str  # empty: it runs, or it ended
    accepted_ms: int
    changed_ms: int  # when it reached the phase
    topics: list[ErasedTopicView]
    problem: str  # why it failed
    report: str  # signed JSON, once it is done
    public_key: str  # of the key that signs reports


class ErasureList(msgspec.Struct, frozen=True):
    """The newest first, without their reports."""

    erasures: list[ErasureView]
