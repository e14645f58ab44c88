"""SQL over topics."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mainstem import limits

SQL_ROWS_DEFAULT = 1_000  # of a result, unless the query's sender asks for another number
SQL_QUERY_CHARS_MAX = 100_000


class SqlBody(msgspec.Struct, frozen=True):
    query: Annotated[str, Meta(min_length=1, max_length=SQL_QUERY_CHARS_MAX)]
    limit: Annotated[int, Meta(ge=1, le=limits.SQL_ROWS_MAX)] = SQL_ROWS_DEFAULT
    timeout_ms: Annotated[int, Meta(ge=1, le=limits.SQL_TIMEOUT_MS_MAX)] = limits.SQL_TIMEOUT_MS


class SqlColumn(msgspec.Struct, frozen=True):
    name: str
    type: str  # as Arrow writes it


class SqlResult(msgspec.Struct, frozen=True):
    """Values are JSON: bytes are text, or base64 where they are not UTF-8; times are ISO 8601."""

    columns: list[SqlColumn]
    rows: list[list[Any]]
    truncated: bool  # there are more rows than the limit
