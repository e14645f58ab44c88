"""The tables that a query names, by DuckDB's own parser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mainstem.errors import InvalidInput
from mainstem.tables.sql.messages import QueryParsed, SqlTableName

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# `default` is a keyword, and the namespace of most topics. Texts, quoted names and comments stay as they are.
_DEFAULT = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | (?<![\w.$])(default)(?=\s*\.)""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


def quoted_default(query: str) -> str:
    """The query with the namespace `default` as a quoted name."""
    return _DEFAULT.sub(lambda found: '"default"' if found[1] else found[0], query)


def parse_query(connection: DuckDBPyConnection, query: str) -> QueryParsed:
    """Raises InvalidInput unless it is one SELECT."""
    row = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchone()
    tree: dict[str, Any] = json.loads(row[0] if row else "{}")
    if tree.get("error"):
        if tree.get("error_type") == "not implemented":
            raise InvalidInput("only queries that read are allowed: SELECT, FROM, DESCRIBE, SUMMARIZE")
        raise InvalidInput(str(tree.get("error_message")))
    if len(tree["statements"]) != 1:
        raise InvalidInput("send one query at a time")
    tables: dict[SqlTableName, None] = {}
    defined: set[str] = set()
    for node in _nodes(tree):
        if node.get("type") in ("BASE_TABLE", "SHOW_REF") and node.get("table_name"):
            place = (node.get("catalog_name", ""), node.get("schema_name", ""))
            tables[SqlTableName(*place, _unquoted(node["table_name"]))] = None
        if isinstance(node.get("cte_map"), dict):
            defined |= {str(entry["key"]) for entry in node["cte_map"].get("map", ())}
    return QueryParsed(list(tables), sorted(defined))


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if len(name) > 1 and name[0] == name[-1] == '"' else name


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
