"""Everything that runs on Spark: the session, the driver's jobs, the data source, pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register `format("mainstem")` with a session in which Spark does not discover it by itself."""
    from mainstem.spark.datasource import MainstemDataSource

    spark.dataSource.register(MainstemDataSource)
