"""Runs queries with DuckDB, locked down: a query sees the rows that it is given, and nothing else.

Each query has a database of its own, in memory. It cannot open files or connections, load extensions or change
settings, and it may only be a SELECT.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import math
from typing import Any

import duckdb
import msgspec
import pyarrow as pa

from mainstem import limits
from mainstem.api.lake import Column, TableColumns
from mainstem.errors import InvalidInput, NotFound
from mainstem.records.building import build_batch
from mainstem.tables.columns import encode_columns
from mainstem.tables.sql.memory import TOO_LARGE
from mainstem.tables.sql.messages import (
    Answer,
    ParseQuery,
    Prepare,
    Prepared,
    QueryDone,
    QueryFailed,
    Request,
    RunQuery,
    SqlPartition,
    SqlTable,
    SqlTableName,
)
from mainstem.tables.sql.parsing import parse_query, quoted_default
from mainstem.tables.sql.table_rows import TopicRows

SQL_RESULT_BYTES_MAX = 64 * limits.MIB  # of the result, as Arrow has it
SQL_THREADS = 2

_ROWS_PER_BATCH = 8_192
_OUT_OF_MEMORY = ("Out of Memory Error", "malloc of size", "std::bad_alloc")
_WRONG_VALUE = ("Conversion Error", "Invalid Input Error", "Out of Range Error")
DUCKDB_CONFIG: dict[str, Any] = {
    "threads": SQL_THREADS,
    "memory_limit": f"{limits.SQL_MEMORY_BYTES // 4 * 3}B",  # the rest is for results in Arrow and Python
    "temp_directory": "",  # no spilling to disk; a query could read the files of that directory
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,  # whose error would name a directory of the machine
    "python_enable_replacements": False,  # a query must not see Python variables
}


class SqlEngine:
    def __init__(self) -> None:
        self._rows = TopicRows()
        self._parser = duckdb.connect(":memory:", config=DUCKDB_CONFIG)
        _lock_down(self._parser)

    def answer(self, request: Request) -> Answer:
        try:
            if isinstance(request, ParseQuery):
                return parse_query(self._parser, quoted_default(request.query))
            if isinstance(request, Prepare):
                return self._prepare()
            return self._run(request)
        except InvalidInput as error:
            return QueryFailed("invalid", str(error))
        except NotFound as error:
            return QueryFailed("missing", str(error))
        except (duckdb.OutOfMemoryException, MemoryError):  # Arrow's, too
            return QueryFailed("too_large", TOO_LARGE)
        except FileNotFoundError as error:
            return QueryFailed("missing", str(error))
        except pa.ArrowInvalid as error:
            return QueryFailed("invalid", str(error))
        except OSError as error:  # an error of DuckDB behind the first rows, as Arrow's stream reports it
            text = str(error)
            if any(each in text for each in _OUT_OF_MEMORY):
                return QueryFailed("too_large", TOO_LARGE)
            return QueryFailed("invalid" if any(each in text for each in _WRONG_VALUE) else "failed", text)
        except (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError) as error:
            return QueryFailed("invalid", str(error))
        except duckdb.Error as error:
            return QueryFailed("invalid", str(error))

    def _prepare(self) -> Prepared:
        """A query of one record with a typed column: the compiled kernels are loaded, which takes longer than it."""
        columns = encode_columns(TableColumns(columns=(Column(1, "n", "long", "$.n"),)))
        batch = bytes(build_batch([b'{"n":1}'], timestamps_ms=0))
        table = SqlTable([SqlTableName("", "", "t")], "t", b"", columns, [SqlPartition(0, [], [batch])])
        self._run(RunQuery("SELECT sum(n) FROM t GROUP BY n", [table], 1, "json"))
        return Prepared()

    def _run(self, request: RunQuery) -> Answer:
        query = quoted_default(request.query)
        parse_query(self._parser, query)  # the one place that refuses everything but a SELECT
        with duckdb.connect(":memory:", config=DUCKDB_CONFIG) as connection:
            catalogs = {name.catalog for table in request.tables for name in table.names if name.catalog}
            for catalog in catalogs:
                connection.execute(f"ATTACH ':memory:' AS {_quoted(catalog)}")
            for number, table in enumerate(request.tables):
                self._show(connection, number, table, catalogs)
            _lock_down(connection)
            reader: Any = connection.sql(query).to_arrow_reader(_ROWS_PER_BATCH)
            taken, truncated = _first_rows(reader, request.rows_max)
            rows = pa.Table.from_batches(taken, reader.schema)
        body = _arrow(rows) if request.format == "arrow" else _json(rows, truncated)
        return QueryDone(body, rows.num_rows, truncated)

    def _show(
        self, connection: duckdb.DuckDBPyConnection, number: int, table: SqlTable, catalogs: set[str]
    ) -> None:
        """Make a topic a view, under every name that the query has for it."""
        selects = []
        for at, (rows, renamed) in enumerate(self._rows.of(table)):
            given = f"__rows_{number}_{at}"
            connection.register(given, rows)
            names = [f"{_quoted(former)} AS {_quoted(name)}" for name, former in renamed.items()]
            selects.append(f"SELECT {', '.join(names) or '*'} FROM {given}")
        source = " UNION ALL ".join(selects)
        for name in table.names:
            schema = _schema(name, catalogs)
            if schema:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
                schema += "."
            connection.execute(f"CREATE VIEW {schema}{_quoted(name.name)} AS {source}")


def _schema(name: SqlTableName, catalogs: set[str]) -> str:
    """Where DuckDB looks for the name: a namespace of two levels is a catalog and a schema."""
    if name.schema and not name.catalog and name.schema in catalogs:
        return f"{_quoted(name.schema)}.main"
    return ".".join(_quoted(part) for part in (name.catalog, name.schema) if part)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _lock_down(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _first_rows(reader: pa.RecordBatchReader, rows_max: int) -> tuple[list[pa.RecordBatch], bool]:
    """The first rows, up to a number and a size, and whether there are more."""
    taken: list[pa.RecordBatch] = []
    left, size = rows_max, 0
    for whole in reader:
        batch = _fitting(whole, SQL_RESULT_BYTES_MAX - size)
        if batch.num_rows > left or batch.num_rows < whole.num_rows:
            return [*taken, batch.slice(0, left)], True
        taken.append(batch)
        left -= batch.num_rows
        size += batch.nbytes
        if size > SQL_RESULT_BYTES_MAX:
            return taken, True
    return taken, False


def _fitting(batch: pa.RecordBatch, bytes_max: int) -> pa.RecordBatch:
    """The first rows of a batch, at least one, up to a size."""
    while batch.num_rows > 1 and batch.nbytes > bytes_max:
        batch = batch.slice(0, batch.num_rows // 2)
    return batch


def _arrow(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _json(rows: pa.Table, truncated: bool) -> bytes:
    columns = [{"name": field.name, "type": str(field.type)} for field in rows.schema]
    values = [_values(rows.column(at)) for at in range(rows.num_columns)]
    listed = [list(row) for row in zip(*values, strict=True)] if values else []
    return msgspec.json.encode({"columns": columns, "rows": listed, "truncated": truncated})


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        found = column.to_pylist()
    except (ValueError, OverflowError):  # times that Python cannot represent
        found = [_value(scalar) for scalar in column]
    return [_plain(value) for value in found]


def _value(scalar: pa.Scalar) -> Any:
    """A value of Python, with text for times that it cannot represent."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        return {name: _value(each) for name, each in scalar.items()}
    if isinstance(scalar, pa.ListScalar):  # a map, too: a list of pairs
        return [_value(each) for each in scalar.values]
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.cast(pa.string()).as_py()


def _plain(value: Any) -> Any:
    """A value as JSON: bytes as text, or else as base64; numbers that JSON has no form for as text."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) < 1 << 53 else str(value)  # more than JavaScript's numbers hold
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return base64.b64encode(value).decode("ascii")
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal():
            whole = value.as_tuple().exponent == 0 and abs(value) < 1 << 53  # such as a sum of whole numbers
            return int(value) if whole else str(value)
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return str(value)
