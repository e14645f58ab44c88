"""Topics and tables as names in Spark SQL, resolved when a query uses them."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mainstem.client.broker import BrokerClient
from mainstem.errors import InvalidInput, TopicNotFound
from mainstem.spark.pipelines.tables import open_catalog, table_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAMES_MAX = 100  # in one query
_PARTS = re.compile(r"`([^`]+)`")


class TopicViews:
    """`orders` is a topic as of now, `default.orders` a table of the broker's catalog.

    A topic with a schema is read as JSON; the others have the columns of the source."""

    def __init__(
        self, spark: SparkSession, url: str, api_key: str = "", schemas: Mapping[str, str] | None = None
    ) -> None:
        self._spark = spark
        self._url = url
        self._api_key = api_key
        self._schemas = dict(schemas or {})

    def query(self, text: str) -> DataFrame:
        """Run a query and resolve its names one by one. Raises InvalidInput for an unknown topic or table."""
        from pyspark.errors import AnalysisException, ParseException

        # Unresolved names are expected here, and PySpark would log each one as an error.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        for _ in range(_NAMES_MAX):
            try:
                return self._spark.sql(text)
            except ParseException as error:
                raise InvalidInput(f"invalid SQL: {_first_line(error)}") from None
            except AnalysisException as error:
                name = _unresolved_name(error)
                if name is None:
                    raise InvalidInput(_first_line(error)) from None
                text = self._define(name, text)
        raise InvalidInput(f"a query can use at most {_NAMES_MAX} topics and tables")

    def _define(self, name: tuple[str, ...], text: str) -> str:
        """Create a view for a name of the query. Returns the query that reads the view."""
        if len(name) == 1:
            self._topic_frame(name[0]).createOrReplaceTempView(f"`{name[0]}`")
            return text
        # Spark's temporary views have no namespace, so the query reads a view with a unique name.
        view = "__".join(("mainstem", *(re.sub(r"\W", "_", part) for part in name)))
        catalog = open_catalog(self._url, self._api_key)
        table_frame(self._spark, catalog, ".".join(name)).createOrReplaceTempView(view)
        pattern = r"\s*\.\s*".join(rf"`?{re.escape(part)}`?" for part in name)
        return re.sub(rf"(?<![\w.]){pattern}(?!\w)", view, text)

    def _topic_frame(self, topic: str) -> DataFrame:
        with BrokerClient(self._url, self._api_key) as broker:
            try:
                broker.positions(topic)
            except TopicNotFound:
                raise InvalidInput(f"topic {topic!r} does not exist") from None
        reader = self._spark.read.format("mainstem").options(
            url=self._url, apiKey=self._api_key, subscribe=topic
        )
        schema = self._schemas.get(topic)
        if schema is not None:
            reader = reader.option("valueFormat", "json").schema(schema)
        return reader.load()


def _unresolved_name(error: Exception) -> tuple[str, ...] | None:
    """The name that Spark did not find."""
    condition = getattr(error, "getCondition", lambda: None)() or ""
    if not condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        return None
    found = getattr(error, "getMessageParameters", lambda: None)() or {}
    parts = tuple(_PARTS.findall(found.get("relationName", "")))
    return parts or None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
