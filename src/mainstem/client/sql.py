"""SQL over topics: `client.sql(…)`, as Arrow, pandas or Polars."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from mainstem import limits
from mainstem.api import routes
from mainstem.api.route import ARROW
from mainstem.api.sql import SqlBody, SqlResult
from mainstem.client.transport import Calls
from mainstem.errors import InvalidInput

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa


@dataclass(frozen=True)
class SqlRows:
    """The result of a query: iterate over its rows as dictionaries, or take it as Arrow, pandas or Polars."""

    stream: bytes = field(repr=False)  # Arrow's IPC format
    truncated: bool  # there are more rows than the limit

    @cached_property
    def _table(self) -> pa.Table:
        try:
            import pyarrow as pa
        except ImportError:
            raise InvalidInput(
                "results of SQL are Arrow, which is not installed: pip install pyarrow, or use sql_json()"
            ) from None
        return pa.ipc.open_stream(self.stream).read_all()

    def arrow(self) -> pa.Table:
        return self._table

    def pandas(self) -> pandas.DataFrame:
        frame: pandas.DataFrame = self._table.to_pandas()
        return frame

    def polars(self) -> Any:
        """A `polars.DataFrame`. Raises InvalidInput if Polars is not installed."""
        try:
            polars = import_module("polars")
        except ImportError:
            raise InvalidInput("polars is not installed: pip install polars, or use arrow()") from None
        return polars.from_arrow(self._table)

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
        rows: list[dict[str, Any]] = self._table.to_pylist()
        return rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __len__(self) -> int:
        return int(self._table.num_rows)


class SqlCalls(Calls):
    async def sql(
        self,
        query: str,
        *,
        limit: int = limits.SQL_ROWS_MAX,
        timeout_s: float = limits.SQL_TIMEOUT_MS / 1000,
    ) -> SqlRows:
        """Run one SELECT over topics, up to the last record. `limit`: maximum number of rows.

        Raises InvalidInput for an invalid query, TopicNotFound, AccessDenied.

        Example:
            client.sql("SELECT city, count(*) FROM orders GROUP BY city").pandas()
        """
        body = SqlBody(query, limit, int(timeout_s * 1000))
        got = await self._transport.send(
            routes.POST_SQL.method,
            routes.POST_SQL.path,
            msgspec.json.encode(body),
            headers={"accept": ARROW},
            wait_s=timeout_s,
        )
        return SqlRows(got.body, got.headers.get("mainstem-truncated") == "true")

    async def sql_json(
        self,
        query: str,
        *,
        limit: int = limits.SQL_ROWS_MAX,
        timeout_s: float = limits.SQL_TIMEOUT_MS / 1000,
    ) -> SqlResult:
        """As `sql`, with the rows as JSON: needs no Arrow. Bytes are text, or base64 where they are not UTF-8.

        Example:
            client.sql_json("SELECT city, count(*) FROM orders GROUP BY city").rows
        """
        body = SqlBody(query, limit, int(timeout_s * 1000))
        return await self._transport.call(routes.POST_SQL, body=body, wait_s=timeout_s)
