"""Pipelines in SQL: a file of statements, each ended by a semicolon.

    CREATE SOURCE orders TOPIC 'orders' SCHEMA (id long, customer string, amount double);
    CREATE STATIC SOURCE customers TOPIC 'customers' SCHEMA (id string, name string);
    CREATE STATIC SOURCE prices TABLE default.prices;
    CREATE VIEW large AS SELECT * FROM orders WHERE amount > 100;
    CREATE TOPIC 'orders.large' KEY customer AS SELECT * FROM large;
    CREATE TABLE default.large AS SELECT * FROM large;

The query after AS is Spark SQL over the names declared before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from mainstem.errors import InvalidInput
from mainstem.spark.pipelines.pipeline import Output, Pipeline, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = r"(?P<name>[\w.]+|'[^']+'|`[^`]+`)"
_SOURCE = re.compile(
    rf"CREATE\s+(?P<static>STATIC\s+)?SOURCE\s+{_NAME}(?:\s+TOPIC\s+'(?P<topic>[^']+)')?"
    r"(?:\s+TABLE\s+(?P<table>[\w.]+)(?:\s+SNAPSHOT\s+(?P<snapshot>\d+))?)?"
    r"(?:\s+SCHEMA\s*\((?P<schema>.*)\))?\s*",
    re.IGNORECASE | re.DOTALL,
)
_STEP = re.compile(
    rf"CREATE\s+(?P<kind>VIEW|TOPIC|TABLE)\s+{_NAME}(?:\s+KEY\s+(?P<key>\w+))?"
    r"(?:\s+MODE\s+(?P<mode>append|update|complete))?\s+AS\s+(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)
_TOKEN = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|;", re.DOTALL)


def pipeline_of(text: str, name: str) -> Pipeline:
    """Parse a pipeline. Raises InvalidInput with the statement."""
    pipeline = Pipeline(name)
    for statement in statements(text):
        source, step = _SOURCE.fullmatch(statement), _STEP.fullmatch(statement)
        if source is not None:
            pipeline.source(
                _unquoted(source["name"]),
                topic=source["topic"] or "",
                table=source["table"] or "",
                schema=(source["schema"] or "").strip(),
                static=source["static"] is not None,
                snapshot=None if source["snapshot"] is None else int(source["snapshot"]),
            )
        elif step is not None:
            _add_step(pipeline, step)
        else:
            raise InvalidInput(
                f"not a pipeline statement: {statement[:80]!r}; use CREATE SOURCE, CREATE VIEW, "
                "CREATE TOPIC or CREATE TABLE"
            )
    return pipeline


def statements(text: str) -> Iterator[str]:
    """Split a text into statements without comments. Semicolons and dashes inside quotes do not count."""
    statement = ""
    at = 0
    for token in _TOKEN.finditer(text):
        statement += text[at : token.start()]
        at = token.end()
        if token[0] == ";":
            if statement.strip():
                yield statement.strip()
            statement = ""
        elif token[0].startswith(("--", "/*")):
            statement += " "
        else:
            statement += token[0]
    statement += text[at:]
    if statement.strip():
        yield statement.strip()


def _add_step(pipeline: Pipeline, match: re.Match[str]) -> None:
    kind, name, query = match["kind"].lower(), _unquoted(match["name"]), match["query"].strip()
    declared = (*pipeline.sources, *pipeline.views)
    # A step may read a table that has the same name as its output, so output steps have a prefix.
    step = Step(
        name if kind == "view" else f"{kind}:{name}",
        _query(query),
        tuple(each for each in declared if _may_read(query, each)),
    )
    mode = (match["mode"] or "append").lower()
    if kind == "view":
        if match["key"]:
            raise InvalidInput(f"view {name!r} cannot have a KEY: only a topic can")
        pipeline.add_view(step)
    elif kind == "topic":
        pipeline.add_output(Output(step, topic=name, key=match["key"] or "", mode=mode))
    else:
        pipeline.add_output(Output(step, table=name, mode=mode))


def _may_read(query: str, name: str) -> bool:
    """Whether a query may read this name. A false positive only reads too much."""
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", query, re.IGNORECASE) is not None


def _query(text: str) -> Callable[[SparkSession, Mapping[str, DataFrame]], DataFrame]:
    def transform(spark: SparkSession, frames: Mapping[str, DataFrame]) -> DataFrame:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        return spark.sql(text)

    return transform


def _unquoted(name: str) -> str:
    return name.strip("'`")
