"""Topic names that the HTTP door may create: a subset of the valid ones (Kafka clients create `_schemas`)."""

from __future__ import annotations

import re

from mainstem import limits

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:-]{{0,{limits.NAME_CHARS_MAX - 1}}}")

_ROUTER_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._:>-]{{0,{limits.NAME_CHARS_MAX - 1}}}")


def valid_router_name(name: str) -> bool:
    return _ROUTER_NAME.fullmatch(name) is not None


def valid_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None
