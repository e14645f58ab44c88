"""Everything that runs on Spark: the session, the driver's jobs, the data source, pipelines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM that starts later looks for data sources, and runs workers, with the Python that has this package. By default
# it takes the first `python3` of the path, which is another one if this one was started by its own path.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def register(spark: SparkSession) -> None:
    """Register `format("mainstem")` with a session in which Spark does not discover it by itself."""
    from mainstem.spark.datasource import MainstemDataSource

    context = getattr(spark, "sparkContext", None)  # none over Spark Connect
    if context is not None and (context.master or "").startswith("local"):
        context.pythonExec = os.environ["PYSPARK_PYTHON"]  # the session may be older than the variable
    spark.dataSource.register(MainstemDataSource)
