"""What a pipeline is made of. Declared here, run in running.py; nothing in here needs Spark."""

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
    """A topic or a table that others read by `name`."""

    name: str
    topic: str = ""
    table: str = ""  # an Iceberg table: namespace.name
    schema: str = ""  # of a topic's JSON values; none: the record's own columns
    static: bool = False  # read as it stands when the pipeline starts; tables always are
    snapshot: int | None = None  # of a table; none: the newest
    options: Mapping[str, str] = field(default_factory=dict)  # of the source, besides


@dataclass(frozen=True, slots=True)
class Step:
    """Something made of sources and other steps: a view, or an output."""

    name: str
    transform: Callable[[SparkSession, Mapping[str, DataFrame]], DataFrame]
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """A step whose rows go to a topic or a table."""

    step: Step
    topic: str = ""
    table: str = ""
    key: str = ""  # column whose text is the record's key
    mode: str = "append"  # of the query: append, update or complete
    options: Mapping[str, str] = field(default_factory=dict)  # of the sink, besides

    @property
    def target(self) -> str:
        return self.topic or self.table


class Pipeline:
    """Sources, views and outputs by name. A function's parameters name what it is made of."""

    def __init__(self, name: str) -> None:
        if not name or not all(sign.isalnum() or sign in "-_." for sign in name):
            raise InvalidInput(f"{name!r} names no pipeline: letters, digits and - _ . do")
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
        """Read a topic, as a stream or as it stands, or a table; the topic of the same name unless given."""
        if topic and table:
            raise InvalidInput(f"source {name!r} is a topic or a table, not both")
        if snapshot is not None and not table:
            raise InvalidInput(f"source {name!r}: only a table has snapshots")
        found = Source(
            name,
            topic if topic or table else name,
            table,
            schema,
            static or bool(table),
            snapshot,
            dict(options or {}),
        )
        self._add(name)
        self.sources[name] = found
        return found

    def view(self, function: F) -> F:
        """A step that others read by the function's name."""
        self.add_view(_step(function))
        return function

    def to_topic(
        self, topic: str, *, key: str = "", mode: str = "append", options: Mapping[str, str] | None = None
    ) -> Callable[[F], F]:
        """Rows go to a topic: as they are if they have a column `value`, else as JSON of all columns."""

        def declare(function: F) -> F:
            self.add_output(Output(_step(function), topic=topic, key=key, mode=mode, options=options or {}))
            return function

        return declare

    def to_table(self, table: str, *, mode: str = "append") -> Callable[[F], F]:
        """Rows are added to an Iceberg table, which is made of their columns unless it is there."""

        def declare(function: F) -> F:
            self.add_output(Output(_step(function), table=table, mode=mode))
            return function

        return declare

    def add_view(self, step: Step) -> None:
        self._add(step.name)
        self.views[step.name] = step

    def add_output(self, output: Output) -> None:
        if not output.target:
            raise InvalidInput(f"output {output.step.name!r} goes to no topic and no table")
        if output.table and "." not in output.table:
            raise InvalidInput(f"a table is named with its namespace, as in default.{output.table}")
        if output.mode not in ("append", "update", "complete"):
            raise InvalidInput(f"the mode of {output.step.name!r} is append, update or complete")
        self._add(output.step.name)
        self.outputs[output.step.name] = output

    def _add(self, name: str) -> None:
        if name in self.sources or name in self.views or name in self.outputs:
            raise InvalidInput(f"{name!r} is declared twice in pipeline {self.name!r}")

    def pin(self, source: str, snapshot: int) -> None:
        """Read a table as it was at a snapshot. Raises InvalidInput unless `source` is a table."""
        known = self.sources.get(source)
        if known is None or not known.table:
            raise InvalidInput(f"pipeline {self.name!r} has no table {source!r} among its sources")
        self.sources[source] = replace(known, snapshot=snapshot)

    def check(self) -> None:
        """Raises InvalidInput for a pipeline that cannot be run."""
        if not self.outputs:
            raise InvalidInput(f"pipeline {self.name!r} has no output")
        for output in self.outputs.values():
            self.needed(output.step)

    def needed(self, step: Step) -> list[str]:
        """Names of all that a step is made of, each after what it is made of itself. Raises InvalidInput."""
        found: list[str] = []
        self._need(step, found, [])
        return found

    def _need(self, step: Step, found: list[str], path: list[str]) -> None:
        if step.name in path:
            raise InvalidInput(f"{' → '.join([*path, step.name])} is a circle")
        for name in step.inputs:
            if name in found:
                continue
            if name in self.views:
                self._need(self.views[name], found, [*path, step.name])
            elif name not in self.sources:
                known = ", ".join([*self.sources, *self.views]) or "nothing"
                raise InvalidInput(
                    f"{step.name!r} is made of {name!r}, which is not declared; there is {known}"
                )
            found.append(name)


def _step(function: Transform) -> Step:
    parameters = tuple(inspect.signature(function).parameters)

    def transform(spark: SparkSession, frames: Mapping[str, DataFrame]) -> DataFrame:
        given: dict[str, Any] = {name: spark if name == _SPARK else frames[name] for name in parameters}
        return function(**given)

    return Step(function.__name__, transform, tuple(name for name in parameters if name != _SPARK))
