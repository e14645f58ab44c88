"""What runs on Spark: the session, the jobs, the data source."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("mainstem")` known to a session, where Spark does not find it by itself."""
    from mainstem.spark.datasource import MainstemDataSource

    spark.dataSource.register(MainstemDataSource)
