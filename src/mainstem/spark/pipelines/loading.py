"""A pipeline from its file: Python that makes a `Pipeline`, or SQL."""

from __future__ import annotations

import runpy
from pathlib import Path

from mainstem.errors import InvalidInput
from mainstem.spark.pipelines.pipeline import Pipeline
from mainstem.spark.pipelines.statements import pipeline_of


def load(path: Path) -> Pipeline:
    """Raises InvalidInput. A Python file is run: its errors come as they are."""
    if not path.is_file():
        raise InvalidInput(f"there is no pipeline file {path}")
    if path.suffix == ".sql":
        pipeline = pipeline_of(path.read_text(encoding="utf-8"), path.stem)
    elif path.suffix == ".py":
        found = [value for value in runpy.run_path(str(path)).values() if isinstance(value, Pipeline)]
        if len({id(one) for one in found}) != 1:
            raise InvalidInput(f"{path} makes {len(found)} pipelines: it has to make one")
        pipeline = found[0]
    else:
        raise InvalidInput(f"{path} is neither Python (.py) nor SQL (.sql)")
    pipeline.check()
    return pipeline
