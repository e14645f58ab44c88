"""Load a pipeline from its file: Python that defines a `Pipeline`, or SQL."""

from __future__ import annotations

import runpy
from pathlib import Path

from mainstem.errors import InvalidInput
from mainstem.spark.pipelines.pipeline import Pipeline
from mainstem.spark.pipelines.statements import pipeline_of


def load(path: Path) -> Pipeline:
    """Raises InvalidInput. A Python file is executed; its exceptions are not wrapped."""
    if not path.is_file():
        raise InvalidInput(f"pipeline file {path} does not exist")
    if path.suffix == ".sql":
        pipeline = pipeline_of(path.read_text(encoding="utf-8"), path.stem)
    elif path.suffix == ".py":
        found = [value for value in runpy.run_path(str(path)).values() if isinstance(value, Pipeline)]
        if len({id(one) for one in found}) != 1:
            raise InvalidInput(f"{path} defines {len(found)} pipelines: it must define one")
        pipeline = found[0]
    else:
        raise InvalidInput(f"{path} is neither Python (.py) nor SQL (.sql)")
    pipeline.check()
    return pipeline
