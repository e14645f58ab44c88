"""Routers: copying what is written to one topic into another."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mainstem.api.base import Match, Performance


class RouterBody(msgspec.Struct, frozen=True):
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Any = None
    allow_cycle: bool = False
    guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once"


class RouterDescription(msgspec.Struct, frozen=True):
    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: Match
    allow_cycle: bool
    guarantee: str
    forwarded_total: int
    performance: Performance


class RouterConfigured(msgspec.Struct, frozen=True):
    router: str
    created: bool
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: Match
    allow_cycle: bool
    guarantee: str
    performance: Performance


class RouterListing(msgspec.Struct, frozen=True):
    """A router in a list."""

    router: str
    source: str
    dest: str
    guarantee: str
    forwarded_total: int


class RouterList(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of routers. `next_cursor` is present if more follow."""

    routers: list[RouterListing]
    performance: Performance
    next_cursor: str | None = None


class RouterDeletion(msgspec.Struct, frozen=True):
    router: str
    deleted: bool
    performance: Performance
