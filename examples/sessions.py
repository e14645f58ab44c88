"""Group clicks into sessions with no pause over 30 minutes and write them to the table `default.sessions`.

    mainstem pipeline run examples/sessions.py

Clicks are JSON such as {"user": "ada", "at": "2024-05-01T10:00:00Z", "page": "/home"}.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mainstem.spark.pipelines import Pipeline

pipeline = Pipeline("sessions")
pipeline.source("clicks", schema="user string, at timestamp, page string")


@pipeline.to_table("default.sessions")
def sessions(clicks: DataFrame) -> DataFrame:
    visits = clicks.withWatermark("at", "10 minutes").groupBy("user", f.session_window("at", "30 minutes"))
    found = visits.agg(f.count("*").alias("clicks"), f.min("at").alias("first"), f.max("at").alias("last"))
    return found.select("user", "first", "last", "clicks")
