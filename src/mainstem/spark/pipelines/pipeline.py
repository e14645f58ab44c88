"""The declaration of a pipeline: sources, views and outputs. Does not need Spark; running.py runs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Transform = Callable[..., "DataFrame"]
F = TypeVar("F", bound=Transform)

_SPARK = "spark"  # a parameter of this name gets the session


@dataclass(frozen=True, slots=True)
class Source:
    """A topic or a table that steps read by `name`."""

    name: str
    topic: str = ""
    table: str = ""  # an Iceberg table: namespace.name
    schema: str = ""  # of a topic's JSON values; empty: the columns of the record
    static: bool = False  # read once, as of the start of the pipeline; tables always are
    snapshot: int | None = None  # of a table; None: the newest
    options: Mapping[str, str] = field(default_factory=dict)  # further options of the source


@dataclass(frozen=True, slots=True)
class Step:
    """A transformation of sources and other steps: a view or an output."""

    name: str
    transform: Callable[[SparkSession, Mapping[str, DataFrame]], DataFrame]
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """A step whose rows are written to a topic or a table."""

    step: Step
    topic: str = ""
    table: str = ""
    key: str = ""  # column whose text becomes the record's key
    mode: str = "append"  # of the query: append, update or complete
    options: Mapping[str, str] = field(default_factory=dict)  # further options of the sink

    @property
    def target(self) -> str:
        return self.topic or self.table


class Pipeline:
    """Sources, views and outputs by name. The parameters of a function name its inputs."""

    def __init__(self, name: str) -> None:
        if not name or not all(sign.isalnum() or sign in "-_." for sign in name):
            raise InvalidInput(f"{name!r} is not a pipeline name: use letters, digits and - _ .")
        self.name = name
        self.sources: dict[str, Source] = {}
        self.views: dict[str, Step] = {}
        self.outputs: dict[str, Output] = {}

    def source(
        self,
        name: str,
        *,
        topic: str = "",
        table: str = "",
        schema: str = "",
        static: bool = False,
        snapshot: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Source:
        """Read a topic, as a stream or once, or a table. By default, the topic has the source's name."""
        if topic and table:
            raise InvalidInput(f"source {name!r} is a topic or a table, not both")
        if snapshot is not None and not table:
            raise InvalidInput(f"source {name!r}: only a table has snapshots")
        source = Source(
            name,
            topic if topic or table else name,
            table,
            schema,
            static or bool(table),
            snapshot,
            dict(options or {}),
        )
        self._add(name)
        self.sources[name] = source
        return source

    def view(self, function: F) -> F:
        """A step that others read by the function's name."""
        self.add_view(_step(function))
        return function

    def to_topic(
        self, topic: str, *, key: str = "", mode: str = "append", options: Mapping[str, str] | None = None
    ) -> Callable[[F], F]:
        """Write rows to a topic: as they are if they have a column `value`, otherwise as JSON of all columns."""

        def declare(function: F) -> F:
            self.add_output(Output(_step(function), topic=topic, key=key, mode=mode, options=options or {}))
            return function

        return declare

    def to_table(self, table: str, *, mode: str = "append") -> Callable[[F], F]:
        """Append rows to an Iceberg table, which is created with their columns if it does not exist."""

        def declare(function: F) -> F:
            self.add_output(Output(_step(function), table=table, mode=mode))
            return function

        return declare

    def add_view(self, step: Step) -> None:
        self._add(step.name)
        self.views[step.name] = step

    def add_output(self, output: Output) -> None:
        if not output.target:
            raise InvalidInput(f"output {output.step.name!r} has no topic and no table")
        if output.table and "." not in output.table:
            raise InvalidInput(f"a table name needs its namespace, as in default.{output.table}")
        if output.mode not in ("append", "update", "complete"):
            raise InvalidInput(f"the mode of {output.step.name!r} must be append, update or complete")
        self._add(output.step.name)
        self.outputs[output.step.name] = output

    def _add(self, name: str) -> None:
        if name in self.sources or name in self.views or name in self.outputs:
            raise InvalidInput(f"{name!r} is declared twice in pipeline {self.name!r}")

    def pin(self, source: str, snapshot: int) -> None:
        """Read a table at a snapshot. Raises InvalidInput unless `source` is a table."""
        declared = self.sources.get(source)
        if declared is None or not declared.table:
            raise InvalidInput(f"pipeline {self.name!r} has no table {source!r} among its sources")
        self.sources[source] = replace(declared, snapshot=snapshot)

    def check(self) -> None:
        """Raises InvalidInput for a pipeline that cannot run."""
        if not self.outputs:
            raise InvalidInput(f"pipeline {self.name!r} has no output")
        for output in self.outputs.values():
            self.needed(output.step)

    def needed(self, step: Step) -> list[str]:
        """Names of everything that a step depends on, dependencies first. Raises InvalidInput."""
        found: list[str] = []
        self._add_needed(step, found, [])
        return found

    def _add_needed(self, step: Step, found: list[str], path: list[str]) -> None:
        if step.name in path:
            raise InvalidInput(f"{' → '.join([*path, step.name])} is a dependency cycle")
        for name in step.inputs:
            if name in found:
                continue
            if name in self.views:
                self._add_needed(self.views[name], found, [*path, step.name])
            elif name not in self.sources:
                declared = ", ".join([*self.sources, *self.views]) or "nothing"
                raise InvalidInput(
                    f"{step.name!r} reads {name!r}, which is not declared; declared: {declared}"
                )
            found.append(name)


def _step(function: Transform) -> Step:
    parameters = tuple(inspect.signature(function).parameters)

    def transform(spark: SparkSession, frames: Mapping[str, DataFrame]) -> DataFrame:
        arguments: dict[str, Any] = {name: spark if name == _SPARK else frames[name] for name in parameters}
        return function(**arguments)

    return Step(function.__name__, transform, tuple(name for name in parameters if name != _SPARK))
